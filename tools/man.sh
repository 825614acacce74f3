#!/usr/bin/env bash
# man.sh BIN VERSION OUT : a manual page for each tool and verb, from its --help.
set -eu
bin=$1 version=$2 out=$3
here=$(dirname "$0")
mkdir -p "$out"
rm -f "$out"/*.1
page() { # NAME COMMAND...
    local name=$1; shift
    "$@" --help | awk -v page="$name" -v version="$version" -f "$here/man.awk" >"$out/$name.1"
}
for folder in "$here"/*/; do
    tool=$(basename "$folder")
    [ -x "$bin/$tool" ] || continue
    page "$tool" "$bin/$tool"
    # A verb of `specrt` that ends with a tool's name in brackets is that tool.
    "$bin/$tool" --help | awk '/^Verbs, each/ { on = 1; next } on && !/^  [a-z]/ { exit }
        on && !/\)$/ { print $1 }' | while read -r verb; do
        page "$tool-$verb" "$bin/$tool" "$verb"
    done
done
# Verbs are found by a line of the help.
if [ -e "$out/specrt-bundle.1" ] && [ ! -e "$out/specrt-bundle-info.1" ]; then
    echo "man.sh: specrt-bundle --help: expected a line 'Verbs, each ...', found none" >&2
    exit 1
fi
