#!/usr/bin/env bash
# wheel_in_debian.sh : the wheel of `make wheel` in an empty Debian with Python and numpy alone: pip
# installs it, and one line of `specrt prepare` makes a drafter that vLLM loads. Run by hand before a
# release. Exit code 77: cannot here.
set -eu
cd "$(dirname "$0")/.."
ls build/wheel/*.whl >/dev/null || { echo "build/wheel: expected a wheel; run make wheel"; exit 1; }
. .ci/empty_debian.bash
in_debian 'apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-numpy \
    python3-pip' >"$root/log" 2>&1 || { tail -n 20 "$root/log"; exit 1; }
mkdir "$root/target"
cp build/wheel/*.whl "$root/"
cp data/tokenizer.json "$root/target/"
cp -r data/corpus "$root/"
python3 tests/interop/random_eagle3.py "$root/target" "$root/eagle3" --vocab 32768 --width 256 \
    --draft-vocab 16384 --keep 32753 32761
in_debian '
set -e
python3 -m pip install -q --no-index --break-system-packages /specrt-*.whl 2>/dev/null
specrt prepare --target target --drafter eagle3 --text corpus --for vllm --size 8192 -o out
specrt bundle verify out/model.specb
python3 -c "
import specrt
report = specrt.prepare(\"target\", \"eagle3\", \"sglang\", \"again\", text=[\"corpus\"], size=4096)
assert report[\"n_selected\"] == 4096, report
assert not [f for f in specrt.check(\"again/drafter\", target=\"target\", engine=\"sglang\")]"'
