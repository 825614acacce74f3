#!/usr/bin/env bash
# wheel_check.sh : the wheel has the same bytes twice, is under 8 MB, and works by itself in a fresh
# virtual environment: its own library and tools, linked to the C library alone, as old as
# auditwheel says, each a command with a manual page. Exit code 77: no python3 with numpy and pip.
set -eu
cd "$(dirname "$0")/../.."
. tests/python/find.bash
[ -z "$why" ] || { echo "skipped: $why"; exit 77; }
"$python" -m pip --python "$python" --version >/dev/null 2>&1 ||
    { echo "skipped: no pip 22.3 or later (apt-get install -y python3-pip)"; exit 77; }
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
"$python" -m venv --without-pip --system-site-packages "$work/venv" # which have numpy
"$python" -m pip --python "$work/venv/bin/python" install -q --no-index "$work"/specrt-*.whl
bundle=$PWD/tests/golden/bundles/v1.0-zstd.specb tools=$PWD/tools
unset SPECRT_LIBRARY SPECRT_TOOLS PYTHONPATH
export PATH=$work/venv/bin:$PATH
cd "$work"
python - "$bundle" <<'PYTHON'
import sys
import specrt
with specrt.Bundle(sys.argv[1]) as bundle:
    specrt.write_map(bundle.ids(19), "map.pt", "sglang-pt")
    assert specrt.read_map("map.pt", "absolute").tolist() == bundle.ids(19).tolist()
for path in specrt.library().path, specrt._tool.path():
    assert path.startswith(sys.prefix), path
PYTHON
for folder in "$tools"/*/main.c; do
    tool=$(basename "$(dirname "$folder")")
    case $tool in sketch-build | specrt-llama) continue ;; esac
    [[ $(command -v "$tool") == "$work/venv/bin/$tool" ]] || { echo "$tool: not on PATH"; exit 1; }
    [[ $("$tool" --version) == "$tool "* ]] || { echo "$tool: no version"; exit 1; }
    page=$work/venv/share/man/man1/$tool.1
    [ -s "$page" ] || { echo "$tool: no manual page"; exit 1; }
    ! command -v man >/dev/null || [ "$(man -w "$tool")" = "$page" ] || { man -w "$tool"; exit 1; }
done
specrt bundle info "$bundle" >info
grep -q ranks info
! specrt sketch 2>said
grep -q "the Python wheel leaves it out" said
for file in venv/lib/python*/site-packages/specrt/{libspecrt.so.*,bin/*}; do
    needs=$(readelf -d "$file" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc|libm|ld-linux.*)\.so\.[0-9]+$' || true)
    [ -z "$needs" ] || { echo "$file needs $needs"; exit 1; }
done
