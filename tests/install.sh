#!/usr/bin/env bash
# install.sh DESTDIR PREFIX BIN VERSION : what `make install` does. Tools keep the names
# that they have in tools/.
set -eu
destdir=$1 prefix=$2 bin=$3 version=$4
to="$destdir$prefix"
install -d "$to/include" "$to/bin" "$to/lib/pkgconfig" "$to/lib/cmake/specrt"
install -m 644 include/specrt.h "$to/include/"
for folder in tools/*/; do
    tool=$(basename "$folder")
    [ -x "$bin/$tool" ] || continue
    install -m 755 "$bin/$tool" "$to/bin/"
    names="${names:-} $tool"
done
cat >"$to/lib/pkgconfig/specrt.pc" <<PC
prefix=$prefix
includedir=\${prefix}/include

Name: specrt
Description: Vocabulary-pruned speculative decoding, a single-header runtime
Version: $version
Requires: libzstd
Libs: -lm
Cflags: -I\${includedir}
PC
cat >"$to/lib/cmake/specrt/specrt-config.cmake" <<CMAKE
get_filename_component(specrt_prefix "\${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET specrt::specrt) # another part of the project may have found it already
    add_library(specrt::specrt INTERFACE IMPORTED)
    set_target_properties(specrt::specrt PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES "\${specrt_prefix}/include"
        INTERFACE_LINK_LIBRARIES "zstd;m")
endif()
CMAKE
# find_package(specrt 0.1): any from there on with the same major number.
cat >"$to/lib/cmake/specrt/specrt-config-version.cmake" <<CMAKE
set(PACKAGE_VERSION "$version")
set(PACKAGE_VERSION_COMPATIBLE FALSE)
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION
   AND ("\${PACKAGE_FIND_VERSION_MAJOR}" STREQUAL ""
        OR PACKAGE_FIND_VERSION_MAJOR EQUAL ${version%%.*}))
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
CMAKE

echo "$to/include/specrt.h: the header"
echo "$to/bin:${names:-}"
echo "$to/lib/pkgconfig/specrt.pc: pkg-config --cflags --libs specrt"
echo "$to/lib/cmake/specrt: find_package(specrt)"
