# What make calibrate passes to specrt prepare: by default, and of names as users type them.
. "$CLI_TESTS/lib.bash"
mkdir build
ln -s "$CLI_BIN" build/bin
quiet_make() { make -s -C "$root" BUILD="$PWD/build" -o tools -o man -o lib "$@"; }

accepts quiet_make calibrate ARGS="--dry-run --limit 5 --tokens 8"
prints "*decode --target data/sample/target.gguf --draft data/sample/draft.safetensors *generate *\
* --limit 4 --max-tokens 8 *--corpus $PWD/build/sample/answers.jsonl data/corpus/code/ *\
*--schedule=flat *--clusters=64 *--ef-construction=100 *info $PWD/build/sample/model.specb"
accepts quiet_make calibrate CORPUS=data/corpus/qa ARGS="--dry-run"
prints "*--corpus data/corpus/qa --exclude $PWD/build/corpus *compare *"
cp "$root/data/sample/target.gguf" "my model.gguf"
accepts quiet_make calibrate MODEL="$PWD/my model.gguf" ARGS=--dry-run
prints "*--draft '$PWD/my model.gguf' *-o '$PWD/build/my model/model.specb'*"
! grep -q mean-rows ../out || fail "settings of the sample: $(cat ../out)"
accepts quiet_make calibrate MODEL="$PWD/my model.gguf" DRAFT=data/sample/draft.safetensors OUT=x \
    ARGS=--dry-run
prints "*--draft data/sample/draft.safetensors *-o x/model.specb*"
[ -z "$(find build -mindepth 1 -name sample)" ] || fail "a dry run wrote"
! quiet_make calibrate MODEL=a TOKENIZER=b >../out 2>../err || fail "both"
warns "expected MODEL= or TOKENIZER=, found both*"

# A user's string is never text of a shell or of make: names as they are, through both.
names=('a`touch ran`$(touch ran)$(shell touch ran)' "it's "'"q" \ ;&|#' -x)
is_quick && names=("${names[0]}")
for name in "${names[@]}"; do
    mkdir -- "$name"
    cp "$root/data/corpus/legal/constitution.txt" "./$name/text.txt"
    accepts quiet_make calibrate CORPUS="$PWD/$name" TOKENIZER="$TOKENIZER" OUT="$PWD/$name/out" \
        ARGS="--with none"
    [ -s "./$name/out/model.specb" ] || fail "$name: no bundle"
    accepts sh "./$name/out/start.sh"
    [ -s "./$name/out/model.pt" ] || fail "$name: no list"
    for given in MODEL DRAFT TOKENIZER FILE LLAMA; do
        goal=calibrate
        case $given in FILE) goal="models NAME=smollm2" ;; LLAMA) goal=llama ;; esac
        quiet_make $goal "$given=$PWD/none $name" >../out 2>../err && fail "$given=none $name"
        grep -qF -- "none $name: " ../err || { cat ../err; fail "$given=none $name"; }
    done
done
found=$(find "$root" . -maxdepth 1 -name ran)
[ -z "$found" ] || fail "a name was run: $found"

is_quick && exit 0
# Goals that need each other run in order, however they are written.
first=$(quiet_make BUILD=build -n -j 2 llama llama-fetch 2>/dev/null | grep -o -m 1 '[a-z]*\.sh')
[ "$first" = fetch.sh ] || fail "make llama llama-fetch begins with $first"
