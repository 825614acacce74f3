#!/usr/bin/env bash
# install_check.sh : an installed specrt compiles and runs the README's program through pkg-config.
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
make -s install DESTDIR="$root" PREFIX=/usr
export PKG_CONFIG_PATH="$root/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR=
flags=$(pkg-config --define-variable=prefix="$root/usr" --cflags --libs specrt)
cc -std=c99 examples/minimal.c $flags -o "$root/minimal"
"$root/minimal" tests/golden/bundles/v1.0-zstd.specb
"$root/usr/bin/specrt-vocabtrim-calibrate" --version
"$root/usr/bin/specrt-bundle" --version
