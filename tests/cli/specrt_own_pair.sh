# specrt prepare --for specrt on a target and a drafter: the target writes, its words lead the
# ranks, policies compete on other prompts; and on a target alone.
. "$CLI_TESTS/lib.bash"
is_quick && left_to_all
asked=(--prompts "$root"/data/prompts/*.jsonl --tokens 4 --limit 2)
own() { specrt prepare --for specrt --target "$target" "$@"; }
few=@clusters=32@iterations=2 # k-means would take half of the time

pair() {
    own --drafter "$draft" "${asked[@]}" --fill "$root"/data/corpus/*/ \
        --with graph,clusters$few,coral$few --tokens 8 --limit 3 \
        -o pair "$@" # a router is trained on 64 positions or more
}
accepts pair
warns "*1/9? try: *answers: *ranks: *graph: *clusters: *states: *coral: *compare: *9/9? info: *"
warns "*pair/model.specb: 8,192 tokens*pair/coverage.html*pair/compare.html*pair/start.sh*"
prints "*ranks *8,192 of 32,758 valid ids*"
# Ordered by speed.
for row in centroid coral evospec full microspec static; do
    grep -qE "^$row[^ ]* +[0-9]|is $row\$" ../out || { cat ../out; fail "no row of $row"; }
done
prints "*all equal*Next:*decode --target *--prompt '*"
[ "$(wc -l <pair/answers.jsonl)" = 14 ] || fail "$(wc -l <pair/answers.jsonl) answers"
for page in coverage compare; do
    grep -q "<svg" pair/$page.html || fail "no plots on $page.html"
done
for file in "$root"/data/prompts/*.jsonl; do
    compared=$(json "$file" [0].prompt | sed 's/[\\"].*//')
    grep -F "$compared" pair/answers.jsonl && fail "an answer is compared on: $compared"
done
# The command decodes with what the comparison recommends.
best=$(json pair/compare.json recommended)
how="*/model.specb --policy $best \"\$@\""
[ "$best" != plain ] || how="* --prompt 'Why is the sky blue?' \"\$@\""
case $(tail -n 1 pair/start.sh | sed "s/'$best'/$best/") in
$how) ;;
*) fail "recommended: $best; $(cat pair/start.sh)" ;;
esac
cp ../out first
accepts sh pair/start.sh
[ -s ../out ] || fail "decodes nothing"

# Another run finds all done and says the same. What is gone is made again.
accepts pair
[ "$(grep -c 'done before' ../err)" = 9 ] || fail "$(cat ../err)"
same first ../out
rm pair/compare.json
accepts pair --json
[ "$(grep -c 'done before' ../err)" = 7 ] || fail "$(cat ../err)"
has output=pair 'command=*decode *'
[ -s pair/compare.json ] || fail "no comparison"

# Text of the user's stands alone; sections and policies are chosen.
accepts own --drafter "$draft" --text "$root/data/corpus/qa" "${asked[@]}" --with none \
    --policy static -o text
[ ! -e text/answers.jsonl ] || fail "answers were written"
prints "*full *static *all equal*"

# A target alone drafts for itself: states of its own make the sketch, and what lists keep is
# measured on prompts that it did not answer before.
accepts own "${asked[@]}" --with graph,dynaspec$few,sketch -o own
warns "*states: *dynaspec: *sketch: *compare: *"
prints "*sketch *full *sketch:128 *all equal*Next:*specrt-bundle export *own/model.specb *"
prints "*keeps *% of their *The target drafted for itself*"
specrt-bundle info --json own/model.specb >info
grep -q '"queries":"trace"\|"states":"trace"' info || fail "the sketch is of states made up"
[ "$(wc -l <own/answers.jsonl)" = 7 ] || fail "$(wc -l <own/answers.jsonl) answers"

# A drafter with a head of its own: what is made is of that head.
accepts own --drafter "$sample/draft-small.gguf" --text "$root/data/corpus/qa" "${asked[@]}" \
    --with clusters$few,sketch,index@m=4@ef-construction=16@min-recall=0 \
    --policy centroid,sketch:128 -o small
prints "*centroid *sketch:128 *all equal*"
specrt-bundle info small/model.specb >info
grep -q '\[32768, 96\]' info || fail "another head than the drafter's: $(cat info)"

# Prompts of one domain.
accepts own --drafter "$draft" --prompts "$root/data/prompts/code.jsonl" --limit 5 --tokens 4 \
    --with none --policy static -o one
prints "*full *static *These prompts name fewer than two tasks*all equal*"
