#!/usr/bin/env bash
# replay.sh PAIR (sample, 128k) : what specrt-eval replay estimates from a recording of the whole
# vocabulary, beside what runs under each policy give; and how fast it goes. In the environment: as
# pair.sh; LIMIT (2) prompts a domain of TOKENS (64).
. "$(dirname "$0")/pair.sh"
pair "${1:-sample}"
eval=$build/bin/specrt-eval
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${1:-sample} in
sample) policies="static:1024 static:2048 window:400 static:600+retrieve:64 microspec-paper" ;;
*) policies="static:4096 static:16384 window:1000 microspec" ;;
esac

# record POLICY TREE NAME : decodes, to $work/NAME.trace; prints its own figures.
record() {
    IFS=/ read -r num_steps topk nodes <<<"$2"
    "$eval" record --target "$target" --draft "$draft" --bundle "$bundle" --policy "$1" \
        --prompts data/prompts/*.jsonl --limit "${LIMIT:-2}" --max-tokens "${TOKENS:-64}" \
        --num-steps "$num_steps" --topk "$topk" --num-draft-tokens "$nodes" \
        --json -q -f -o "$work/$3.trace"
}
number() { sed "s/.*\"$1\":\([0-9.]*\).*/\1/"; }

# beside POLICY TREE : a run under the policy, and the estimate.
beside() {
    found=$(record "$1" "$2" policy)
    "$eval" replay --trace "$work/full.trace" --bundle "$bundle" --policy "$1" -q |
        grep -F -m 1 "$1 " | sed 's/^[^~]*~ *//' |
        awk -v policy="$1" -v tree="$2" -v accept="$(number accept_length <<<"$found")" \
            -v coverage="$(number coverage <<<"$found")" '{
            printf "%-24s %9s  %8.3f %8.2f %+6.1f  %8.2f %8s\n",
                policy, tree, accept, $1, 100 * ($1 / accept - 1), 100 * coverage, $3
        }'
}

# rate POLICIES : cycles a second over the last recording 60 times, best of three.
rate() {
    for _ in 1 2 3; do
        "$eval" replay "${traces[@]}" --bundle "$bundle" --threads 1 --policy "$1" 2>&1 >/dev/null |
            sed "s/.*: \(.* cycles under\)/$1: \1/"
    done | awk '{ rate = $(NF - 1); gsub(",", "", rate); print rate "\t" $0 }' |
        sort -n | tail -n 1 | cut -f 2-
}

printf '%-24s %9s  %8s %8s %6s  %8s %8s\n' policy tree run replay % "run %" "replay %"
for tree in 6/1/7 6/10/60; do
    record full $tree full >/dev/null
    for policy in $policies; do beside "$policy" $tree; done
done
echo
traces=()
for ((i = 0; i < 60; i++)); do traces+=(--trace "$work/full.trace"); done
six=static:1024,static:2048,static:4096,window:3072,microspec,static:1024+window:1024
for policy in static:2048 window:3072 microspec $six; do rate "$policy"; done
