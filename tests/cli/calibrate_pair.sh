# `make calibrate` on a target and a drafter: the target writes, its words lead
# the ranks, policies compete.
. "$CLI_TESTS/lib.bash"
require minimal
is_brief && skip "calibrate_make.sh runs the same tools"
target=$CLI_TESTS/../../data/sample/target.gguf
draft=$CLI_TESTS/../../data/sample/draft.safetensors
export TOKENS=8 PROMPTS=5 SECTIONS="cograph coral"
# TOKENIZER CORPUS MODEL DRAFT OUT
calibrate() { "$CLI_TESTS/../../tools/calibrate.sh" "$CLI_BIN" "$@"; }

accepts calibrate "" "" "$target" "$draft" pair.specb
warns "*1/6? answers: *ranks: * as 100 of *states: *with its drafter*coral: *6/6? policies: *"
prints "*pair.specb*pair-answers.jsonl*pair-compare.html*ranks *group *full *static *"
prints "*coral *microspec *all equal*Next:*decode --target *--prompt '?*"
[ "$(wc -l <pair-answers.jsonl)" = 28 ] || fail "$(wc -l <pair-answers.jsonl) answers"
grep -q "<svg" pair-compare.html || fail "no plots"

# A corpus of the user's stands alone; sections and policies are chosen.
SECTIONS= POLICIES=static accepts calibrate "" "$CLI_TESTS/../../data/corpus/qa" "$target" \
    "$draft" own.specb
[ ! -e own-answers.jsonl ] || fail "answers were written"
prints "*full *static *all equal*"

# A target alone drafts for itself: it writes the text, states of its own make the sketch, and what
# lists keep is measured on prompts that it did not answer before.
SECTIONS="cograph dynaspec sketch" accepts calibrate "" "" "$target" "" own.specb
warns "*states: *with itself as drafter*dynaspec: *sketch: *policies: *"
prints "*own-answers.jsonl*sketch *of full*MB read*full * 100.0%*sketch:128 *"
prints "*all equal*keeps *% of their *The target drafted for itself*"
prints "*Next:*specrt-bundle export own.specb *"
specrt-bundle info --json own.specb >info
grep -q '"queries":"trace"\|"states":"trace"' info || fail "the sketch is of states made up"
[ "$(wc -l <own-answers.jsonl)" = 28 ] || fail "$(wc -l <own-answers.jsonl) answers"
for file in "$CLI_TESTS"/../../data/prompts/*.jsonl; do
    compared=$(head -n 1 "$file" | sed 's/.*"prompt": *"\([^"\\]*\).*/\1/')
    grep -F "$compared" own-answers.jsonl && fail "an answer is compared on: $compared"
done

# A drafter with a head of its own: what is made is of that head, but for the index, which is
# searched with states of the target.
PROMPTS=2 SECTIONS="centroid sketch hnsw" POLICIES=centroid,sketch:128 accepts calibrate "" \
    "$CLI_TESTS/../../data/corpus/qa" "$target" "${draft%.safetensors}-small.gguf" small.specb
warns "*\[5/5? policies: *"
prints "*centroid *sketch *all equal*"
specrt-bundle info small.specb >info
grep -q '\[32768, 96\]' info || fail "another head than the drafter's: $(cat info)"
exit 0
