# From a target's folder, an EAGLE drafter and text to a folder that engines load; steps are
# done once.
. "$CLI_TESTS/lib.bash"
mkdir target eagle3 eagle model text
cp "$TOKENIZER" target/tokenizer.json
cp "$CLI_TESTS"/../../data/corpus/code/c.txt text/
vocab='"vocab_size": 32768'
config() { echo "{\"architectures\": [\"$1\"], $vocab${2:-}}"; }
config LlamaForCausalLM ', "hidden_size": 1' >target/config.json
config LlamaForCausalLMEagle3 ', "draft_vocab_size": 600' >eagle3/config.json
cp target/config.json model/
safetensors model/model.safetensors model.layers.0.x:BF16:1:0000 lm_head.weight:BF16:2,1:00000000
zeros() { printf '%0*d' "$1" 0; }
fc=fc.weight:BF16:1,3:000000000000
# Rows for ids 0 to 597 and for the terminators.
safetensors eagle3/model.safetensors midlayer.x:BF16:1:0000 "$fc" \
    "d2t:I64:600:$(zeros 9568)$(i64 $((32753 - 598)) $((32761 - 599)))" \
    "lm_head.weight:BF16:600,1:$(zeros 2400)"
config LlamaForCausalLMEagle >eagle/config.json
safetensors eagle/model.safetensors layers.0.x:BF16:1:0000 fc.weight:BF16:1,2:00000000
prepare() { specrt prepare --target target --drafter "$@"; }

accepts prepare eagle3 --text text --for vllm --size 300 -o out
prints "vllm serve $PWD/target --speculative-config*eagle3*$PWD/out/drafter*"
warns '*\[1/5\] drafter*\[2/5\] ranks*\[3/5\] graph*\[4/5\] cut*\[5/5\] check*'
warns '*out/drafter: the drafter, its head cut from 600 to 300 rows*'
[ -x out/start.sh ] || fail "start.sh is not executable"
same <(tail -n 1 out/start.sh) <(sed 's/$/ "$@"/' ../out)
holds out/drafter/config.json draft_vocab_size=300
accepts specrt-bundle verify out/model.specb
cp out/model.specb first.specb

# A second run finds all done. A change of the size repeats from there; of the text, everything.
accepts prepare eagle3 --text text --for vllm --size 300 -o out --json
has output=out n_selected=300 n_rows=300 n_rows_before=600 cut=true coverage_low=null n_steps=5 \
    'head_share_draft=0.*' head_share_cycle=null 'command=vllm serve *'
[ "$(grep -c 'done before' ../err)" = 5 ] || fail "$(cat ../err)"
same first.specb out/model.specb
touch -d 2001-01-01 text/*
accepts prepare eagle3 --text text --for vllm --size 300 -o out
! grep 'done before' ../err | grep -v "drafter: check" || fail "kept what changed: $(cat ../err)"
same first.specb out/model.specb
# What was interrupted after the second step goes on with the third.
rm -r out/drafter out/specrt-steps/cut.key out/specrt-steps/check.key
accepts prepare eagle3 --text text --for vllm --size 300 -o out
[ "$(grep -c 'done before' ../err)" = 3 ] || fail "$(cat ../err)"

# SGLang takes a list for an EAGLE-2 head; vLLM takes it by the plug-in, and the drafter stays
# as it is.
accepts prepare eagle --text text --for sglang --size 300 --with none -o map
prints '*--speculative-algorithm EAGLE *--speculative-token-map */map/drafter/token_map.pt'
[ -s map/drafter/token_map.pt ] || fail "no token map"
# MTP layers alone stay as they are, too: SGLang reads the list beside them.
mkdir mtp && config Qwen3_5ForCausalLM ', "hidden_size": 1' >mtp/config.json
safetensors mtp/model.safetensors mtp.fc.weight:BF16:1,2:00000000 \
    mtp.layers.0.input_layernorm.weight:BF16:1:0000
