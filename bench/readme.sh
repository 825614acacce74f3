#!/usr/bin/env bash
# readme.sh [PAIR...] : README's table of whole requests in llama.cpp, prompts included: plain
# decoding, llama.cpp's own draft, the policy that tools draft from before anything was measured,
# with chains of 3, and `auto`, in turns, prompt by prompt. On an idle machine, after
# `make tools llama`; `make benchmarks NAMES=readme` also writes the table into README.
#
# Pairs are those of llama_pair.sh (qwen-bf16 qwen-q8_0 qwen smollm2-bf16). In the environment: what
# llama_pair.sh reads, SHORT and TOKENS (64 and 256: lengths of answers), LIMIT (4 prompts of each
# of Spec-Bench's six tasks), ROUNDS (1; the fastest of each request counts).
. "$(dirname "$0")/llama_pair.sh"
limit=${LIMIT:-4} short=${SHORT:-64} tokens=${TOKENS:-256}

# rows PAIR FIXED : of $work/compare.json, with intervals of 95%; one for each length of answers.
rows() {
    python3 - "$@" "$work/compare.json" <<'PY'
import json, sys
pair, fixed, path = sys.argv[1:]
names = {"qwen": "Qwen2.5-Coder 1.5B and 0.5B, Q4_K_M", "qwen-q8_0": "the same, Q8_0",
         "qwen-bf16": "the same, BF16",
         "smollm2-bf16": "SmolLM2 135M and EAGLE-3 head, BF16"}
whole = json.load(open(path))
rows = {r["policy"]: r for r in whole["rows"] if r["domain"] == "all"}
own = next(name for name in rows if name.endswith("own draft"))
plain, auto = rows["plain"], rows["auto"]
for tokens, key in ((whole["short_tokens"], "speedup_short"),
                    (whole["max_tokens"], "speedup_request")):
    def ratio(name):
        low, high = rows[name]["ci95"][key]
        return f"{rows[name][key]:.2f} ({low:.2f}-{high:.2f})"
    title = names.get(pair, pair)
    print(f"| {title} | {tokens} | {plain['tokens_per_second']:.1f} | {ratio(own)} |"
          f" {ratio(fixed)} | **{ratio('auto')}** | {auto['prefill_ms'] / plain['prefill_ms']:.2f}"
          f" | {rows[fixed]['n_same']}, {auto['n_same']} of {plain['n_turns']} |")
PY
}

run_pair() {
    local fixed=hybrid code=0
    build_pair "$1"
    [[ $1 != smollm2* ]] || fixed=static:512+window+successor:256
    "$llama" compare --target "$target" --draft "$draft" --bundle "$work/pair.specb" \
        --threads "$threads" --policy "$fixed,auto" --num-steps 3 --prompts $PROMPTS \
        --limit "$limit" --max-tokens "$tokens" --short "$short" --rounds "${ROUNDS:-1}" --json -q \
        >"$work/compare.json" || code=$?
    cat "$work/compare.json" >>"$work/all.json"
    rows "$1" "$fixed"
    [ $code = 0 ] || fail "$1: compare ended with code $code"
}

echo "| pair | answer, tokens | plain, tokens/s | llama.cpp's own draft | fixed policy | \`auto\`" \
    "| prompt of \`auto\` | same tokens |"
echo "|---|--:|--:|--:|--:|--:|--:|--:|"
for name in "${@:-qwen}"; do run_pair "$name"; done
echo
cat "$work/all.json"
