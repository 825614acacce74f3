#!/usr/bin/env bash
# auto.sh NAME TRACE... : what `auto` makes of recordings, beside every fixed choice. In the
# environment: COSTS, a file of curves (specrt-eval plan --costs-out), or CURVES, a results file and
# the pair in it, or GPU, a pair whose shape the function below takes; BUNDLE; POLICIES; TREE of
# --tree; CHOOSE="TARGET DRAFT TRACE": plan names what `auto` drafts from, by a recording of other
# prompts.
set -euo pipefail
build=${BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# gpu_costs TARGET_BYTES TARGET_LAYERS DRAFT_BYTES DRAFT_LAYERS HEAD_COLUMNS VOCABULARY COLUMNS :
# curves of a GPU that nobody has timed: an H200's floors of bench/results/gpu.md. A pass reads its
# weights (f16) at 70% of 4.8 TB/s, multiplies at 400 TFLOP/s, and begins 6 kernels a layer, 2 us
# each. A product of the head reads its rows at the same rate; launch and ranking take 8 us.
gpu_costs() {
    awk -v tb="$1" -v tl="$2" -v db="$3" -v dl="$4" -v d="$5" -v v="$6" -v td="$7" '
    function pass(bytes, layers, n) {
        read = bytes / 3.36e12; work = n * bytes / 4e14
        return (read > work ? read : work) + layers * 12e-6
    }
    function product(values) { return values * 2 / 3.36e12 + 8e-6 }
    function points(name, sizes, bytes, layers, head,   n, at, i) {
        n = split(sizes, at, " ")
        for (i = 1; i <= n; i++)
            printf "%s %d %.9f\n", name, at[i],
                pass(bytes, layers, at[i]) + (head ? product(v * td) : 0)
    }
    function rows(name,   n, at, i) {
        n = split("256 1024 4096 16384 " v, at, " ")
        for (i = 1; i <= n; i++) printf "%s %d %.9f\n", name, at[i], product(at[i] * d)
    }
    BEGIN {
        print "specrt costs 1\nmachine floors of an H200, nothing was timed\nkey bench/auto.sh"
        points("target", "1 2 4 8 16 32 60", tb, tl, 1)
        points("draft", "1 2 4 8 10 60", db, dl, 0)
        rows("first"); rows("next 1"); rows("next 4"); rows("next 10")
    }' >"$costs"
    echo "sum $(sha256sum <"$costs" | cut -c 1-16)" >>"$costs"
}

name=$1
shift
costs=${COSTS:-$work/pair.costs}
# shellcheck disable=SC2086 # two words
[ -z "${CURVES:-}" ] || python3 bench/curves.py $CURVES >"$costs"
case ${GPU:-} in
qwen) gpu_costs 2.62e9 28 0.72e9 24 896 151936 1536 ;;
smollm2) gpu_costs 2.12e8 30 8e6 1 576 49152 576 ;;
128k) gpu_costs 1.39e10 32 4.4e8 1 4096 128256 4096 ;; # Llama-3-8B and its EAGLE head
esac
fixed=full,static:512,static:1024,static:2048,static:4096,static:8192,static:16384,static:32768
fixed=$fixed,microspec,microspec-paper,static:2048+window,static:512+window+retrieve
policies=${POLICIES:-auto,$fixed}
traces=()
for trace; do traces+=(--trace "$trace"); done
echo "== $name: ${GPU:+floors of a GPU, }$# traces${TREE:+, trees of $TREE}"
if [ -n "${CHOOSE:-}" ]; then
    read -r target draft other <<<"$CHOOSE"
    "$build/bin/specrt-eval" plan --target "$target" --draft "$draft" --trace "$other" -q \
        ${BUNDLE:+--bundle "$BUNDLE"} --costs "$costs" --topk 1 --costs-out "$work/chosen.costs" |
        sed -n 's/^With .* auto drafts from/auto drafts from/p'
    costs=$work/chosen.costs
fi
"$build/bin/specrt-eval" replay "${traces[@]}" ${BUNDLE:+--bundle "$BUNDLE"} --costs "$costs" \
    --policy "$policies" ${TREE:+--tree "$TREE"} -q | sed -n '/^by the costs/,/^$/p'