accepts prepare mtp --text text --for sglang --size 300 --with none --by-language --balance -o ids
prints '*-algorithm NEXTN *-draft-model-path */mtp --speculative-token-map */ids/token_map.pt'
accepts specrt-bundle export ids/model.specb --format sglang-pt -o list.pt
same list.pt ids/token_map.pt
accepts specrt-bundle info ids/model.specb
prints '*text/Latin*'
# vLLM reads the bundle by our plug-in; layers of the target itself need no folder.
accepts prepare mtp --text text --for vllm --size 300 --with none -o layers
prints 'env SPECRT_TOKEN_MAP=*/layers/model.specb vllm serve *"method":"mtp","model":"*/mtp"*'
cp -r target both
safetensors both/model.safetensors model.layers.0.x:BF16:1:0000 mtp.fc.weight:BF16:1,2:00000000 \
    mtp.layers.0.input_layernorm.weight:BF16:1:0000 lm_head.weight:BF16:2,1:00000000
accepts specrt prepare --target both --drafter both --text text --for vllm --size 300 \
    --with none -o mine
prints 'env SPECRT_TOKEN_MAP=*/mine/model.specb vllm serve */both *{"method":"mtp","num_*'
# Gemma 4's drafters are MTP to vLLM, and those with an ordered head take no list.
mkdir gemma && safetensors gemma/model.safetensors "lm_head.weight:BF16:32768,1:$(zeros 131072)"
gemma4() { echo "{\"model_type\": \"gemma4_assistant\", \"text_config\": {$vocab}${1:-}}"; }
gemma4 >gemma/config.json
accepts prepare gemma --text text --for vllm --size 300 --with none -o dense
prints 'env SPECRT_TOKEN_MAP=*/dense/model.specb vllm serve *"method":"mtp","model":"*/gemma"*'
refuses 2 '*gemma: is a drafter of Gemma 4: SGLang scores *' prepare gemma --text text \
    --for sglang -o x
gemma4 ', "use_ordered_embeddings": true' >gemma/config.json
refuses 2 '*gemma: has an ordered head, which reads few rows already; start vLLM without a list' \
    prepare gemma --text text --for vllm -o x
accepts prepare eagle --text text --for vllm --size 300 --with none -o plugin
prints 'env SPECRT_TOKEN_MAP=*/plugin/model.specb*'
prints '* vllm serve *target*"model":"*/eagle"*'
[ ! -e plugin/drafter ] || fail "plugin/drafter is there"
# No engine loads a file that start.sh would name; what is exported may be one.
refuses 2 "*eagle/model.safetensors: expected the drafter's folder, which vllm loads; found a *" \
    prepare eagle/model.safetensors --text text --for vllm -o x
refuses 2 "*mtp/model.safetensors: expected the drafter's folder, which sglang loads; found a *" \
    prepare mtp/model.safetensors --text text --for sglang -o x
accepts prepare eagle/model.safetensors --text text --for sglang --dry-run -o dry
accepts prepare eagle3 --text text --for vllm --mass 0.5 --dry-run -o dry
prints '*--tokenizer target --corpus text --exclude dry --mass 0.5*specrt-bundle check dry/drafter*'
accepts prepare eagle3 --text text --for vllm --accept-loss 0.01 --dry-run -o dry
prints '*--exclude dry --accept-loss 0.01*'
[ ! -e dry ] || fail "a dry run wrote"
# It says how long the steps that are not done take, which grows with the text.
warns '*ranks*(about 1 s)*specrt: about [0-9]* s on an idle machine'
mkdir long && truncate -s 1G long/text.jsonl # a TiB, in files that mutate.py allows
for i in 1 2 3 4 5 6 7 8 9 10; do cp -rl long half && mv half long/$i; done
accepts prepare eagle3 --text long --for vllm --dry-run -o dry
warns '*ranks*(about [0-9]* min)*graph*(about [0-9]* min)*about [0-9]* min on an idle machine'
# A TiB at 90 MB/s and 15 MB/s on each core.
awk -v cores="$(getconf _NPROCESSORS_ONLN)" '
    function near(found, all) { return (found - all / cores) ^ 2 < 1 }
    /min\)$/ { sub(/.*about /, ""); n[++k] = $1 }
    /idle machine$/ { sub(/.*about /, ""); sum = $1 }
    END { exit !(near(n[1], 203.6) && near(n[2], 1221.7) && near(sum, 1425.3)) }' ../err ||
    fail "$(getconf _NPROCESSORS_ONLN) cores: $(cat ../err)"
