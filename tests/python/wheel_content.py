#!/usr/bin/env python3
"""wheel_content.py WHEEL LIBRARY LIST : the wheel's tag and RECORD, and its library's system, processor, exports (those
of the list, no others) and the libraries it needs. Reads libraries by lief."""
import base64
import hashlib
import re
import sys
import zipfile

import lief

# By the end of a tag: what reads the file, its processor, and libraries that every such system has.
GLIBC = r"(libc|libm|libpthread|ld-linux.*)\.so\.\d"
WINDOWS, MAC = r"(?i)(kernel32|api-ms-win-crt-.*)\.dll", r"/usr/lib/libSystem\.B\.dylib"
KINDS = {"win_amd64": (lief.PE, "AMD64", WINDOWS),
         "macosx_11_0_arm64": (lief.MachO, "ARM64", MAC), "macosx_11_0_x86_64": (lief.MachO, "X86_64", MAC),
         "manylinux_2_17_x86_64": (lief.ELF, "X86_64", GLIBC), "manylinux_2_17_aarch64": (lief.ELF, "AARCH64", GLIBC)}


def same(what, expected, found):
    if expected != found:
        sys.exit(f"{sys.argv[1]}: {what}: expected {expected}, found {found}")


def record(wheel):
    """RECORD has every file but itself, with its size and digest."""
    names = {}
    info = next(name for name in wheel.namelist() if name.endswith("/RECORD"))
    for line in wheel.read(info).decode().splitlines():
        name, digest, size = line.split(",")
        names[name] = (digest, size)
    same("RECORD", sorted(wheel.namelist()), sorted(names))
    for name in set(names) - {info}:
        data = wheel.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        same(name, names[name], (f"sha256={digest}", str(len(data))))


def machine(binary):
    header = binary.header
    for field in "machine", "machine_type", "cpu_type":
        if hasattr(header, field):
            return getattr(header, field).name
    return None


def main():
    path, library, listed = sys.argv[1:]
    platform = path[:-len(".whl")].split("-")[-1]
    reader, processor, system = KINDS[platform]
    with zipfile.ZipFile(path) as wheel:
        record(wheel)
        info = next(name for name in wheel.namelist() if name.endswith("/WHEEL"))
        same("tag", [f"py3-none-{platform}"], re.findall(r"^Tag: (.*)$", wheel.read(info).decode(), re.M))
    binary = reader.parse(library)
    if reader is lief.MachO:
        binary = binary.at(0)
        version = binary.build_version.minos if binary.has_build_version else binary.version_min.version
        same("oldest macOS", [11, 0], list(version)[:2])
        same("signed, as Apple's processors ask", True, binary.has_code_signature or processor != "ARM64")
    same("processor", processor, machine(binary))
    with open(listed, encoding="utf-8") as file:
        names = file.read().split()[1:]
    if reader is lief.PE:
        found = [e.name for e in binary.get_export().entries]
        needed = [i.name for i in binary.imports]
    else:
        linker = {"__mh_dylib_header", "___dso_handle"}  # of every library for macOS
        found = [f.name.lstrip("_") for f in binary.exported_functions if f.name not in linker]
        needed = [getattr(one, "name", one) for one in binary.libraries]
    if reader is lief.MachO:
        needed.remove("@rpath/libspecrt.1.dylib")  # its own name
    same("exports", sorted(names), sorted(set(found)))
    same("libraries that not every such system has", [], [n for n in needed if not re.fullmatch(system, n)])
    if system is GLIBC:
        with open(library, "rb") as file:
            minor = max(map(int, re.findall(rb"\0GLIBC_2\.(\d+)", file.read())))
        same("newest glibc that it needs is 2.17 or older", True, minor <= 17)


if __name__ == "__main__":
    main()
