#!/usr/bin/env bash
# wheel_check.sh : the wheel has the same bytes twice, is under 8 MB, and works by itself: its own
# library and tools, linked to the C library alone, as old as auditwheel says. Exit code 77: no
# python3 with numpy.
set -eu
cd "$(dirname "$0")/../.."
for python in "${PYTHON:-}" /usr/bin/python3 python3; do
    [ -n "$python" ] && "$python" -c 'import numpy' 2>/dev/null && break
    python=
done
[ -n "$python" ] || { echo "skipped: no python3 with numpy"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make -s wheel
cp build/wheel/specrt-*.whl "$work/"
make -s wheel
cmp build/wheel/specrt-*.whl "$work"/specrt-*.whl
[ "$(stat -c %s "$work"/specrt-*.whl)" -lt 8000000 ]
# auditwheel, where PyPI gives it, finds the tag of the wheel's name.
if "$python" -m pip install -q --target "$work/auditwheel" auditwheel 2>"$work/log"; then
    said=$(PYTHONPATH=$work/auditwheel "$python" -m auditwheel show "$work"/specrt-*.whl | xargs -0)
    name=$(basename "$work"/specrt-*.whl .whl)
    [[ $(tr -s '\n ' ' ' <<<"$said") == *"platform tag: \"${name##*none-}\""* ]] ||
        { echo "$name: auditwheel says: $said"; exit 1; }
else
    echo "skipped: auditwheel: $(tail -n 1 "$work/log")"
fi
"$python" -m zipfile -e "$work"/specrt-*.whl "$work/site"
chmod +x "$work"/site/specrt/bin/* # zipfile forgets modes, pip does not
bundle=$PWD/tests/golden/bundles/v1.0-zstd.specb
cd "$work"
env -u SPECRT_LIBRARY -u SPECRT_TOOLS PYTHONPATH="$work/site" "$python" - "$bundle" <<'PYTHON'
import sys
import specrt
with specrt.Bundle(sys.argv[1]) as bundle:
    specrt.write_map(bundle.ids(19), "map.pt", "sglang-pt")
    assert specrt.read_map("map.pt", "absolute").tolist() == bundle.ids(19).tolist()
for path in specrt.library().path, specrt._tool.path():
    assert path.startswith(sys.path[1]), path
PYTHON
for tool in site/specrt/bin/*; do
    [[ $($tool --version) == "$(basename "$tool") "* ]] || { echo "$tool: no version"; exit 1; }
done
# What the command `specrt` of pip's wrapper calls.
PYTHONPATH="$work/site" "$python" -c 'import specrt._tool as t; t.main()' \
    bundle info "$bundle" >info
grep -q ranks info
for file in site/specrt/libspecrt.so.* site/specrt/bin/*; do
    needs=$(readelf -d "$file" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc|libm|ld-linux.*)\.so\.[0-9]+$' || true)
    [ -z "$needs" ] || { echo "$file needs $needs"; exit 1; }
done
