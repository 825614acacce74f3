#!/usr/bin/env bash
# readme.sh [PAIR...] : README's table of whole requests in llama.cpp, prompts included: plain
# decoding, llama.cpp's own draft, the policy that tools draft from before anything was measured,
# with chains of 3, and `auto`, in turns, prompt by prompt. On an idle machine, after
# `make tools llama`; `make benchmarks NAMES=readme` also writes the table into README.
#
# Pairs are those of llama_pair.sh (qwen-bf16 qwen-q8_0 qwen smollm2-bf16). In the environment: what
# llama_pair.sh reads, TOKENS ("64 256"), LIMIT (4 prompts of each of Spec-Bench's six tasks).
. "$(dirname "$0")/llama_pair.sh"
limit=${LIMIT:-4}

# row PAIR FIXED TOKENS : of $work/compare.json, with intervals of 95%.
row() {
    python3 - "$@" "$work/compare.json" <<'PY'
import json, sys
pair, fixed, tokens, path = sys.argv[1:]
rows = {r["policy"]: r for r in json.load(open(path))["rows"] if r["domain"] == "all"}
own = next(name for name in rows if name.endswith("own draft"))
def ratio(name):
    r = rows[name]
    low, high = r["ci95"]["speedup_request"]
    return f"{r['speedup_request']:.2f} ({low:.2f}-{high:.2f})"
plain, auto = rows["plain"], rows["auto"]
print(f"| {pair} | {tokens} | {plain['tokens_per_second']:.1f} | {ratio(own)} | {ratio(fixed)} | "
      f"**{ratio('auto')}** | {auto['prefill_ms'] / plain['prefill_ms']:.2f} | "
      f"{auto['n_same']} of {plain['n_turns']} |")
PY
}

run_pair() {
    local fixed=hybrid answer
    build_pair "$1"
    [[ $draft = *.gguf && $1 != smollm2* ]] || fixed=static:512+window+successor:256
    for answer in ${TOKENS:-64 256}; do
        "$llama" compare --target "$target" --draft "$draft" --bundle "$work/pair.specb" \
            --threads "$threads" --policy "$fixed,auto" --num-steps 3 --prompts $PROMPTS \
            --limit "$limit" --max-tokens "$answer" --json -q >"$work/compare.json"
        cat "$work/compare.json" >>"$work/all.json"
        row "$1" "$fixed" "$answer"
    done
}

echo "| pair | answer, tokens | plain, tokens/s | llama.cpp's own draft | fixed policy | \`auto\`" \
    "| prompt of \`auto\` | same tokens |"
echo "|---|--:|--:|--:|--:|--:|--:|--:|"
for name in "${@:-qwen}"; do run_pair "$name"; done
echo
cat "$work/all.json"