accepts prepare eagle3 --text text --for vllm --size 300 --dry-run -o out
warns '*ranks*(done before)*'
! grep -q about ../err || fail "time for what is done: $(cat ../err)"
rm -r long
# Folders are looked into sixteen deep.
deep=deep$(printf '/%s' {1..16}) && mkdir -p "$deep" && truncate -s 1G "$deep/text.jsonl"
accepts prepare eagle3 --text deep --for vllm --dry-run -o dry
! grep -q 'ranks.*about' ../err || fail "counted what is too deep: $(cat ../err)"
mv "$deep/text.jsonl" "${deep%/*}"
accepts prepare eagle3 --text deep --for vllm --dry-run -o dry
grep -q 'ranks.*about' ../err || fail "did not count sixteen folders: $(cat ../err)"
rm -r deep

# For llama.cpp: an EAGLE-3 head becomes a GGUF, which is cut like any other; a draft model stays
# as it is, and our program drafts from what the bundle has.
mkdir head && ln -s "$CLI_TESTS/../../data/sample" sample # of a path that no command quotes
sample=sample target=sample/target.gguf
"$CLI_BIN/../tests/eagle3_head" make "$target" head/model.safetensors 1 || fail "no head"
config LlamaForCausalLMEagle3 >head/config.json
for_llama() { specrt prepare --target "$target" --text text --for llama.cpp --size 300 "$@"; }
accepts for_llama --drafter head --with none -o gguf
prints "llama-server -m $(sh_word "$(realpath "$target")") -md $PWD/gguf/drafter.gguf \
--spec-type draft-eagle3"
warns '*\[2/4\] ranks*\[3/4\] cut*\[4/4\] check*'
accepts for_llama --drafter gguf/drafter.gguf --with none --size 100 -o smaller
prints "llama-server * -md $PWD/smaller/drafter.gguf --spec-type draft-eagle3"
# A drafter's kind is told by its name for itself, and no name is guessed.
sed 's/eagle3/gemma3/g' gguf/drafter.gguf >gemma3.gguf
refuses 3 '*gemma3.gguf: general.architecture: expected eagle3 or dflash*found gemma3*' \
    for_llama --drafter gemma3.gguf --with none -o x
# Block drafters: both heads are cut, and the engine is told how many tokens a block drafts.
sed 's/eagle3/dflash/g' gguf/drafter.gguf >dflash.gguf
accepts for_llama --drafter dflash.gguf --with none --size 100 -o dflash
prints "* -md $PWD/dflash/drafter.gguf --spec-type draft-dflash --spec-draft-n-max 3"
refuses 2 '*is a DFlash drafter: the engine runs DFlash and DSpark drafters from safetensors; *' \
    specrt prepare --target "$target" --drafter dflash.gguf --text text --for specrt -o x
# Every wrong input is refused in one line, before anything is written.
for lacks in '--target' '--for --target target' '-o --target target --for vllm' \
    '--drafter --target target --for vllm -o x' \
    '--text --target target --for vllm -o x --drafter eagle3'; do
    refuses 2 "*expected --target, --drafter, --text or --endpoint, --for and -o, found no \
${lacks%% *}" specrt prepare $(echo "$lacks" | cut -s -d ' ' -f 2-)
done
ln -s "$sample/target.gguf" same.gguf
refuses 2 "*--drafter same.gguf: expected a smaller model or MTP layers, found the target, which \
has no such layers*" for_llama --drafter same.gguf -o x
refuses 2 '*--for: expected vllm, sglang, llama.cpp, text or specrt, found tgi*' \
    prepare eagle3 --text text --for tgi -o x
