#!/usr/bin/env bash
# install_check.sh : an installed specrt compiles and runs the README's program through pkg-config,
# and through CMake where that is installed; and a program over the shared library, which exports
# what the header declares for applications and nothing else.
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
make -s install DESTDIR="$root" PREFIX=/usr >"$root/said"
while IFS=: read -r path names; do # what it says is there
    [ -e "$path" ] || { echo "install names $path, which is not there"; exit 1; }
    case $path in */bin) for name in $names; do [ -x "$path/$name" ]; done ;; esac
done < <(grep "^$root/usr/" "$root/said")
[ "$(grep -c "^$root/usr/" "$root/said")" = 7 ] || { cat "$root/said"; exit 1; }
export PKG_CONFIG_PATH="$root/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR=
flags=$(pkg-config --define-variable=prefix="$root/usr" --cflags --libs specrt)
cc -std=c99 examples/minimal.c $flags -o "$root/minimal"
"$root/minimal" tests/golden/bundles/v1.0-zstd.specb
flags=$(pkg-config --define-variable=prefix="$root/usr" --cflags --libs libspecrt)
cc -std=c99 tests/compile/{program,other}.c $flags -o "$root/shared"
LD_LIBRARY_PATH="$root/usr/lib" "$root/shared" tests/golden/bundles/v1.0-zstd.specb 0 17
readelf -d "$root/shared" | grep -q 'NEEDED.*libspecrt\.so\.[0-9.]*]'
diff <(nm -D --defined-only "$root/usr/lib/libspecrt.so" | awk '$2 == "T" { print $3 }' |
    sed 's/@.*//' | sort) <(tools/exports.sh cc)
# Manual pages have every section, and groff understands them where it is installed.
for page in "$root"/usr/share/man/man1/*.1; do
    [ "$(grep -c '^\.SH' "$page")" -ge 6 ] && ! grep -A 1 '^\.SH' "$page" | grep -qx '' ||
        { echo "$page: a section is missing or empty"; exit 1; }
    ! command -v groff >/dev/null || [ -z "$(groff -man -ww -z "$page" 2>&1)" ] ||
        { groff -man -ww -z "$page"; exit 1; }
done
# A release's files: the same bytes twice, sources that build what is installed, a list of components.
make -s dist >"$root/said" && cp -r build/dist "$root/dist" && make -s dist >"$root/said"
diff -r build/dist "$root/dist"
(cd "$root/dist" && sha256sum --quiet -c SHA256SUMS && python3 -m json.tool ./*.spdx.json >/dev/null &&
    tar -xzf specrt-*.tar.gz && cmp specrt.h specrt-*/include/specrt.h)
# Tools have the names that the documentation calls them by.
for folder in tools/*/; do
    tool=$(basename "$folder")
    [ "$tool" != specrt-llama ] || continue # it is there where llama.cpp is
    [[ $("$root/usr/bin/$tool" --version) == "$tool "* ]] && continue
    echo "$tool: not installed under its name"
    exit 1
done

if command -v cmake >/dev/null; then
    mkdir "$root/project"
    cat >"$root/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.10)
project(check C)
find_package(specrt 1.0 REQUIRED)
find_package(specrt REQUIRED)
add_executable(check $PWD/examples/minimal.c)
target_link_libraries(check specrt::specrt)
add_executable(shared $PWD/tests/compile/program.c $PWD/tests/compile/other.c)
target_link_libraries(shared specrt::library)
CMAKE
    cmake -S "$root/project" -B "$root/project/build" -DCMAKE_PREFIX_PATH="$root/usr" \
        >"$root/cmake.log" 2>&1 &&
        cmake --build "$root/project/build" >>"$root/cmake.log" 2>&1 || { cat "$root/cmake.log";
            exit 1; }
    "$root/project/build/check" tests/golden/bundles/v1.0-zstd.specb
    "$root/project/build/shared" tests/golden/bundles/v1.0-zstd.specb 0 17
    # The same programs over a checkout, by add_subdirectory().
    sed -i "/^find_package/d; /^project/a add_subdirectory($PWD specrt)" "$root/project/CMakeLists.txt"
    rm -r "$root/project/build"
    cmake -S "$root/project" -B "$root/project/build" >"$root/cmake.log" 2>&1 &&
        cmake --build "$root/project/build" >>"$root/cmake.log" 2>&1 || { cat "$root/cmake.log";
            exit 1; }
    "$root/project/build/check" tests/golden/bundles/v1.0-zstd.specb
    "$root/project/build/shared" tests/golden/bundles/v1.0-zstd.specb 0 17
fi
