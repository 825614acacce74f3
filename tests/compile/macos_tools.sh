#!/usr/bin/env bash
# macos_tools.sh [TARGET...] : the runtime, the libraries and the tools, compiled for macOS by zig
# (pip install ziglang) with the headers of this machine's packages. Nothing is linked: there are no
# libraries to link with. In the environment: BUILD, WERROR, ZIG. Exit code 77: no zig.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build} zig=${ZIG:-python3 -m ziglang}
[ $# != 0 ] || set -- aarch64-macos x86_64-macos
$zig version >/dev/null 2>&1 || { echo "skipped: no zig (pip install ziglang)"; exit 77; }

# These headers alone, for beside them are those of Linux. OpenBLAS's say how it was built.
headers=$build/platforms/macos-tools/include
mkdir -p "$headers"
for name in json-c pcre2.h utf8proc.h zlib.h zconf.h zstd.h zstd_errors.h zdict.h; do
    ln -sfn "/usr/include/$name" "$headers/$name"
done
for name in cblas.h openblas_config.h; do
    file=$(pkg-config --variable=includedir openblas)/$name
    sed '/define OPENBLAS_OS_LINUX/d' "$file" >"$headers/$name"
done
flags=(-std=c99 -D_GNU_SOURCE -DSPECRT_WORKER -DSPECRT_TOOLS -O0 -Wall -Wextra -Wpedantic -Wshadow
    -Wconversion -Wno-enum-float-conversion ${WERROR:-} -Isrc -Ilib -I. -isystem "$headers"
    -isystem "$headers/json-c")
for target; do
    objects=$build/platforms/macos-tools/$target
    rm -rf "$objects"
    mkdir -p "$objects"
    printf '%s\n' src/*/*.c lib/*/*.c engine/*/*.c tools/*/*.c tools/*/*/*.c |
        grep -v -e mpi.c -e specrt-llama |
        xargs -P "$(nproc)" -I FILE sh -c '"$@" -c FILE -o "$0/$(echo FILE | tr / _).o"' \
            "$objects" $zig cc -target "$target" "${flags[@]}"
    echo "macOS, $target: $(find "$objects" -name '*.o' | wc -l) files compiled"
done