refuses 2 '*--text, --prompts: expected at most 32 paths' \
    prepare eagle3 --text $(yes text | head -n 33) --for vllm -o x
refuses 2 '*expected one of --size, --mass and --accept-loss, found two*' \
    prepare eagle3 --text text --for vllm --size 9 --mass 0.5 -o x
refuses 2 '*--with: expected graph, sketch, clusters or none, found grap*' \
    prepare eagle3 --text text --for vllm --with grap -o x
refuses 2 '*--with: expected graph, sketch, clusters or none, found graphs' \
    prepare eagle3 --text text --for vllm --with sketch,graphs -o x
refuses 1 '*missing: *No such file*' \
    specrt prepare --target missing --drafter eagle3 --text text --for vllm -o x
refuses 1 '*missing*' prepare missing --text text --for vllm -o x
refuses 3 '*text*' prepare text --text text --for vllm -o x
refuses 2 '*expected a folder of safetensors, which vllm loads; found a GGUF*' \
    prepare "$CLI_TESTS/../../data/sample/target.gguf" --text text --for vllm -o x
refuses 2 '*is a model of its own: SGLang scores a draft model by its whole vocabulary; expected*' \
    prepare model --text text --for sglang -o x
refuses 2 '*expected --endpoint and --prompts together*' \
    prepare eagle3 --endpoint http://localhost/v1 --for vllm -o x
refuses 1 '*text/c.txt: expected a folder, found a file' \
    prepare eagle3 --text text --for vllm -o text/c.txt
mkdir empty
refuses 3 '*empty: no model inside; expected a .gguf, a .safetensors or*' \
    prepare empty --text text --for vllm -o x
cp -r eagle3 no-json && echo '{' >no-json/config.json
refuses 3 '*no-json/config.json: expected a JSON object*' \
    prepare no-json --text text --for vllm -o x
cp -r eagle3 cut && head -c 2000 eagle3/model.safetensors >cut/model.safetensors
refuses 3 '*cut/model.safetensors: tensor "d2t": ends at byte*is the download complete*' \
    prepare cut --text text --for vllm -o x

# stops CODE PATTERN COMMAND... : what a tool refuses ends the work with its line and code, and
# nothing looks finished.
stops() {
    local code=$1 pattern=$2 found; shift 2
    "$@" -q -o stopped >../out 2>../err
    found=$?
    [ $found = "$code" ] || fail "exit $found, expected $code: $(cat ../err)"
    [ "$(grep -vcE ': (-h shows the options|warning: .*)$' ../err)" = 1 ] || fail "$(cat ../err)"
    warns "$pattern"
    [ ! -s ../out ] && [ ! -e stopped/start.sh ] || fail "finished: $(ls stopped)"
    rm -r stopped
}
mkdir bare && cp target/config.json bare
: >empty/a.txt
stops 3 '*no tokens were counted: the corpus holds no text*' prepare eagle3 --text empty --for vllm
mkdir stopped && cp -r out/. stopped # a start.sh of an earlier run names what is gone
stops 3 '*no tokens were counted*' prepare eagle3 --text empty --for vllm
cp -r eagle3 other && sed 's/32768/99/' eagle3/config.json >other/config.json
prepare other --text text --for vllm -o x >../out 2>../err
[ $? = 3 ] && [ ! -e x ] || fail "exit $?: $(ls x; cat ../err)"
warns '*other: config.json: vocab_size: 99, and the target has 32768; take the drafter of*'

# Nothing is counted before these are found.
refuses 1 'specrt: gone: *' prepare eagle3 --text gone --for vllm -o x
refuses 3 '*bare: no tokenizer in this folder; expected tokenizer.json, *' \
    specrt prepare --target bare --drafter eagle3 --text text --for vllm -o x
