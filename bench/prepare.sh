#!/usr/bin/env bash
# prepare.sh : the time of `specrt prepare` on real answers (SPECRT_DATA), with the tokenizer of
# Llama-3 and an EAGLE-3 drafter of the shapes of Llama-3-8B and random weights, cut to 32,768
# tokens.
set -eu
cd "$(dirname "$0")/.."
data=${SPECRT_DATA:-../shared/data} bin=build/bin
answers=$data/generations
[ -d "$answers" ] || { echo "skipped: no answers at $answers (SPECRT_DATA)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 tests/interop/random_eagle3.py "$work/target" "$work/drafter" --vocab 128256 --width 4096 \
    --draft-vocab 65536 --keep 128000 128001 128008 128009 --aux 2 16 29
cp "$data/tokenizers/llama3/tokenizer.model" "$work/target"
begin=$(date +%s.%N)
"$bin/specrt" prepare --target "$work/target" --drafter "$work/drafter" --for vllm --size 32768 \
    --text "$answers" -o "$work/out" --json >"$work/report.json"
end=$(date +%s.%N)
python3 - "$work" "$begin" "$end" <<'EOF'
import json, pathlib, sys
work, begin, end = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
said = json.loads((work / "report.json").read_text())
ranks = json.loads(next((work / "out").rglob("ranks.json")).read_text())
n_bytes = sum(f.stat().st_size for f in (work / "drafter").iterdir())
print(f"{ranks['n_tokens']:,} tokens, drafter of {n_bytes / 1e9:.2f} GB: {end - begin:.1f} s;",
      f"{said['n_selected']:,} tokens kept,",
      f"coverage {said['coverage']:.4f}")
EOF
