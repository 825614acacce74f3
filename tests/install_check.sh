#!/usr/bin/env bash
# install_check.sh : an installed specrt compiles and runs the README's program through pkg-config,
# and through CMake where that is installed.
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

if command -v cmake >/dev/null; then
    mkdir "$root/project"
    cat >"$root/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.10)
project(check C)
find_package(specrt 0.1 REQUIRED)
find_package(specrt REQUIRED)
add_executable(check $PWD/examples/minimal.c)
target_link_libraries(check specrt::specrt)
CMAKE
    cmake -S "$root/project" -B "$root/project/build" -DCMAKE_PREFIX_PATH="$root/usr" \
        >"$root/cmake.log" 2>&1 &&
        cmake --build "$root/project/build" >>"$root/cmake.log" 2>&1 || { cat "$root/cmake.log";
            exit 1; }
    "$root/project/build/check" tests/golden/bundles/v1.0-zstd.specb
fi