cp -r target short && head -c 3000 target/tokenizer.json >short/tokenizer.json
refuses 3 '*short/tokenizer.json: byte 3000: not JSON: it ends too early*' \
    specrt prepare --target short --drafter eagle3 --text text --for vllm -o x
refuses 3 '*target/config.json: model is missing; expected an object*' \
    specrt prepare --target target/config.json --drafter eagle3 --text text --for vllm -o x
cp -r target no-config && rm no-config/config.json
refuses 1 '*no-config/config.json: cannot open*' \
    specrt prepare --target no-config --drafter eagle3 --text text --for vllm -o x
refuses 3 '*target: no model inside*' prepare eagle --text text --for vllm --with clusters -o x
refuses 2 '*--target target: expected a GGUF, which llama.cpp loads; found a folder*convert_hf*' \
    prepare eagle3 --text text --for llama.cpp -o x
refuses 2 '*--drafter eagle: is an EAGLE-1/2 drafter: llama.cpp drafts with EAGLE-3 heads*' \
    prepare eagle --text text --for llama.cpp -o x
refuses 2 '*--size: expected a whole number*found*many*' prepare eagle3 --text text --for vllm \
    --size many -o x
refuses 2 '*--size 40000: expected at most 32768, the tokens of target*' \
    prepare eagle3 --text text --for vllm --size 40000 -o x
refuses 2 '*--mass: expected a number from*to 1, found*2*' prepare eagle3 --text text --for vllm \
    --mass 2 -o x
refuses 2 '*-lead: expected a path that does not begin with a dash; write ./-lead' \
    prepare eagle3 --text text --for vllm -o -lead
mkdir locked && chmod 500 locked
[ "$(id -u)" = 0 ] || refuses 1 '*locked/x: cannot make this folder: Permission denied*' \
    prepare eagle3 --text text --for vllm -o locked/x
is_quick && exit 0

cp -r eagle3 block && size=', "draft_vocab_size": 600, "block_size": 8'
config DFlashDraftModel "$size" >block/config.json
accepts prepare block --text text --for vllm --size 300 --with none -o block-out
prints '*{"method":"dflash","model":"*/block-out/drafter","num_speculative_tokens":7}*'
refuses 2 "*is a DFlash drafter: SGLang scores blocks with the target's whole head; expected *" \
    prepare block --text text --for sglang -o x
safetensors block/model.safetensors "$fc" "lm_head.weight:BF16:600,1:$(zeros 2400)" \
    "d2t:I64:600:$(zeros 9568)$(i64 $((32753 - 598)) $((32761 - 599)))" \
    "markov_head.markov_w1.weight:BF16:32768,1:$(zeros 131072)" \
    "markov_head.markov_w2.weight:BF16:600,1:$(zeros 2400)"
config Qwen3DSparkModel "$size" >block/config.json
accepts prepare block --text text --for vllm --size 300 --with none -o markov-out
prints '*{"method":"dspark","model":"*","num_speculative_tokens":8}*'
# Without a head it takes the target's rows, which must be there before anything is counted.
safetensors block/model.safetensors "$fc" norm.weight:BF16:1:0000
refuses 3 '*target: no model inside; *' prepare block --text text --for vllm -o x
cp -r target whole && safetensors whole/model.safetensors \
    "lm_head.weight:BF16:32768,1:$(zeros 131072)" model.layers.0.x:BF16:1:0000
config DFlashDraftModel ', "block_size": 8' >block/config.json
accepts specrt prepare --target whole --drafter block --text text --for vllm --size 300 \
    --with none -o rows
warns '*its head cut from 32,768 to 300 rows*'
cp -r eagle3 headless && safetensors headless/model.safetensors midlayer.x:BF16:1:0000 "$fc"
config LlamaForCausalLMEagle3 >headless/config.json
accepts specrt prepare --target whole --drafter headless --text text --for vllm --size 300 \
    --with none -o rows -f
