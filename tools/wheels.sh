#!/usr/bin/env bash
# wheels.sh BUILD VERSION [PLATFORM...] : wheels of the Python package with libspecrt but without
# tools, for other systems, in BUILD/wheels. `make wheels` runs it. A platform is a tag of Python's
# wheels; without one, all in the table below. zig compiles the single header, and libzstd from the
# sources in PyPI's `zstandard`. In the environment: ZIG (python3 -m ziglang), PYTHON. Exit code 77:
# no zig, or PyPI is not reached.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 version=$2 python=${PYTHON:-python3}
zig=${ZIG:-$python -m ziglang} out=$build/wheels source=$build/wheels/zstandard-0.25.0
shift 2

# What zig calls a platform. The numbers are the oldest release of the system or its C library.
target_of() {
    case $1 in
    win_amd64) echo x86_64-windows-gnu ;;
    macosx_11_0_arm64) echo aarch64-macos.11.0 ;;
    macosx_11_0_x86_64) echo x86_64-macos.11.0 ;;
    manylinux_2_17_x86_64) echo x86_64-linux-gnu.2.17 ;;
    manylinux_2_17_aarch64) echo aarch64-linux-gnu.2.17 ;;
    *) return 1 ;;
    esac
}
[ $# != 0 ] || set -- $(sed -n 's/^    \([a-z]*_[a-z0-9_]*\)) echo .*/\1/p' "$0")
for platform; do
    target_of "$platform" >/dev/null ||
        { echo "$0: $platform: expected a platform of its table; read the file" >&2; exit 2; }
done
$zig version >/dev/null 2>&1 || { echo "skipped: no zig (pip install ziglang)"; exit 77; }

# libzstd : its sources, once.
mkdir -p "$out"
if [ ! -e "$source/zstd/zstd.c" ]; then
    if ! $python -m pip download -q --no-deps --no-binary zstandard -d "$out" zstandard==0.25.0 \
        2>"$out/log"; then
        echo "skipped: zstandard: PyPI gives none: $(tail -n 1 "$out/log")"
        exit 77
    fi
    tar -xzf "$source.tar.gz" -C "$out"
fi
tools/exports.sh "${CC:-cc}" >"$out/names"
sed '1i EXPORTS' "$out/names" >"$out/libspecrt.def"
{
    echo '#include "specrt.h"'
    sed 's/.*/extern __typeof__(&) & __attribute__((visibility("default")));/' "$out/names"
    echo '#define SPECRT_IMPLEMENTATION'
    echo '#include "specrt.h"'
} >"$out/libspecrt.c"

# Nothing of libzstd is exported. Traces are compressed at level 3, without these.
zstd=(-DZSTDLIB_VISIBLE= -DZSTDERRORLIB_VISIBLE= -DZDICTLIB_VISIBLE=)
for name in GREEDY LAZY LAZY2 BTLAZY2 BTOPT BTULTRA; do
    zstd+=("-DZSTD_EXCLUDE_${name}_BLOCK_COMPRESSOR")
done

# library PLATFORM FILE : functions for applications are exported, those of libzstd are not.
library() {
    local cc="$zig cc -target $(target_of "$1")" at=$out/$1 link=()
    case $1 in
    win*) link=("$out/libspecrt.def") ;;
    macosx*) link=(-Wl,-install_name,@rpath/$(basename "$2")) ;;
    *) link=(-Wl,-soname,"$(basename "$2")" -lpthread) ;;
    esac
    $cc -O2 -fvisibility=hidden "${zstd[@]}" -c "$source/zstd/zstd.c" -o "$at/zstd.o"
    $cc -std=c99 -D_GNU_SOURCE -O2 -fvisibility=hidden -Wall -Wextra ${WERROR:-} -DSPECRT_WORKER \
        -DSPECRT_TOOLS -Iinclude -I"$source/zstd" -c "$out/libspecrt.c" -o "$at/specrt.o"
    $cc -O2 -shared -s "$at/specrt.o" "$at/zstd.o" "${link[@]}" -lm -o "$2"
}

for platform; do
    case $platform in
    win*) file=libspecrt.dll ;;
    macosx*) file=libspecrt.${version%%.*}.dylib ;;
    *) file=libspecrt.so.${version%%.*} ;;
    esac
    mkdir -p "$out/$platform"
    library "$platform" "$out/$platform/$file"
    rm -f "$out"/specrt-*-"$platform".whl
    "$python" python/wheel.py --library "$out/$platform/$file" --platform "$platform" \
        --licence "$source/zstd/LICENSE" --version "$version" -o "$out"
done
