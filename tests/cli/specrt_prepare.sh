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
prints 'vllm serve target --speculative-config*eagle3*out/drafter*'
warns '*\[1/4\] ranks*\[2/4\] graph*\[3/4\] cut*\[4/4\] check*'
same <(tail -n 1 out/start.sh) ../out
grep -q '"draft_vocab_size": *300' out/drafter/config.json || fail "$(cat out/drafter/config.json)"
accepts specrt-bundle verify out/model.specb
cp out/model.specb first.specb

# A second run finds all done. A change of the size repeats from there; of the text, everything.
accepts prepare eagle3 --text text --for vllm --size 300 -o out --json
prints '{"output":"out","bundle":"out/model.specb","drafter":"out/drafter","n_selected":300,*"}'
[ "$(grep -c 'done before' ../err)" = 4 ] || fail "$(cat ../err)"
same first.specb out/model.specb
touch -d 2001-01-01 text/*
accepts prepare eagle3 --text text --for vllm --size 300 -o out
! grep -q 'done before' ../err || fail "kept what changed: $(cat ../err)"
same first.specb out/model.specb
# What was interrupted after the second step goes on with the third.
rm -r out/drafter out/steps/cut.key out/steps/check.key
accepts prepare eagle3 --text text --for vllm --size 300 -o out
[ "$(grep -c 'done before' ../err)" = 2 ] || fail "$(cat ../err)"

# SGLang takes a list for an EAGLE-2 head; vLLM takes it by the plug-in, and the drafter stays
# as it is.
accepts prepare eagle --text text --for sglang --size 300 --with none -o map
prints '*--speculative-algorithm EAGLE *--speculative-token-map map/drafter/token_map.pt'
[ -s map/drafter/token_map.pt ] || fail "no token map"
accepts prepare eagle --text text --for vllm --size 300 --with none -o plugin
prints 'env SPECRT_TOKEN_MAP=plugin/model.specb vllm serve target*"model":"eagle"*'
[ ! -e plugin/drafter ] || fail "plugin/drafter is there"
accepts prepare eagle3 --text text --for vllm --mass 0.5 --dry-run -o dry
prints '*--tokenizer target --corpus text --mass 0.5*specrt-bundle check dry/drafter*'
[ ! -e dry ] || fail "a dry run wrote"

# start.sh passes names with spaces, quotes and dollars to the engine as they are.
odd="an odd \"\$HOME\" 'name'" && mkdir "$odd" bin && cp -r target eagle3 eagle text "$odd"
printf '#!/bin/sh\nprintf "<%%s>" "$SPECRT_TOKEN_MAP" "$@"\n' >bin/vllm
cp bin/vllm bin/python && chmod +x bin/*
for drafter in eagle3 eagle; do
    accepts specrt prepare --target "$odd/target" --drafter "$odd/$drafter" --text "$odd/text" \
        --for vllm --size 300 --with none -o "$odd/$drafter-out"
    given=$(PATH=$PWD/bin:$PATH sh "$odd/$drafter-out/start.sh")
    map=$odd/eagle-out/model.specb model=$odd/$drafter
    [ $drafter = eagle ] || map= model=$odd/eagle3-out/drafter
    [ "$given" = "<$map><serve><$odd/target><--speculative-config><{\"method\":\"$drafter\",\
\"model\":\"${model//\"/\\\"}\",\"num_speculative_tokens\":3}>" ] || fail "$drafter: $given"
done
accepts specrt prepare --target "$odd/target" --drafter "$odd/eagle" --text "$odd/text" \
    --for sglang --size 300 --with none -o "$odd/sglang"
case $(PATH=$PWD/bin:$PATH sh "$odd/sglang/start.sh") in
    *"<--model-path><$odd/target>"*"<$odd/sglang/drafter/token_map.pt>") ;;
    *) fail "$(cat "$odd/sglang/start.sh")" ;;
esac
# The printed commands of a dry run are sh's words, too.
accepts specrt prepare --target "$odd/target" --drafter "$odd/eagle" --text "$odd/text" --for vllm \
    --with none --dry-run -o dry
rm -r bin && mkdir bin && printf '#!/bin/sh\nprintf "<%%s>" "$@"\n' >bin/vocabtrim-calibrate
chmod +x bin/*
case $(PATH=$PWD/bin:$PATH sh ../out) in
    "<--tokenizer><$odd/target><--corpus><$odd/text><--report>"*) ;;
    *) fail "$(cat ../out)" ;;
esac

# Every wrong input is refused in one line, before anything is written.
refuses 2 '*expected --target, --drafter, --text or --endpoint, --for and -o*' \
    specrt prepare --target target
refuses 2 '*--for: expected vllm, sglang or llama.cpp, found tgi*' \
    prepare eagle3 --text text --for tgi -o x
refuses 2 '*expected --size or --mass, found both*' \
    prepare eagle3 --text text --for vllm --size 9 --mass 0.5 -o x
refuses 2 '*--with: expected graph, sketch, clusters or none, found grap*' \
    prepare eagle3 --text text --for vllm --with grap -o x
refuses 1 '*missing: *No such file*' \
    specrt prepare --target missing --drafter eagle3 --text text --for vllm -o x
refuses 1 '*missing*' prepare missing --text text --for vllm -o x
refuses 3 '*text*' prepare text --text text --for vllm -o x
refuses 2 '*expected a folder of safetensors, which vllm loads; found a GGUF*' \
    prepare "$CLI_TESTS/../../data/sample/target.gguf" --text text --for vllm -o x
refuses 2 '*expected an EAGLE drafter; SGLang scores a draft model by its whole vocabulary*' \
    prepare model --text text --for sglang -o x
# What a tool refuses ends the work with its line and code.
specrt prepare --target target --drafter eagle3 --text gone --for vllm -o bad >../out 2>../err
[ $? = 1 ] || fail "exit code of missing text: $(cat ../err)"
warns '*vocabtrim-calibrate: gone: *'
[ ! -e bad/start.sh ] || fail "bad/start.sh is there"

# The other verbs are the tools.
accepts specrt bundle info out/model.specb
prints '*rank*'
refuses 2 '*unknown*' specrt nothing