warns '*its head cut from 32,768 to 300 rows*'
# vLLM's selector reads no d2t: our plug-in cuts its head.
safetensors block/model.safetensors "$fc" candidate_selector.hidden_projection.weight:BF16:1,1:0000
config DFlash2DraftModel ', "block_size": 8' >block/config.json
accepts prepare block --text text --for vllm --size 300 --with none -o selector
prints 'env SPECRT_TOKEN_MAP=*/selector/model.specb vllm serve *"dflash","model":"*/block"*'
rm -r block whole
cp -r eagle3 odd && config FooBarDraftModel >odd/config.json
refuses 3 '*odd/config.json: architectures: expected the name of*found "FooBarDraftModel"*' \
    prepare odd --text text --for vllm -o x
rm -r odd
accepts for_llama --drafter "$sample/draft-small.gguf" -o small
prints "specrt-llama * -md $(sh_word "$(realpath sample)/draft-small.gguf") \
--bundle $PWD/small/model.specb --policy \
auto+static:5*"
accepts for_llama --drafter "$sample/draft-small.gguf" --with none -o bare-list
prints "specrt-llama * --bundle */bare-list/model.specb --policy auto+microspec"
accepts for_llama --drafter "$sample/draft-small.gguf" --with graph,sketch,clusters --dry-run -o x
warns '*\[2/5\] ranks*\[3/5\] graph*\[4/5\] sketch*(about [0-9] s)*'
warns '*(about [0-9] s)*\[5/5\] clusters*(about [0-9] s)*'
prints "*sketch-build --model $sample/draft-small.gguf -f*cluster-build * --tokenizer $target -f*"

