#!/usr/bin/env bash
# deb.sh OUT : what `make deb` does. The Debian packages of HEAD, and lintian where it is installed.
set -eu
out=$1
command -v dh >/dev/null ||
    { echo "make deb: no dh; apt-get install -y debhelper lintian"; exit 1; }
unset MAKEFLAGS MAKELEVEL MFLAGS WERROR
rm -rf "$out"
mkdir -p "$out/specrt"
git archive HEAD | tar -x -C "$out/specrt"
(cd "$out/specrt" && dpkg-buildpackage -us -uc -b) >"$out/log" 2>&1 ||
    { tail -n 30 "$out/log"; exit 1; }
if command -v lintian >/dev/null; then
    lintian --fail-on error,warning --allow-root "$out"/*.changes
else
    echo "skipped: lintian is not installed"
fi
for package in "$out"/*.deb; do echo "$package: $(($(stat -c %s "$package") / 1024)) kB"; done
