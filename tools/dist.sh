#!/usr/bin/env bash
# dist.sh OUT VERSION : what `make dist` does. The files of a release: the sources of HEAD, the two
# files that users copy, a list of components (SPDX), and the checksums of all. The same commit
# gives the same bytes.
set -eu
out=$1 version=$2
name=specrt-$version
mkdir -p "$out"
rm -f "$out"/*
git archive --format=tar --prefix="$name/" HEAD | gzip -n9 >"$out/$name.tar.gz"
git show HEAD:include/specrt.h >"$out/specrt.h"
git show HEAD:cuda/specrt_kernels.cu >"$out/specrt_kernels.cu"
date=$(TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)

# package ID NAME VERSION LICENSE : one entry of the SPDX document.
package() {
    printf '{"SPDXID": "SPDXRef-%s", "name": "%s", "versionInfo": "%s",' "$1" "$2" "$3"
    printf ' "licenseDeclared": "%s", "licenseConcluded": "%s",' "$4" "$4"
    printf ' "downloadLocation": "NOASSERTION", "filesAnalyzed": false}'
}
# Libraries that programs link; a wheel holds them. No third-party source is in the tree.
libraries="zstd:libzstd:BSD-3-Clause zlib:zlib:Zlib json-c:json-c:MIT pcre2:libpcre2-8:BSD-3-Clause
    utf8proc:libutf8proc:MIT openblas:openblas:BSD-3-Clause"
{
    printf '{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",'
    printf ' "name": "%s", "documentNamespace": "https://github.com/specrt/specrt/spdx/%s",' \
        "$name" "$(git rev-parse HEAD)"
    printf ' "creationInfo": {"created": "%s", "creators": ["Tool: specrt-dist"]},' "$date"
    printf ' "packages": ['
    package specrt specrt "$version" MIT
    for library in $libraries; do
        IFS=: read -r id module license <<<"$library"
        printf ', '
        package "$id" "$id" "$(pkg-config --modversion "$module")" "$license"
    done
    printf '], "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT",'
    printf ' "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-specrt"}'
    for library in $libraries; do
        printf ', {"spdxElementId": "SPDXRef-specrt", "relationshipType": "DYNAMIC_LINK",'
        printf ' "relatedSpdxElement": "SPDXRef-%s"}' "${library%%:*}"
    done
    printf ']}\n'
} >"$out/$name.spdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS)
echo "$out: $(ls "$out" | xargs)"