# start.sh passes names with spaces, quotes and dollars to the engine as they are.
odd="an odd \"\$HOME\" 'name'" && mkdir "$odd" bin && cp -r target eagle3 eagle text "$odd"
printf '#!/bin/sh\nprintf "<%%s>" "$SPECRT_TOKEN_MAP" "$@"\n' >bin/vllm
cp bin/vllm bin/python && chmod +x bin/*
for drafter in eagle3 eagle; do
    accepts specrt prepare --target "$odd/target" --drafter "$odd/$drafter" --text "$odd/text" \
        --for vllm --size 300 --with none -o "$odd/$drafter-out"
    given=$(PATH=$PWD/bin:$PATH sh "$odd/$drafter-out/start.sh" --port 1)
    map=$PWD/$odd/eagle-out/model.specb model=$PWD/$odd/$drafter
    [ $drafter = eagle ] || map= model=$PWD/$odd/eagle3-out/drafter
    [ "$given" = "<$map><serve><$PWD/$odd/target><--speculative-config><{\"method\":\"$drafter\",\
\"model\":\"${model//\"/\\\"}\",\"num_speculative_tokens\":3}><--port><1>" ] ||
        fail "$drafter: $given"
done
accepts specrt prepare --target "$odd/target" --drafter "$odd/eagle" --text "$odd/text" \
    --for sglang --size 300 --with none -o "$odd/sglang"
case $(PATH=$PWD/bin:$PATH sh "$odd/sglang/start.sh") in
    *"<--model-path><$PWD/$odd/target>"*"<$PWD/$odd/sglang/drafter/token_map.pt>") ;;
    *) fail "$(cat "$odd/sglang/start.sh")" ;;
esac
rm -r bin
# The printed commands of a dry run are sh's words, too, and make the same files.
accepts specrt prepare --target "$odd/target" --drafter "$odd/eagle3" --text "$odd/text" \
    --for vllm --with none --size 300 --dry-run -o "$odd/dry"
sed '$d' ../out >dry.sh # the check would name the tokens that this drafter has no rows for
sh -e dry.sh >../made 2>&1 || fail "$(cat dry.sh ../made)"
same "$odd/dry/drafter/model.safetensors" "$odd/eagle3-out/drafter/model.safetensors"
accepts "$CLI_BIN/specrt" prepare --target target --drafter eagle3 --text text --for vllm \
    --dry-run -o dry
prints "*  $(sh_word "$CLI_BIN/vocabtrim-calibrate") *  \
$(sh_word "$CLI_BIN/specrt-bundle") export *"

# For any other engine a list of ids.
accepts prepare eagle3 --text text --for text --size 300 --with none -o ids-of-any
accepts specrt-bundle export ids-of-any/model.specb --format text -o list.txt
same list.txt ids-of-any/token_map.txt
[ ! -e ids-of-any/start.sh ] || fail "a command for an engine that has no name"

# The folder of outputs may be in that of the text: it is no text of the target.
cp -r text own-text
accepts prepare eagle3 --text own-text --for vllm --size 300 --with none -o own-text/out
cp own-text/out/model.specb first.specb
echo '{"text": "not the target"}' >own-text/out/notes.jsonl
touch own-text/c.txt # runs the steps again
accepts prepare eagle3 --text own-text --for vllm --size 300 --with none -o own-text/out
same first.specb own-text/out/model.specb
accepts prepare eagle3 --text own-text --for vllm --size 300 --with none -o own-text/out
[ "$(grep -c 'done before' ../err)" = 4 ] || fail "its own output counts as new text: $(cat ../err)"

# Another engine, and then another drafter, in the same folder.
accepts prepare eagle --text text --for sglang --size 300 --with none -o again
accepts prepare eagle3 --text text --for vllm --size 300 --with none -o again
[ ! -e again/drafter/token_map.pt ] || fail "a list of another drafter is left"

# --seed reaches the tools.
accepts prepare eagle3 --text text --for vllm --seed 7 --dry-run -o dry
prints '*vocabtrim-calibrate *--seed 7*'

# An output that another program removed or changed is made again.
rm own-text/out/coverage.html
accepts prepare eagle3 --text own-text --for vllm --size 300 --with none -o own-text/out
[ -s own-text/out/coverage.html ] || fail "no report"
rm own-text/out/drafter/model.safetensors
accepts prepare eagle3 --text own-text --for vllm --size 300 --with none -o own-text/out
[ "$(grep -c 'done before' ../err)" = 2 ] || fail "$(cat ../err)"
[ -s own-text/out/drafter/model.safetensors ] || fail "no drafter"

# A drafter is not replaced by what is cut from it, with -f or without.
refuses 2 '*--drafter own-text/out/drafter: expected another path than own-text/out/drafter*' \
    prepare own-text/out/drafter --text text --for vllm --size 100 -f -o own-text/out
# Several steps read the text.
refuses 2 '*-: expected a file or a folder, found a pipe or a device*' \
    prepare eagle3 --text - --for vllm -o x

# What another program put there is not replaced without -f.
mkdir -p theirs/drafter theirs/steps && echo precious >theirs/drafter/model.safetensors
refuses 2 'specrt: theirs: expected a new or empty folder*found * in it*(-f)' \
    prepare eagle3 --text text --for vllm --size 300 -o theirs
accepts prepare eagle3 --text text --for vllm --size 300 --with none -f -o theirs

# A drafter that has no more rows than the list stays as it is, and nothing passes for cut.
prepare eagle3 --text text --for vllm --size 700 --with none -o uncut --json >../out 2>../err
[ $? = 4 ] || fail "exit $?, expected 4: $(cat ../err)"
warns '*warning: uncut/drafter: nothing was cut: the drafter*s head has 600 rows*'
has n_rows=600 n_rows_before=600 cut=false 'coverage=0.*' coverage_is_held_out=false
# What the check finds at the end decides the exit code.
sed 's/"vocab_size"/"bias": true, "vocab_size"/' eagle/config.json >biased.json
cp -r eagle biased && mv biased.json biased/config.json
refuses 3 '*biased: config.json: "bias": true is taken for biases*; remove "bias"*' \
    prepare biased --text text --for vllm --with none -o x -q

# A drafter that stays as it is has no later check: what is found is said, and is the exit code.
cp -r eagle lossy
safetensors lossy/model.safetensors layers.0.x:BF16:1:0000 fc.weight:BF16:1,2:00000000 \
    fc.bias:BF16:1:803f
prepare lossy --text text --for vllm --size 300 --with none -o lossy-out >../out 2>../err
[ $? = 3 ] && [ -x lossy-out/start.sh ] || fail "exit $?: $(cat ../err)"
warns '*lossy: tensor "fc.bias" is left out; train fc without a bias*'

# Interrupted at any moment a run leaves no process, and the next run ends the work.
echo "$PWD/kills" >pattern
running() { grep -lFf pattern /proc/[0-9]*/cmdline 2>/dev/null; }
prepare eagle3 --text text --for vllm --size 300 -o "$PWD/whole" >/dev/null 2>&1
for signal in $(most "TERM INT HUP KILL TERM INT HUP KILL TERM INT" "TERM KILL"); do
    specrt prepare --target target --drafter eagle3 --text text --for vllm --size 300 \
        -o "$PWD/kills" >/dev/null 2>&1 &
    sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
    kill -$signal $! 2>/dev/null
    wait $!
    code=$?
    case $signal:$code in # before the handler is there the signal ends it as any program
        *:0 | *:130 | KILL:137 | TERM:143 | HUP:129) ;;
        *) fail "exit $code after $signal" ;;
    esac
    # What the kernel ends after KILL takes a moment.
    for ((i = 0; i < 10; i++)); do running >/dev/null || break; sleep 0.1; done
    ! running >/dev/null || fail "after $signal: $(running | xargs -n 1 cat | tr '\0' ' ')"
    ! find kills -name '*specrt-tmp*' 2>/dev/null | grep -q . || [ $signal = KILL ] ||
        fail "after $signal: $(find kills)"
    [ $((RANDOM % 2)) = 0 ] || rm -rf kills
