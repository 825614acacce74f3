#!/usr/bin/env bash
# build.sh OUT API MAN PAGE.md... : the pages as a static site, with the API reference of folder API
# and the manual pages of folder MAN. README.md of a folder becomes its index.html. Files that pages
# link to are copied beside them.
set -eu
out=$1 api=$2 man=$3; shift 3
command -v pandoc >/dev/null || {
    echo "docs: no pandoc; run: apt-get install -y doxygen pandoc" >&2
    exit 1
}
here=$(dirname "$0")
rm -rf "$out"
mkdir -p "$out/api" "$out/man"
cp -r "$api/." "$out/api"
# The reference's title leads back to the pages.
sed -i 's,\(<div id="projectname">\)\(specrt\),\1<a href="../index.html">\&larr; \2</a>,' \
    "$out"/api/*.html
cp "$here/style.css" "$out/style.css"

# page FORMAT SOURCE TARGET : one page; TARGET without .html, relative to OUT. The files that it
# links to go to stdout.
page() {
    local root title shift=0
    root=$(dirname "$3" | sed 's,[^/.][^/]*,..,g')
    title=$(sed -n 's/^# //p' "$2" | head -n 1)
    [ "$1" = gfm ] || { title=$(basename "$3") shift=1; }
    mkdir -p "$out/$(dirname "$3")"
    SOURCE=$2 pandoc -f "$1" -t html5 --standalone --wrap=none --template "$here/page.html" \
        --lua-filter "$here/links.lua" --shift-heading-level-by=$shift -V root="$root" \
        --metadata pagetitle="$title" "$2" -o "$out/$3.html" 3>&1 >/dev/null
}
export -f page
export out here
{
    printf 'gfm %s\n' "$@" | sed -E 's,^(.*) (.*)\.md$,\1 \2.md \2,; s,README$,index,'
    for source in "$man"/*.1; do echo "man $source man/$(basename "$source" .1)"; done
} | xargs -P "$(nproc)" -L 1 bash -ec 'page "$@"' page | sort -u | while read -r file; do
    mkdir -p "$out/$(dirname "$file")"
    cp "$file" "$out/$file"
done
{
    printf '# Manual pages\n\n'
    for source in "$man"/*.1; do
        name=$(basename "$source" .1)
        printf -- '- [%s](%s.html): %s\n' "$name" "$name" "$(sed -n '3s/.* \\- //p' "$source")"
    done
} >"$out/man/index.md"
page gfm "$out/man/index.md" man/index
rm "$out/man/index.md"
python3 "$here/check.py" "$out"
