# What `make calibrate` runs: on the sample, on parts of its arguments, and on wrong ones.
. "$CLI_TESTS/lib.bash"
root=$CLI_TESTS/../..
export TOKENS=$(most 8 4) PROMPTS=$(most 5 2) SECTIONS="cograph centroid"
mkdir build
ln -s "$CLI_BIN" build/bin
make_calibrate() { "$root/tools/calibrate.sh" build/bin "$@"; } # TOKENIZER CORPUS MODEL DRAFT OUT

accepts make_calibrate "" "" "" "" ""
warns "*/5? answers: *2/5? ranks: *3/5? cograph: *4/5? centroid: *5/5? policies: *"
prints "*build/sample.specb*build/sample.html*build/sample-answers.jsonl*build/sample-compare.html*"
prints "*ranks *8,192 of 32,758 valid ids *coverage *centroid *cograph *"
prints "*x plain*full *static *"
prints "*all equal*Next:*decode --target *--max-tokens $TOKENS --prompt '?*"
grep -q "<svg" build/sample.html || fail "no report"
sample=$(cksum build/sample.* build/sample-*)

# Again, with a corpus of the user's, one that has a space in its name.
mkdir "my text"
cp "$root/data/corpus/legal/constitution.txt" "my text"
accepts make_calibrate "" "my text" "" "" ""
warns "*no TOKENIZER= or MODEL= given*"
prints "*build/corpus.specb*export build/corpus.specb*"
accepts make_calibrate "$TOKENIZER" "$root/data/corpus/qa $root/data/corpus/math" "" "" two.specb
specrt-bundle info two.specb >info
grep -q math info && grep -q qa info || fail "two folders are not two domains"

# A model that the engine cannot run has a tokenizer and a head; without a head its tokenizer will
# do. What it is called leaves the sample's files alone.
target=$root/data/sample/target.gguf
instead() { LC_ALL=C sed "$1" "$target"; }
instead 's/\(general.architecture............\)llama/\1mamba/' >sample.gguf
SECTIONS=cograph accepts make_calibrate "" "" sample.gguf "" ""
warns "calibrate: the engine cannot run sample.gguf: general.architecture: 'mamba' is not *; \
counting the sample text, not what your model writes
?1/2? ranks: *2/2? cograph: *"
prints "*build/sample_model.specb*export build/sample_model.specb*"
[ "$sample" = "$(cksum build/sample.* build/sample-*)" ] || fail "the sample's files changed"
instead 's/token_embd/token_embx/' >headless.gguf
accepts make_calibrate "" "$root/data/corpus/qa" headless.gguf "" ""
warns "calibrate: the engine cannot run headless.gguf: *; counting *corpus/qa
?1/2? ranks: *2/2? cograph: *"
SECTIONS= accepts make_calibrate "" "" "$root/data/sample/draft.safetensors" "" drafter.specb
warns "calibrate: the engine runs GGUF, which *draft.safetensors is not; counting the sample *"
prints "*ranks *8,192 of 32,758 valid ids*"

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

# What is no model, holds no tokenizer or is cut is told before anything is decoded; so is a drafter
# of another vocabulary, or none.
cp notes.txt notes.gguf
for file in notes.txt notes.gguf; do
    refuses 3 "calibrate: MODEL=$file: expected a GGUF, a .safetensors file or a *" \
        make_calibrate "" "" $file "" ""
done
instead 's/tokenizer[.]ggml/tokenizer.gone/' >untold.gguf
refuses 3 "*: untold.gguf: no tokenizer in this GGUF; *" make_calibrate "" "" untold.gguf "" ""
head -c 3000000 "$target" >cut.gguf
refuses 3 "*: cut.gguf: *" make_calibrate "" "" cut.gguf "" ""
refuses 3 "*: notes.txt: not a model; *" make_calibrate "" "" "$target" notes.txt ""
mkdir other
cp "$root/data/sample/draft.safetensors" other
sed 's/32768/49152/' "$root/data/sample/config.json" >other/config.json
refuses 3 "*config.json: vocab_size: expected the target's 32768, found 49152; *" make_calibrate \
    "" "" "$target" other/draft.safetensors ""
TMPDIR=$PWD/nowhere refuses 1 "mktemp: *nowhere*" make_calibrate "" "" "$target" "" ""

# A user's string is never text of a shell or of make: names as they are, through both.
names=('a`touch ran`$(touch ran)$(shell touch ran)' "it's "'"q" \ ;&|#' -x)
quiet_make() { make -s -C "$root" BUILD="$(cd "$CLI_BIN/.." && pwd)" -o tools -o man -o lib "$@"; }
export SECTIONS=
for name in "${names[@]}"; do
    mkdir -- "$name"
    cp "$root/data/corpus/legal/constitution.txt" "./$name/text.txt"
    accepts quiet_make calibrate CORPUS="$PWD/$name" TOKENIZER="$TOKENIZER" OUT="$PWD/$name/x.specb"
    [ -s "./$name/x.specb" ] || fail "$name: no bundle"
    accepts make_calibrate "" "$name" "" "" "$name.specb"
    [ -s "./$name.specb" ] || fail "$name.specb: no bundle"
    [ "$(tail -n 1 ../out)" = " export PATH=$PWD/build/bin:\"\$PATH\"" ] || fail "$(cat ../out)"
    for given in MODEL DRAFT TOKENIZER FILE LLAMA; do
        goal=calibrate
        case $given in FILE) goal="models NAME=smollm2" ;; LLAMA) goal=llama ;; esac
        quiet_make $goal "$given=$PWD/none $name" >../out 2>../err && fail "$given=none $name"
        grep -qF -- "none $name: " ../err || { cat ../err; fail "$given=none $name"; }
    done
done
found=$(find "$root" . -maxdepth 1 -name ran)
[ -z "$found" ] || fail "a name was run: $found"

# Goals that need each other run in order, however they are written.
first=$(quiet_make -n -j 2 llama llama-fetch 2>/dev/null | grep -o -m 1 '[a-z]*\.sh')
[ "$first" = fetch.sh ] || fail "make llama llama-fetch begins with $first"