done
accepts prepare eagle3 --text text --for vllm --size 300 -o "$PWD/kills"
same whole/model.specb kills/model.specb
same whole/drafter/model.safetensors kills/drafter/model.safetensors
# Two runs do not write to one folder, and the second one leaves the folder to the first.
mkdir -p begun/specrt-steps
for folder in kills begun; do
    (flock 9 && refuses 1 "*$folder: another specrt prepare writes to this folder*" \
        prepare eagle3 --text text --for vllm --size 200 -o $folder) 9<$folder/specrt-steps || exit
    [ -d $folder/specrt-steps ] || fail "$folder is gone"
done

# A full disk ends a step, and leaves no half of a file.
(ulimit -f 8 && prepare eagle3 --text text --for vllm --size 300 -o full >../out 2>../err)
[ $? = 1 ] && [ ! -e full/start.sh ] && [ ! -e full/model.specb ] || fail "$(ls full; cat ../err)"
! find full -name '*tmp*' -o -empty | grep . || fail "left over"

# A tool that is interrupted, and one that crashes.
mkdir own && cp "$(command -v specrt)" "$(command -v specrt-bundle)" own
for signal in TERM:130 INT:130 KILL:1; do
    printf '#!/bin/sh\nkill -%s $$\n' "${signal%:*}" >own/vocabtrim-calibrate
    chmod +x own/vocabtrim-calibrate
    own/specrt prepare --target target --drafter eagle3 --text text --for vllm -o ended 2>../err
    [ $? = "${signal#*:}" ] || fail "exit $? of a tool that got $signal: $(cat ../err)"
done
warns '*vocabtrim-calibrate: ended by signal 9*'
# The other verbs are the tools.
accepts specrt bundle info out/model.specb
prints '*rank*'
refuses 2 '*unknown*' specrt nothing
