# specrt prepare --for specrt: which commands it runs, what it leaves out, and what it refuses.
. "$CLI_TESTS/lib.bash"
ln -s "$CLI_TESTS/../../data" data # a path that no command quotes, wherever the checkout is
sample=data/sample target=$sample/target.gguf draft=$sample/draft.safetensors
text=data/corpus/legal/constitution.txt
prompts=("data/prompts/code.jsonl" "data/prompts/qa.jsonl")
own() { specrt prepare --for specrt "$@"; }

# Four fifths of the prompts are answered, and one fifth is kept for comparing; a token of an answer
# counts as 100 of other text.
plan() { accepts own --target "$target" --prompts "${prompts[@]}" --dry-run -o x "$@"; }
plan --drafter "$draft" --fill "$text"
warns "*1/12\] try*2/12\] answers*3/12\] ranks*4/12\] graph*5/12\] clusters*6/12\] states*7/12\] \
dynaspec*8/12\] coral*9/12\] sketch*10/12\] index*11/12\] compare*12/12\] info*"
prints "*decode --target $target --draft $draft --policy full *\
generate --target $target --prompts ${prompts[*]} --skip-every 5 --limit 8 --max-tokens 48 *\
*vocabtrim-calibrate * --corpus x/answers.jsonl $text *--model $target --weights \
x/answers.jsonl:100 *\
*record --target $target --draft $draft * --skip-every 5 --limit 8 *-o x/states.trace*\
*--router dynaspec * --trace x/states.trace *--min-recall 0.9*hnsw-build --model $target *\
*compare * --policy static,*,hybrid,microspec,evospec,centroid+retrieve@graph=off * \
--every 5 --limit 2 --max-tokens 48 *-o x/compare.json*specrt-bundle info x/model.specb"
[ ! -e x ] || fail "a dry run wrote"
# With text of its own the target answers nothing to count; what is chosen is passed on.
plan --drafter "$draft" --text "$text" --with sketch@states=100,coral@clusters=64@mean-rows=1024 \
    --policy static --limit 11 --tokens 7 --seed 3
prints "*--corpus $text *--model $target *--limit 8 --max-tokens 7 *--router coral * --seed 3 \
--clusters=64 --mean-rows=1024 *sketch-build * --seed 3 --states=100 *--policy static *\
--every 5 --limit 3 --max-tokens 7 *"
! grep -q 'answers\|weights\|graph' ../out || fail "$(cat ../out)"
# No policy, no comparison; no prompts, nothing that is decoded but to try.
plan --text "$text" --policy none
! grep -q 'eval compare' ../out || fail "$(cat ../out)"
accepts own --target "$target" --text "$text" --dry-run -o x
[ "$(grep -c specrt-eval ../out)" = 1 ] || fail "$(cat ../out)"
# Sections are of the head that drafts, an index of the target's alone.
plan --text "$text" --drafter "$sample/draft-small.gguf"
prints "*--model $sample/draft-small.gguf *sketch-build --model $sample/draft-small.gguf *"
! grep -q hnsw-build ../out || fail "an index of another head: $(cat ../out)"
plan --text "$text" --drafter "$sample/mtp.safetensors"
prints "*--model $target *sketch-build --model $target *hnsw-build *"
# A target alone is its own drafter; what no list is shorter by is not compared.
plan --text "$text"
prints "*record --target $target --draft $target *compare *,hybrid --report *"
# A large target is slow: a core reads 3 GB in a second, here 240 times a GiB.
cp "$target" large.gguf
truncate -s 1G large.gguf
accepts own --target large.gguf --prompts "${prompts[0]}" --limit 10 --tokens 30 --dry-run -o x
seconds=$(awk -v n="$(getconf _NPROCESSORS_ONLN)" 'BEGIN { printf "%.0f", 85.9 / n }')
warns "*answers*(about $seconds s)*states*(about *)*compare*(about *)*"
rm large.gguf

