#!/usr/bin/env bash
# wheels_check.sh [PLATFORM...] : `make wheels`, and that each wheel is what its tag says: pip takes
# it for that platform, RECORD has its files, and its library is of that system and processor,
# exports what applications call and nothing else, and needs the system's own libraries alone.
# examples/minimal.c, linked with the library, reads a compressed bundle here, by qemu-aarch64 and
# by wine; those for macOS run nowhere. Exit code 77: no zig (pip install ziglang), no pip, or PyPI
# is not reached.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/python/find.bash
[ -z "$why" ] || { echo "skipped: $why"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHON=$python ZIG=${ZIG:-$python -m ziglang}
export WINEDEBUG=-all WINEPREFIX=$PWD/build/platforms/wine
make -s wheels NAMES="$*" || exit $?
"$python" -m pip install -q --target "$work/lief" lief 2>"$work/log" ||
    { echo "skipped: lief, which reads libraries: $(tail -n 1 "$work/log")"; exit 77; }
[ $# != 0 ] || set -- $(basename -a build/wheels/*.whl | sed 's/.*-none-//; s/\.whl//')

# runs PLATFORM FILE : examples/minimal.c over the library, where that can be compiled and run.
runs() {
    local cc run=() program=$work/$1/minimal
    case $1 in
    win_amd64) cc=x86_64-w64-mingw32-gcc-posix run=(wine) program=$program.exe ;;
    manylinux_*_aarch64)
        cc=aarch64-linux-gnu-gcc
        run=(qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$(dirname "$2")")
        ;;
    "manylinux_2_17_$(uname -m)") cc=cc run=(env LD_LIBRARY_PATH="$(dirname "$2")") ;;
    *) echo "not run"; return ;;
    esac
    for needed in $cc "${run[0]}"; do
        command -v "$needed" >/dev/null || { echo "not run: no $needed"; return; }
    done
    sed '/define SPECRT_IMPLEMENTATION/d' examples/minimal.c >"$work/minimal.c"
    $cc -std=c99 -O1 -Iinclude -Iexamples "$work/minimal.c" "$2" -o "$program" -lm
    [ "${run[0]}" != wine ] || cp "$2" "$work/$1/"
    said=$("${run[@]}" "$program" tests/golden/bundles/v1.0-zstd.specb) # it decodes and compares
    [[ $said == *"with a list of 8 of 2000 tokens"* ]] || { echo "FAIL $1: $said" >&2; return 1; }
    echo "run by ${run[0]}"
}

for platform; do
    wheel=$(echo build/wheels/specrt-*-"$platform".whl) to=$work/$platform/site
    "$python" -m pip install -q --no-deps --no-index --no-compile --only-binary :all: \
        --platform "$platform" --target "$to" "$wheel"
    library=$(echo "$to"/specrt/libspecrt.*)
    PYTHONPATH=$work/lief "$python" tests/python/wheel_content.py "$wheel" "$library" \
        build/wheels/libspecrt.def
    how=$(runs "$platform" "$library")
    # Python finds the library where it calls the system so, and calls it where this is the system.
    case $platform in win*) system=win32 ;; macosx*) system=darwin ;; *) system=linux ;; esac
    [ "$platform" != "manylinux_2_17_$(uname -m)" ] || how+=" and Python"
    env -u SPECRT_LIBRARY PYTHONPATH="$to" "$python" - "$system" "$library" "$how" <<'PYTHON'
import sys
import specrt
sys.platform, library, how = sys.argv[1:]
assert specrt._lib._find() == library, specrt._lib._find()
if how.endswith("Python"):
    with specrt.Bundle("tests/golden/bundles/v1.0-zstd.specb") as bundle:
        assert len(bundle.ids(19)) == 19
PYTHON
    echo "$platform: $(basename "$library"), $(wc -c <"$wheel") bytes, $how"
done
