#!/usr/bin/env bash
# replay.sh PAIR (sample, 128k) [SETTING=VALUE...] : what specrt-eval replay says of runs, from
# their own recordings and, as an estimate, from one of the whole vocabulary; and how fast it goes.
# LIMIT (2) prompts of a domain, TOKENS (64), POLICIES.
. "$(dirname "$0")/settings.bash"
. "$(dirname "$0")/pair.sh"
which=${words[0]:-sample}
pair "$which"
eval=$build/bin/specrt-eval
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $which in
sample) usual="static:1024 static:2048 window:400 static:600+retrieve:64 microspec-paper
    static:512+successor:256 dynaspec coral centroid sketch:128" ;;
*) usual="static:4096 static:16384 window:1000 microspec
    static:2048+successor:512 dynaspec coral centroid sketch:128" ;;
esac
policies=${policies:-$usual}

# record POLICY TREE NAME : decodes, to $work/NAME.trace; prints its own figures.
record() {
    IFS=/ read -r num_steps topk nodes <<<"$2"
    "$eval" record --target "$target" --draft "$draft" --bundle "$bundle" --policy "$1" \
        --prompts data/prompts/*.jsonl --limit "${limit:-2}" --max-tokens "${tokens:-64}" \
        --num-steps "$num_steps" --topk "$topk" --num-draft-tokens "$nodes" \
        --json -q -f -o "$work/$3.trace"
}

# replay NAME POLICY : figures from a recording.
replay() {
    "$eval" replay --trace "$work/$1.trace" --bundle "$bundle" --model "$target" --policy "$2" \
        --json -q |
        sed 's/{"policy"/\n&/g' | grep -m 1 -F "{\"policy\":\"$2\",\"policy_text\""
}

# three FIGURE : of the run, from its own recording, estimated.
three() {
    for from in "$run" "$own" "$estimate"; do
        grep -o "\"$1\":[0-9.]\+" <<<"$from" | head -n 1 | cut -d : -f 2
    done
}

# beside POLICY TREE : a run under the policy, and what replay says of it.
beside() {
    run=$(record "$1" "$2" own) own=$(replay own "$1") estimate=$(replay full "$1")
    # shellcheck disable=SC2046
    set -- "$1" "$2" $(three accept_length) $(three coverage) $(three shortlist_rows)
    awk -v name="$1" -v tree="$2" -v accept="$3 $4 $5" -v covered="$6 $7 $8" \
        -v rows="$9 ${10} ${11}" '
        function off(x, y) { return sprintf("%+.1f%%", 100 * (x / y - 1)) }
        BEGIN {
            split(accept, a, " "); split(covered, c, " "); split(rows, r, " ")
            printf "%-25s %7s  %6.3f %6.3f %6s  %6.2f %6.2f %6.2f  %8.1f %8.1f %6s\n",
                name, tree, a[1], a[3], off(a[3], a[1]), 100 * c[1], 100 * c[2],
                100 * c[3], r[1], r[2], off(r[3], r[1])
        }'
}

# rate POLICIES : cycles a second over a recording 300 times, the bundle's
# opening included; best of two.
rate() {
    for _ in 1 2; do
        "$eval" replay "${traces[@]}" --bundle "$bundle" --threads 1 --policy "$1" 2>&1 >/dev/null |
            sed "s/.*: \(.* cycles under\)/$1: \1/"
    done | awk '{ rate = $(NF - 1); gsub(",", "", rate); print rate "\t" $0 }' |
        sort -n | tail -n 1 | cut -f 2-
}

printf '%-25s %7s  %-20s  %-20s  %-24s\n' "" "" "accept length" "covered %" "rows of the head"
printf '%-25s %7s  %6s %6s %6s  %6s %6s %6s  %8s %8s %6s\n' policy tree run full "" run own full \
    run own full
for tree in 6/1/7 6/10/60; do
    record full $tree full >/dev/null
    for policy in $policies; do beside "$policy" $tree; done
    mv "$work/full.trace" "$work/${tree//\//-}.trace"
done
six=static:1024,static:2048,static:4096,window:3072,microspec,static:1024+window:1024
for tree in 6/1/7 6/10/60; do
    traces=()
    for ((i = 0; i < 300; i++)); do traces+=(--trace "$work/${tree//\//-}.trace"); done
    printf '\n%s\n' $tree
    for policy in static:$((n_vocab / 4)) window:3072 microspec $six; do rate "$policy"; done
done
