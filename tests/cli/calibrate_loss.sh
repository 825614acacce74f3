# --accept-loss is a share of the accept length that no domain loses by held-out text, and --decay
# lets a list follow traffic.
. "$CLI_TESTS/lib.bash"
run() { vocabtrim-calibrate --tokenizer "$TOKENIZER" "$@"; }

# Two domains, of which `rare` needs more ids than `plain` for the same share.
awk 'BEGIN {
    srand(3)
    for (i = 0; i < 400; i++) {
        printf "{\"text\": \"the list of the list of the list %d %d %d of the list\"}\n",
            i % 10, i / 10 % 10, i / 100 >"plain.jsonl"
        printf "{\"text\": \"" >"rare.jsonl"
        for (j = 0; j < 30; j++) printf "%c%c ", 97 + rand() * 26, 97 + rand() * 26 >"rare.jsonl"
        print "\"}" >"rare.jsonl"
    }
}'
accepts run --corpus plain.jsonl rare.jsonl --accept-loss 0.05 --json -o all.specb
has selection.rule=accept_loss selection.value=0.05
warns '* ids: accept length 2.* instead of 2.952, a loss of * in the worst domain, rare.jsonl; *'
size=$(json ../out n_selected)
accepts run --corpus plain.jsonl --accept-loss 0.05 --json -o plain.specb
[ "$(json ../out n_selected)" -lt "$size" ] || fail "a domain more needs no more ids"

# One id fewer loses more: the accept length is 1 + sum of prod of rate x coverage, here by hand.
of_size() {
    accepts run --corpus plain.jsonl rare.jsonl --size "$1" --keep bytes --json -f -o size.specb
    json ../out 'domains[name=rare.jsonl].coverage_holdout'
}
loses() {
    awk -v c="$1" 'BEGIN { x = 0.8 * c; exit !((1 + x + x * x + x * x * x) / 2.952 < 0.95) }'
}
least=$(of_size "$size") fewer=$(of_size $((size - 1)))
! loses "$least" || fail "$size ids cover $least, and lose more than 5%"
loses "$fewer" || fail "$((size - 1)) ids cover $fewer, and would do"

# Bytes are members, unless others are named.
accepts specrt-bundle info all.specb --json
has ranks.n_forced=262
accepts run --corpus rare.jsonl --accept-loss 0.05 --keep 5 --json -o few.specb
has 'selection.keep[0]=5'

# Nothing held out, or too little.
accepts run --corpus rare.jsonl --accept-loss 0.01 --holdout 0 --json -o none.specb
warns '*--accept-loss 0.01: nothing was held out, so the list has all ids; *'
has n_selected=32758
head -n 12 rare.jsonl >short.jsonl
accepts run --corpus short.jsonl --accept-loss 0.01 --json -o short.specb
warns '*--accept-loss 0.01: the text cannot show it; more records of *'

# Traffic that changes: old counts count half.
accepts run --corpus plain.jsonl --counts-out old
accepts run --corpus rare.jsonl --merge old --decay 0.5 --counts-out new
accepts run --merge new --json
awk -F '\t' '/^#domain/ { plain = $NF == "plain.jsonl" }
    /^[0-9]/ && plain { for (i = 2; i <= NF; i++) n += $i } END { print n }' old new >sums
read -r both <sums
accepts run --merge old --json -o old.specb
all=$(json ../out n_tokens)
[ $((both - all)) -ge $((all / 2 - 50)) ] && [ $((both - all)) -le $((all / 2 + 50)) ] ||
    fail "of $all tokens $((both - all)) are left, expected half"
refuses 2 '*--decay goes with --merge*' run --corpus rare.jsonl --decay 0.5 -o x.specb
refuses 2 '*one of --size, --mass, --accept-loss*' run --corpus rare.jsonl --size 9 \
    --accept-loss 0.1 -o x
