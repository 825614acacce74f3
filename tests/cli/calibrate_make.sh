# What `make calibrate` runs: on the sample, on parts of its arguments, and on wrong ones.
. "$CLI_TESTS/lib.bash"
require minimal
root=$CLI_TESTS/../..
export TOKENS=8 PROMPTS=5 SECTIONS="cograph centroid"
make_calibrate() { "$root/tools/calibrate.sh" "$CLI_BIN" "$@"; } # TOKENIZER CORPUS MODEL DRAFT OUT

accepts make_calibrate "" "" "" "" sample.specb
for domain in code legal math medical prose qa technical; do prints "*$domain *"; done
prints "*8,192 of 32,758 valid ids*the best of 8192 tokens (of 32768)*"
warns "*sample.specb is ready and sample.html shows its coverage*"
grep -q "<svg" sample.html || fail "no report"

# Again, with a corpus of the user's, one that has a space in its name.
mkdir "my text"
cp "$root/data/corpus/legal/constitution.txt" "my text"
accepts make_calibrate "" "my text" "" "" sample.specb
warns "*no TOKENIZER= or MODEL= given*"
accepts make_calibrate "$TOKENIZER" "$root/data/corpus/qa $root/data/corpus/math" "" "" two.specb
prints "*math *qa *"

refuses 2 "calibrate: CORPUS=nosuch: nosuch: no such file or folder" make_calibrate "" nosuch "" \
    "" x.specb
refuses 2 "calibrate: TOKENIZER=nosuch: no such *" make_calibrate nosuch "" "" "" x.specb
refuses 2 "calibrate: MODEL=nosuch.gguf: no such *" make_calibrate "" "" nosuch.gguf "" x.specb
refuses 2 "calibrate: MODEL=my text: no tokenizer in its folder; *" make_calibrate "" "" "my text" \
    "" x.specb
echo text >notes.txt
refuses 2 "calibrate: OUT=notes.txt exists and is no bundle; *" make_calibrate "" "" "" "" notes.txt
refuses 2 "calibrate: DRAFT=nosuch: no such *" make_calibrate "" "" "" nosuch x.specb
refuses 2 "calibrate: DRAFT=notes.txt needs its target as MODEL=, a GGUF" make_calibrate "" "" "" \
    notes.txt x.specb
TOKENS=none refuses 2 "calibrate: TOKENS=none: expected a number above 0" make_calibrate "" "" "" \
    "" x.specb
