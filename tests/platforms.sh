#!/usr/bin/env bash
# platforms.sh PLATFORM... : the single header and its unit tests on other systems and processors,
# each by a cross compiler and an emulator:
#
#     here                      this machine's CC (cc): Linux, macOS, Windows with MinGW and bash
#     windows, windows-32       MinGW; run by wine (32 bits: where Debian's wine32 is there)
#     windows-clang             zig; run by wine
#     i686                      GNU's compiler, SSE2; run by this machine, if it is x86-64
#     arm64, armhf, riscv64     GNU's compilers; run by qemu-user
#     macos-arm64, macos-x86_64 zig (pip install ziglang); linked, run nowhere
#     wasm, wasm-scalar         zig; run by wasmtime (pip install wasmtime)
#
# Tests that need the libraries of tools are left out. All run tests/specrt/test_same_bytes.c, which
# has the digests of tokens and saved sessions that this machine has. In the environment: BUILD, CC,
# WERROR, ZIG (python3 -m ziglang). Ends with 77 where a platform lacks a program; the package is
# named.
set -euo pipefail
build=${BUILD:-build} zig=${ZIG:-python3 -m ziglang}
flags=(-std=c99 -D_GNU_SOURCE -O1 -Wall -Wextra -Wno-unused-function -DSPECRT_TOOLS
    -DSPECRT_NO_ZSTD -DNO_GUARD)

# platform NAME : cc, the compiler; run, what runs its programs (empty: nothing does); packages.
platform() {
    system=$1 run= packages= suffix=
    case $1 in
    here)
        cc=${CC:-cc} run=env packages="a C compiler"
        case $(uname -s) in
        Darwin) system=macos ;;
        MINGW* | MSYS*) system=windows suffix=.exe ;;
        esac
        ;;
    windows)
        cc=x86_64-w64-mingw32-gcc-posix run=wine suffix=.exe
        packages="gcc-mingw-w64-x86-64-posix wine64 wine"
        ;;
    windows-32)
        cc=i686-w64-mingw32-gcc-posix suffix=.exe packages=gcc-mingw-w64-i686-posix
        [ ! -e /usr/lib/wine/wine ] || run=wine
        ;;
    i686)
        cc="i686-linux-gnu-gcc -msse2 -mfpmath=sse"
        [ "$(uname -m)" != x86_64 ] || run=env
        packages="gcc-i686-linux-gnu libc6-dev-i386-cross"
        ;;
    arm64)
        cc=aarch64-linux-gnu-gcc run=qemu-aarch64
        packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
        ;;
    armhf)
        cc=arm-linux-gnueabihf-gcc run=qemu-arm
        packages="gcc-arm-linux-gnueabihf libc6-dev-armhf-cross qemu-user"
        ;;
    riscv64)
        cc=riscv64-linux-gnu-gcc run=qemu-riscv64
        packages="gcc-riscv64-linux-gnu libc6-dev-riscv64-cross qemu-user"
        ;;
    windows-clang)
        cc="$zig cc -target x86_64-windows-gnu" run=wine suffix=.exe
        packages="wine64 wine, pip install ziglang"
        ;;
    macos-arm64) cc="$zig cc -target aarch64-macos" packages="pip install ziglang" ;;
    macos-x86_64) cc="$zig cc -target x86_64-macos" packages="pip install ziglang" ;;
    wasm | wasm-scalar)
        cc="$zig cc -target wasm32-wasi" run=tests/wasm/run.py suffix=.wasm
        packages="pip install ziglang wasmtime"
        ;;
    *) echo "$0: expected a platform of its head, found $1" >&2; exit 2 ;;
    esac
    system_options
}

# What a system's compiler takes, and what it links with.
system_options() {
    options=(-DSPECRT_WORKER) link=()
    case $system in
    windows*) options+=(-Itests/windows) link=(-static tests/windows/posix.c) ;;
    macos*) ;;
    wasm*) # no threads; longjmp() takes exceptions
        options=(-DSPECRT_NO_FILES -Itests/wasm -mexception-handling -mllvm -wasm-enable-sjlj
            -mllvm -wasm-use-legacy-eh=false)
        [ "$system" = wasm-scalar ] || options+=(-msimd128)
        link=(tests/wasm/posix.c -Wl,-z,stack-size=8388608)
        ;;
    *) link=(-static) ;;
    esac
}

has_programs() {
    local program
    for program in ${cc%% *} $run; do command -v "$program" >/dev/null || return 1; done
    case $cc in "$zig"*) $zig version >/dev/null 2>&1 || return 1 ;; esac
    case $run in
    *.py) python3 -c "import wasmtime" 2>/dev/null ;;
    wine) wineboot -i >/dev/null 2>&1 ;; # once, not by several programs
    esac
}

# Tests that link with the header alone. What draws by the hundred thousand takes minutes in an
# emulator, and test_same_bytes has sampled tokens, too: EVERYTHING=1 takes it.
portable() {
    local test
    for test in tests/specrt/test_*.c; do
        [[ ${EVERYTHING:-} || $test != */test_distribution.c ]] || continue
        ! grep -qE '^#include "(base|formats|model|tools)/' "$test" || continue
        case $system,$test in windows*/test_costs_file.c | wasm*/test_costs_file.c) continue ;; esac
        echo "$test"
    done
    [[ $system != windows* ]] || echo tests/windows/files.c
}

# one NAME TEST : compiled, linked and, where something runs it, run.
one() {
    platform "$1"
    local test=$2 program log objects=("$at/specrt.o") includes=(-Isrc)
    program=$at/$(basename "$test" .c)$suffix log=$at/$(basename "$test").log
    case $test in # these have the header's implementation in them
    */test_simd.c | */test_source.c) objects=() includes=(-Iinclude -Isrc) ;;
    esac
    $cc "${flags[@]}" "${options[@]}" "${includes[@]}" -Itests -I. "$test" "${objects[@]}" \
        "${link[@]}" -o "$program" -lm >"$log" 2>&1 || { cat "$log"; return 255; }
    [ -n "$run" ] || return 0
    $run "$program" >"$log" 2>&1 || { cat "$log"; return 255; }
}

check() {
    platform "$1"
    if ! has_programs "$1"; then
        echo "skipped: $1: expected ${cc%% *}${run:+ and a $run that starts} ($packages)"
        skipped=77
        return
    fi
    export at=$build/platforms/$1
    mkdir -p "$at"
    $cc "${flags[@]}" ${WERROR:-} "${options[@]}" -DSPECRT_IMPLEMENTATION -DSPECRT__INTERNAL= -x c \
        -c include/specrt.h -o "$at/specrt.o"
    local tests
    mapfile -t tests < <(portable)
    printf '%s\n' "${tests[@]}" | xargs -P "$processors" -I TEST "$0" --one "$1" TEST
    local how=linked
    [ -z "$run" ] || how="run by $run"
    [ "$run" != env ] || how=run
    echo "$1: ${#tests[@]} tests $how, compiled by $($cc --version | head -n 1)" |
        tee "$at/said"
}

export WINEDEBUG=-all WINEPREFIX=$PWD/$build/platforms/wine
[ "${1:-}" != --one ] || { one "$2" "$3"; exit; }
skipped=0 processors=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
mkdir -p "$build/platforms"
for name; do check "$name"; done
exit $skipped
