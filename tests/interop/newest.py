#!/usr/bin/env python3
"""Release watch: takes the newest wheels of the engines from PyPI and says which of the hooks, keys and tensor names of
hooks.txt are gone. pinned.py asks the same of the versions in requirements/. Nothing is imported or run from a wheel; no
package but pip is needed. Wheels stay in build/interop/wheels (1 GB). Without a network everything is skipped."""
import ast
import pathlib
import re
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).parent
WHEELS = pathlib.Path("build/interop/wheels")


def table():
    """By engine: (file, what, who), the plug-in's hooks included."""
    out = {}
    for line in (HERE / "hooks.txt").read_text().splitlines():
        if line.startswith("["):
            rows = out.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            file, what, who = (part.strip() for part in line.split("|"))
            rows.append((file, what, who))
    for name in "HEADS", "DRAFTERS", "WALK", "RUNNERS":
        hooks = constant("python/specrt/vllm.py", name)
        for module, owner, methods in hooks if isinstance(hooks, list) else hooks.values():
            out["vllm"] += [(module.replace(".", "/") + ".py", f"{owner}.{method}()", "plug-in: replaces it")
                            for method in methods]
    return out


def constant(path, name):
    """The literal that a module of ours gives a name; read, since importing the package needs numpy."""
    for node in ast.parse(pathlib.Path(path).read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise LookupError(f"{path}: no {name}")


def pins():
    """Versions by package, of all requirements."""
    text = "".join(path.read_text() for path in (HERE / "requirements").glob("*.txt"))
    return dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.M))


def wheel(name, version=None):
    """The wheel of a package, its newest without a version; None: there is none to have."""
    if version and (there := sorted(WHEELS.glob(f"{name.replace('-', '_')}-{version}-*.whl"))):
        return there[-1]
    run = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                          "--only-binary", ":all:", "-d", str(WHEELS / "new"), f"{name}=={version}" if version else name],
                         capture_output=True, text=True)
    new = sorted((WHEELS / "new").glob("*.whl")) if run.returncode == 0 else []
    if not new:
        print(f"skipped: {name} {version or ''}: {(run.stderr.strip().splitlines() or ['no wheel'])[-1]}")
        return None
    return new[-1].replace(WHEELS / new[-1].name)


def signatures(text):
    """Parameters by name, of functions and of Class.method."""
    out, owners = {}, [("", ast.parse(text).body)]
    for owner, body in owners:
        for node in body:
            if isinstance(node, ast.ClassDef):
                owners.append((node.name + ".", node.body))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                args = node.args
                names = {a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs]}
                out[owner + node.name] = out[node.name] = names
    return out


def has(text, what):
    if what.startswith("-"):
        return what[1:] not in text
    call = re.fullmatch(r"([\w.]+)\(([\w, ]*)\)", what)
    if not call:
        return what in text
    found = signatures(text).get(call[1])
    return found is not None and set(re.findall(r"\w+", call[2])) <= found


def examine(root, rows):
    """root: of a wheel's files, or of an interpreter's packages. @return a line for each row that they lack."""
    out = []
    for file, what, who in rows:
        if not (root / file).exists():
            out.append(f"{file}: the file is gone; needed: {what} ({who})")
        elif not has((root / file).read_text(encoding="utf-8"), what):
            out.append(f"{file}: {'there is now' if what[0] == '-' else 'gone:'} {what.lstrip('-')} ({who})")
    return out


def main(versions=None):
    """versions: by package; without, the newest."""
    passed = failed = skipped = 0
    (WHEELS / "new").mkdir(parents=True, exist_ok=True)
    for name, rows in table().items():
        for package in [p for p in (name, f"{name}-cpu") if p in versions] if versions else [name]:
            path = wheel(package, versions and versions[package])
            if not path:
                skipped += 1
                continue
            gone = examine(zipfile.Path(path), rows)
            print(f"{'FAIL' if gone else 'ok  '} {path.name}: {len(rows) - len(gone)} of {len(rows)} hooks are there")
            print("".join(f"     {line}\n" for line in gone), end="")
            passed, failed = passed + (not gone), failed + bool(gone)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
