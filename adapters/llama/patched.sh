#!/usr/bin/env bash
# patched.sh FOLDER [OPTION...] : llama.cpp's server with our patches (the type draft-specrt, and
# MTP files with a cut head), in FOLDER/patched, by cmake with these options, from the sources that
# `make llama-fetch` brought into FOLDER/src. They stay as they are. Run from the project's root.
set -euo pipefail
folder=$1 root=$PWD patches="adapters/llama/llama.cpp-0.5.0*.patch"
shift
fail() { echo "make llama-patched: $*" >&2; exit 1; }

[ -e "$folder/src/CMakeLists.txt" ] || fail "no $folder/src; make llama-fetch brings it"
for program in cmake patch; do
    command -v $program >/dev/null || fail "no $program; apt-get install -y $program"
done
to=$folder/patched
if ! cat $patches | cmp -s - "$to/patch"; then
    rm -rf "$to/src" "$to/patch"
    mkdir -p "$to"
    cp -r "$folder/src" "$to/src"
    cat $patches | patch -s -p1 -d "$to/src" ||
        fail "$folder/src: $patches do not apply; expected the version that make llama-fetch brings"
    cat $patches >"$to/patch"
fi
mkdir -p "$to/build"
out=$(cd "$to/build" && pwd)
echo "LLAMA $to/src: half an hour of CPU; $out/log tells what goes on"
cmake -S "$to/src" -B "$out" -DCMAKE_BUILD_TYPE=Release -DSPECRT_DIR="$root" \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
    -DCMAKE_PROJECT_ggml_INCLUDE="$root/adapters/llama/ggml.cmake" \
    "$@" >"$out/log" 2>&1 &&
    cmake --build "$out" --target llama-server -j "$(nproc)" >>"$out/log" 2>&1 ||
    fail "$to/src: does not build: $(grep -m 1 -iE 'error' "$out/log" || tail -n 1 "$out/log")"
echo "$out/bin/llama-server --spec-type draft-specrt -md DRAFT"
