#!/usr/bin/env bash
# fetch.sh FOLDER : llama.cpp's sources in FOLDER/src, as PyPI's llama-cpp-python carries them
# (77 MB), a version that our tests ran with, checked by digest. Of the package nothing else is kept
# or installed.
set -euo pipefail
folder=$1
package=llama_cpp_python-0.3.36
digest=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
fail() { echo "make llama-fetch: $*" >&2; exit 1; }

[ ! -e "$folder/src/CMakeLists.txt" ] || { echo "$folder/src: is there"; exit 0; }
python3 -m pip --version >/dev/null 2>&1 || fail "no pip; apt-get install -y python3-pip"
mkdir -p "$folder/download"
# pip asks a source archive who it is, for which it takes that archive's build tools along.
[ -e "$folder/download/$package.tar.gz" ] ||
    python3 -m pip download -q --no-input --disable-pip-version-check --no-deps \
        --no-binary llama-cpp-python -d "$folder/download" llama-cpp-python==0.3.36 ||
    fail "PyPI gives no llama-cpp-python 0.3.36; give a source tree: make llama LLAMA=DIR"
found=$(sha256sum <"$folder/download/$package.tar.gz" | cut -d ' ' -f 1)
if [ "$found" != "$digest" ]; then
    rm -f "$folder/download/$package.tar.gz"
    fail "$package.tar.gz: SHA-256; expected $digest, found $found; it is removed"
fi
rm -rf "$folder/src.tmp"
mkdir "$folder/src.tmp"
tar xzf "$folder/download/$package.tar.gz" -C "$folder/src.tmp" --strip-components=3 \
    "$package/vendor/llama.cpp"
mv "$folder/src.tmp" "$folder/src"
rm -rf "$folder/download"
echo "$folder/src: llama.cpp, $(cat "$folder/src/LICENSE" | head -n 1); now: make llama"
