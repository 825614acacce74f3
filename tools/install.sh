#!/usr/bin/env bash
# install.sh DESTDIR PREFIX LIBDIR BUILD VERSION : what `make install` does. Tools keep the names
# that they have in tools/.
set -eu
destdir=$1 prefix=$2 libdir=$3 build=$4 version=$5
to="$destdir$prefix"
case $to in -*) to=./$to ;; esac
lib=$to/$libdir
interface=${version%%.*} library=libspecrt.so.${version%%-*}
install -d "$to/include" "$to/bin" "$lib/pkgconfig" "$lib/cmake/specrt"
install -m 644 include/specrt.h "$to/include/"
install -m 755 "$build/$library" "$lib/"
ln -sf "$library" "$lib/libspecrt.so.$interface"
ln -sf "libspecrt.so.$interface" "$lib/libspecrt.so"
for folder in tools/*/; do
    tool=$(basename "$folder")
    [ -x "$build/bin/$tool" ] || continue
    install -m 755 "$build/bin/$tool" "$to/bin/"
    names="${names:-} $tool"
done
install -d "$to/share/man/man1"
install -m 644 "$build"/man/*.1 "$to/share/man/man1/"
bash=$to/share/bash-completion/completions zsh=$to/share/zsh/site-functions
fish=$to/share/fish/vendor_completions.d
install -D -m 644 -t "$bash" "$build/completion/bash/specrt"
install -D -m 644 -t "$zsh" "$build/completion/zsh/_specrt"
install -D -m 644 -t "$fish" "$build/completion/fish/specrt.fish"
for tool in ${names:-}; do # shells look for the file of a command's name
    [ "$tool" = specrt ] || ln -sf specrt "$bash/$tool"
    [ "$tool" = specrt ] || ln -sf specrt.fish "$fish/$tool.fish"
done
# pc NAME DESCRIPTION LIBS [REQUIRES] : a file for pkg-config.
pc() {
    cat >"$lib/pkgconfig/$1.pc" <<PC
prefix=$prefix
includedir=\${prefix}/include
libdir=\${prefix}/$libdir

Name: $1
Description: Vocabulary-pruned speculative decoding, $2
Version: $version
${4:+Requires: $4
}Libs: $3
Cflags: -I\${includedir}
PC
}
pc specrt "a single-header runtime" -lm libzstd
pc libspecrt "the runtime as a shared library" "-L\${libdir} -lspecrt"
up=$(sed 's|[^/][^/]*|..|g' <<<"$libdir")
cat >"$lib/cmake/specrt/specrt-config.cmake" <<CMAKE
get_filename_component(specrt_lib "\${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(specrt_prefix "\${specrt_lib}/$up" ABSOLUTE)
if(NOT TARGET specrt::specrt) # another part of the project may have found it already
    add_library(specrt::specrt INTERFACE IMPORTED) # the header, compiled by whoever includes it
    set_target_properties(specrt::specrt PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES "\${specrt_prefix}/include"
        INTERFACE_LINK_LIBRARIES "zstd;m")
    add_library(specrt::library SHARED IMPORTED) # libspecrt.so
    set_target_properties(specrt::library PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES "\${specrt_prefix}/include"
        IMPORTED_SONAME "libspecrt.so.$interface"
        IMPORTED_LOCATION "\${specrt_lib}/$library")
endif()
CMAKE
# find_package(specrt 1.0): any from there on with the same major number.
cat >"$lib/cmake/specrt/specrt-config-version.cmake" <<CMAKE
set(PACKAGE_VERSION "$version")
set(PACKAGE_VERSION_COMPATIBLE FALSE)
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION
   AND ("\${PACKAGE_FIND_VERSION_MAJOR}" STREQUAL ""
        OR PACKAGE_FIND_VERSION_MAJOR EQUAL ${version%%.*}))
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
CMAKE

echo "$to/include/specrt.h: the header"
echo "$lib/$library: the same as a shared library"
echo "$to/bin:${names:-}"
echo "$to/share/man/man1: a page for each tool and verb"
echo "$bash: completion, and for zsh and fish beside it"
echo "$lib/pkgconfig/specrt.pc: pkg-config --cflags --libs specrt; libspecrt for the library"
echo "$lib/cmake/specrt: find_package(specrt), specrt::specrt or specrt::library"
