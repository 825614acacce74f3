#!/usr/bin/env bash
# find.sh LLAMA FOLDER [OPTION...] : where llama.cpp is, as FOLDER/cflags and FOLDER/libs for the
# compiler.
# LLAMA is
#     pkg      what pkg-config knows as llama (Debian: libllama-dev)
#     a folder where it is installed (include/llama.h and lib/libllama.so), or its sources, which
#              cmake builds in FOLDER/build with these options: libraries alone, no tools
#     empty    the sources that `make llama-fetch` brought, else pkg
set -euo pipefail
llama=$1 folder=$2; shift 2
options=("$@")
fail() { echo "make llama: $*" >&2; exit 1; }

# folder PATH : the whole path, which becomes text of recipes.
folder() {
    local at
    at=$(cd -- "$1" && pwd)
    [[ $at != *[][[:space:]\"\'\`\$\\\;\&\|\<\>\(\)\*\?\{\}\#\~\!]* ]] ||
        fail "$at: expected a path without blanks, quotes and signs of the shell; name a link to it"
    echo "$at"
}

write() { # CFLAGS LIBS, when they change
    mkdir -p "$folder"
    printf '%s\n' "$1" | cmp -s - "$folder/cflags" || printf '%s\n' "$1" >"$folder/cflags"
    printf '%s\n' "$2" >"$folder/libs"
}

# Headers of others are not held to our warnings.
use_pkg() {
    pkg-config --exists llama || fail "pkg-config knows no llama; apt-get install -y libllama-dev" \
        "(Debian 14 and later), or make llama-fetch, or name a folder: LLAMA=DIR"
    local cflags libs
    cflags=$(pkg-config --cflags llama | sed 's/-I/-isystem /g')
    libs=$(pkg-config --libs llama)
    write "$cflags" "$libs -Wl,-rpath,$(pkg-config --variable=libdir llama)"
}

use_installed() {
    local at
    at=$(folder "$1")
    write "-isystem $at/include" "-L$at/lib -Wl,-rpath,$at/lib -lllama -lggml -lggml-base"
}

build_sources() {
    local at out ours
    at=$(folder "$1") ours=$(cd "$(dirname "$0")" && pwd)
    command -v cmake >/dev/null || fail "no cmake, which llama.cpp's sources need (nothing else" \
        "here does); apt-get install -y cmake"
    mkdir -p "$folder/build"
    out=$(folder "$folder/build")
    if [ ! -e "$out/bin/libllama.so" ]; then
        echo "LLAMA $at: a few minutes; $out/log tells what goes on"
        cmake -S "$at" -B "$out" -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_COMMON=OFF \
            -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DLLAMA_BUILD_SERVER=OFF -DLLAMA_CURL=OFF \
            -DCMAKE_UNITY_BUILD=ON -DCMAKE_PROJECT_ggml_INCLUDE="$ours/ggml.cmake" \
            "${options[@]}" >"$out/log" 2>&1 &&
            cmake --build "$out" --target llama -j "$(nproc)" >>"$out/log" 2>&1 ||
            fail "$at: does not build: $(grep -m 1 -iE 'error' "$out/log" || tail -n 1 "$out/log")"
    fi
    write "-isystem $at/include -isystem $at/ggml/include" \
        "-L$out/bin -Wl,-rpath,$out/bin -lllama -lggml -lggml-base"
}

if [ -z "$llama" ]; then
    llama=pkg
    [ ! -e "$folder/src/CMakeLists.txt" ] || llama=$folder/src
fi
if [ "$llama" = pkg ]; then
    use_pkg
elif [ -e "$llama/include/llama.h" ] && [ -e "$llama/lib/libllama.so" ]; then
    use_installed "$llama"
elif [ -e "$llama/include/llama.h" ] && [ -e "$llama/CMakeLists.txt" ]; then
    build_sources "$llama"
else
    fail "$llama: expected llama.cpp's sources, or a folder with include/llama.h and" \
        "lib/libllama.so; make llama-fetch brings sources"
fi
