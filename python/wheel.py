#!/usr/bin/env python3
"""wheel.py --library FILE [--tools DIR] [--share DIR] [--platform TAG] [--licence FILE] --version V -o DIR : the package
with its library, and tools, as a wheel, the same bytes every time. `make wheel` and `make wheels` run it; it needs
nothing but Python. Each tool is a command there, and what is in the folder `share`, as manual pages, comes to share/
of the environment. `licence` is libzstd's, where the library has it inside."""
import argparse
import base64
import glob
import hashlib
import os
import platform
import re
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))

METADATA = """Metadata-Version: 2.1
Name: specrt
Version: {version}
Summary: Vocabulary-pruned speculative decoding
License: MIT
Requires-Python: >=3.9
Requires-Dist: numpy >=1.22
Provides-Extra: torch
Requires-Dist: torch >=1.13 ; extra == "torch"
Description-Content-Type: text/markdown

"""


def tag(files):
    """manylinux_2_N: files link the C library alone, and N is the newest minor version of glibc whose symbols they use."""
    minor = 0
    for name in files:
        with open(name, "rb") as file:
            minor = max([minor, *(int(found) for found in re.findall(rb"\0GLIBC_2\.(\d+)", file.read()))])
    return f"py3-none-manylinux_2_{minor}_{platform.machine()}"


def tools(args):
    return sorted(os.listdir(args.tools)) if args.tools else []


def contents(args):
    """Name in the wheel: bytes, mode."""
    folder = os.path.join(HERE, "specrt")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py") or name == "py.typed":
            yield "specrt/" + name, os.path.join(folder, name), 0o644
    name = os.path.basename(args.library)
    yield "specrt/" + (name if args.platform else "libspecrt.so." + args.version.split(".")[0]), args.library, 0o755
    for name in tools(args):
        yield "specrt/bin/" + name, os.path.join(args.tools, name), 0o755
    for path in sorted(filter(os.path.isfile, glob.glob(args.share + "/**", recursive=True) if args.share else ())):
        yield f"specrt-{args.version}.data/data/share/{os.path.relpath(path, args.share)}", path, 0o644


def texts(args, tags):
    info = f"specrt-{args.version}.dist-info/"
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        yield info + "METADATA", METADATA.format(version=args.version) + file.read()
    yield info + "WHEEL", f"Wheel-Version: 1.0\nGenerator: specrt\nRoot-Is-Purelib: false\nTag: {tags}\n"
    commands = "".join(f"{name} = specrt._tool:main\n" for name in tools(args))
    yield info + "entry_points.txt", (f"[console_scripts]\n{commands}"
                                      "[vllm.general_plugins]\nspecrt = specrt.vllm:register\n")
    if args.licence:
        with open(args.licence, encoding="utf-8") as file:
            yield info + "LICENSE.zstd", file.read()
    with open(os.path.join(HERE, "..", "LICENSE"), encoding="utf-8") as file:
        yield info + "LICENSE", file.read()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    for name in ("library", "version"):
        p.add_argument("--" + name, required=True)
    for name in ("tools", "share", "platform", "licence"):
        p.add_argument("--" + name)
    p.add_argument("-o", dest="folder", required=True)
    args = p.parse_args()
    args.version = args.version.replace("-rc", "rc")  # as Python writes it
    tags = f"py3-none-{args.platform}" if args.platform else tag(
        source for _, source, mode in contents(args) if mode == 0o755)
    path = os.path.join(args.folder, f"specrt-{args.version}-{tags}.whl")
    record = []
    with zipfile.ZipFile(path + ".tmp", "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(name, data, mode):
            item = zipfile.ZipInfo(name)  # of 1980: no time goes in
            item.external_attr, item.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(item, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
        for name, source, mode in contents(args):
            with open(source, "rb") as file:
                add(name, file.read(), mode)
        for name, text in texts(args, tags):
            add(name, text.encode(), 0o644)
        name = f"specrt-{args.version}.dist-info/RECORD"
        item = zipfile.ZipInfo(name)
        item.external_attr = 0o100644 << 16
        wheel.writestr(item, "".join(record) + name + ",,\n")
    os.replace(path + ".tmp", path)
    print(f"{path}: {os.path.getsize(path) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