# What the engine does not run has a tokenizer, and perhaps a head to make clusters of.
instead() { LC_ALL=C sed "$1" "$target"; }
instead 's/\(general.architecture............\)llama/\1mamba/' >mamba.gguf
mamba() {
    accepts own --target mamba.gguf --prompts "${prompts[@]}" --fill "$text" -o mamba \
        --with graph,clusters$(most "" "" @clusters=64@iterations=2),dynaspec,coral,sketch,index
}
mamba
warns "*1/12\] try*mamba.gguf: general.architecture: 'mamba' is not *try is left out*: mamba.gguf: \
the engine does not run it, so it answers no prompts: lists alone*2/5\] ranks*4/5\] clusters*"
prints "*ranks *clusters *$(sh_word "$CLI_BIN/specrt-bundle") export $PWD/mamba/model.specb \
--format sglang-pt *"
accepts sh mamba/start.sh
[ -s mamba/model.pt ] || fail "no list"
mamba
[ "$(grep -c 'done before\|left out before' ../err)" = 5 ] || fail "$(cat ../err)"
own --target mamba.gguf --prompts "${prompts[@]}" -o none >../out 2>../err
[ $? = 2 ] || fail "answers of nobody: $(cat ../out ../err)"
warns "*: expected --text or --fill, *"
instead 's/token_embd/token_embx/' >headless.gguf
accepts own --target headless.gguf --text "$text" -o headless
warns "*try is left out*2/4\] ranks*3/4\] graph*4/4\] info*"
accepts own --target "$TOKENIZER" --prompts "${prompts[@]}" --fill "$text" -o list
warns "*tokenizer.json: the engine does not run it*1/3\] ranks*2/3\] graph*3/3\] info*"
prints "*ranks *8,192 of 32,758 valid ids*Next:*"
# A damaged bundle is made again, and so is a page that is gone; sections of other runs go.
head -c 1000 list/model.specb >cut && mv cut list/model.specb
accepts own --target "$TOKENIZER" --text "$text" --with none -o list
accepts specrt-bundle verify list/model.specb
accepts specrt-bundle info list/model.specb
! grep -q cograph ../out || fail "a graph of other text: $(cat ../out)"
# A section that a tool does not reach is left out, by later runs, too.
accepts own --target "$target" --prompts "${prompts[0]}" --text "$text" --limit 2 --tokens 4 \
    --with index@m=2@ef-construction=8@min-recall=1 --policy none -o few
warns "*index is left out*info*"
accepts own --target "$target" --prompts "${prompts[0]}" --text "$text" --limit 2 --tokens 4 \
    --with index@m=2@ef-construction=8@min-recall=1 --policy none -o few --json
[ "$(grep -c 'done before' ../err)" = 4 ] || fail "$(cat ../err)"
warns "*index*(left out before)*"
has output=few bundle=few/model.specb drafter=null n_selected=8192

refuses 2 "*expected --text or --prompts with --for specrt" own --target "$target" -o x
refuses 2 "*expected --text or --fill, found both*" own --target "$target" --text "$text" \
    --prompts "${prompts[@]}" --fill "$text" -o x
refuses 2 "*--fill: expected --prompts with it" own --target "$target" --text "$text" \
    --for text --drafter "$draft" --fill "$text" -o x
refuses 2 "*--endpoint: expected --prompts alone*" own --target "$target" --endpoint http://a \
    --prompts "${prompts[@]}" -o x
refuses 2 "*--limit, --tokens, --policy: expected --for specrt*" specrt prepare --for vllm \
    --target "$target" --drafter "$draft" --text "$text" --limit 3 -o x
refuses 2 "*--with: expected graph, *, dynaspec, *or none, found routes@a=1" own \
    --target "$target" --text "$text" --with graph,routes@a=1 -o x
own --target "$TOKENIZER" --text "$text" --with graph@nosuch=1 -o x >../out 2>../err
[ $? = 2 ] && grep -q 'cograph-build: unknown option .--nosuch=1' ../err || fail "$(cat ../err)"
rm -r x # the ranks were finished
refuses 1 "*: nosuch: cannot open: *" own --target "$target" --text nosuch -o x
refuses 1 "*: nosuch.gguf: cannot open: *" own --target nosuch.gguf --text "$text" -o x
refuses 1 "*: nosuch.gguf: cannot open: *" own --target "$target" --drafter nosuch.gguf \
    --text "$text" -o x
refuses 2 "*--target $TOKENIZER: expected a GGUF*" own --target "$TOKENIZER" --drafter "$draft" \
    --text "$text" -o x
echo text >notes.txt
refuses 1 "*: notes.txt: expected a folder, found a file" own --target "$target" --text "$text" \
    -o notes.txt
# What is no model, holds no tokenizer or is cut is told before anything is decoded; so is a drafter
# of another vocabulary, or none.
cp notes.txt notes.gguf
for file in notes.txt notes.gguf; do
    refuses 3 "*: $file: not a tokenizer; *" own --target $file --text "$text" -o x
done
instead 's/tokenizer[.]ggml/tokenizer.gone/' >untold.gguf
refuses 3 "*: untold.gguf: no tokenizer in this GGUF; *" own --target untold.gguf --text "$text" \
    -o x
head -c 3000000 "$target" >cut.gguf
refuses 3 "*: cut.gguf: *" own --target cut.gguf --text "$text" -o x
refuses 3 "*: notes.txt: not a model; *" own --target "$target" --drafter notes.txt --text "$text" \
    -o x
mkdir other
cp "$draft" other
sed 's/32768/49152/' "$sample/config.json" >other/config.json
refuses 3 "*config.json: vocab_size: expected the target's 32768, found 49152; *" own -q \
    --target "$target" --drafter other/draft.safetensors --text "$text" -o x
[ ! -e x ] || fail "a folder of nothing: $(find x)"
