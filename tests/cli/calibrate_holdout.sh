# The hold-out is decided by content and seed: not by order, names or shards; and it is not ranked.
. "$CLI_TESTS/lib.bash"
NARRATES=1
for ((i = 0; i < 400; i++)); do
    echo "{\"text\": \"word$i is number $((i * 7919 % 1000)) of all\"}"; done >a.jsonl
sort -R a.jsonl >b.jsonl
count() { accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --domain d --counts-out "$@" -f; }
count c.a --corpus a.jsonl --holdout 0.2
count c.b --corpus b.jsonl --holdout 0.2
diff <(grep -v '^#' c.a) <(grep -v '^#' c.b) || fail "the order matters"
count c.s --corpus a.jsonl --holdout 0.2 --seed 2
cmp -s c.a c.s && fail "the seed does not matter"
share=$(awk '!/^#/ { c += $2; h += $3 } END { print int(100 * h / (c + h)) }' c.a)
[ "$share" -ge 14 ] && [ "$share" -le 26 ] || fail "the hold-out is $share%"
count c.all --corpus a.jsonl --holdout 0
[ "$(awk '!/^#/ { c += $2 + $3 } END { print c }' c.a)" \
    = "$(awk '!/^#/ { c += $2 + $3 } END { print c }' c.all)" ] || fail "tokens were lost"
echo "one document" >one.txt
one() {
    accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus one.txt --size 300 \
        -f -o one.specb "$@"
}
one
warns '*warning: no document was held out, so nothing tells how much of other text the list covers*'
one --holdout 0
[ ! -s ../err ] || fail "warned of what was asked for: $(cat ../err)"
accepts vocabtrim-calibrate --merge c.a --size 300 --json
prints '*"coverage_calibration":0.9*,"coverage_holdout":0.*'
