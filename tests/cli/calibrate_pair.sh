# `make calibrate` on a target and a drafter: the target writes, its words lead
# the ranks, policies compete.
. "$CLI_TESTS/lib.bash"
require minimal
target=$CLI_TESTS/../../data/sample/target.gguf
draft=$CLI_TESTS/../../data/sample/draft.safetensors
export TOKENS=8 PROMPTS=5 SECTIONS="cograph centroid coral"
# TOKENIZER CORPUS MODEL DRAFT OUT
calibrate() { "$CLI_TESTS/../../tools/calibrate.sh" "$CLI_BIN" "$@"; }

accepts calibrate "" "" "$target" "$draft" pair.specb
warns \
    "*the target answers the prompts in *28 answers*answers again*coral*pair.specb is ready*plots go to pair-compare.html*"
prints \
    "*pair-answers.jsonl * 100 *centroid *cograph *full *static *microspec *successor:256 *static is static:8192*7 turns*all equal"
[ "$(wc -l <pair-answers.jsonl)" = 28 ] || fail "$(wc -l <pair-answers.jsonl) answers"
grep -q "<svg" pair-compare.html || fail "no plots"

# A corpus of the user's stands alone; sections and policies are chosen.
SECTIONS= POLICIES=static accepts calibrate "" "$CLI_TESTS/../../data/corpus/qa" "$target" \
    "$draft" own.specb
[ ! -e own-answers.jsonl ] || fail "answers were written"
prints "*static is static:8192*all equal"
