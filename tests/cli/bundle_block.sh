# Block drafters: the LM head, the Markov head and the list are cut together, in folders and in
# GGUFs; what an engine does not load is refused with the reason, and check names what does not fit.
. "$CLI_TESTS/lib.bash"
cp "$CLI_TESTS/../golden/bundles/v1.0-raw.specb" a.specb
trim() { specrt-bundle export a.specb --drafter "$@"; }
# rows BYTE ROW... : rows of two bytes, a number and BYTE.
rows() {
    local byte=$1 row; shift
    for row; do printf '%02x%s' "$row" "$byte"; done
}
all=$(echo {0..19})
fc=fc.weight:BF16:1,2:aabbccdd conf=confidence_head.proj.weight:BF16:1,2:01020304
w1=markov_head.markov_w1.weight:BF16:20,1:$(rows 11 $all)
markov() { echo "$w1 markov_head.markov_w2.weight:BF16:$1,1:$(rows 22 ${@:2})"; }
lm_head() { echo "lm_head.weight:BF16:$1,1:$(rows 33 ${@:2})"; }
embedding=embed_tokens.weight:BF16:20,1:$(rows 44 $all)
weights() { safetensors d/model.safetensors "$@"; }
config() { echo "{$1, \"block_size\": 7}" >d/config.json; }
mkdir d t
accepts specrt-bundle export a.specb --format vllm-json --size 5 -o five.json
five=$(tr -d '[],' <five.json)
offsets() { local i=0 id; for id; do i64 $((id - i)); i=$((i + 1)); done; }
# body FILE BYTES : the tensors at its end.
body() { tail -c "$2" "$1"; }

# DSpark as DeepSpec has it: both heads lose the same rows, all else stays, and the list is there.
deepspec='"architectures": ["Qwen3DSparkModel"], "vocab_size": 20, "target_layer_ids": [1, 3]'
deepspec+=', "markov_head_type": "vanilla"'
config "$deepspec"
weights $fc $conf $(lm_head 20 $all) $(markov 20 $all) "$embedding"
accepts trim d --for vllm --size 5 -o whole --json
has n_rows=5 n_rows_before=20 cut=true
safetensors expected d2t:I64:5:$(offsets $five) $conf "$embedding" $fc $(lm_head 5 $five) \
    $(markov 5 $five) t2d:BOOL:20:$(mask 20 $five)
n=$((5 * 8 + 4 + 40 + 4 + 10 + 40 + 10 + 20))
cmp <(body whole/model.safetensors $n) <(body expected $n) || fail "not these rows"
grep -q '"draft_vocab_size": *5' whole/config.json || fail "$(cat whole/config.json)"
echo '{"vocab_size": 20, "hidden_size": 1, "num_hidden_layers": 4}' >t/config.json
found "" whole --for vllm --target t
accepts trim whole --for vllm --size 3 -o again
accepts trim d --for vllm --size 3 -o three
same again/model.safetensors three/model.safetensors
found block-head whole --for sglang
for engine in "sglang:*SGLang scores blocks with the target's whole head*" \
    "specforge:*SpecForge reads no d2t*" "llama.cpp:*convert_hf_to_gguf.py*and cut the GGUF" \
    "exllamav3:*has no MTP layers*"; do
    refuses 3 "*d/model.safetensors: ${engine#*:}" trim d --for ${engine%%:*} -o x
done
accepts trim d --for text --size 5 -o list.txt
accepts trim d --for specrt --size 5 -o own
same own/model.safetensors whole/model.safetensors

# As speculators have it, and DFlash as z-lab has it, without a head: it takes the target's rows.
echo '{"speculators_model_type": "dspark", "architectures": ["DSparkSpeculator"],
    "block_size": 8, "aux_hidden_state_layer_ids": [2, 4], "draft_vocab_size": 20,
    "transformer_layer_config": {"vocab_size": 20, "hidden_size": 1}}' >d/config.json
for engine in vllm speculators; do
    accepts trim d --for $engine --size 5 -o spec-$engine
    same spec-$engine/model.safetensors whole/model.safetensors
    found "" spec-$engine --for $engine --target t
done
zlab='"architectures": ["DFlashDraftModel"], "vocab_size": 20, "hidden_size": 8'
config "$zlab, \"dflash_config\": {\"target_layer_ids\": [0], \"mask_token_id\": 3}"
weights fc.weight:BF16:1,8:$(rows 55 {1..8}) norm.weight:BF16:1:0000
echo mask >d/mask_embedding.pt
ln -s /dev/zero d/README.md # no file: it is not copied
head_file head.safetensors 20
refuses 2 "*lm_head.weight, found none; *(--target)" trim d --for vllm -o x
accepts trim d --for vllm --size 5 --target head.safetensors -o bare --json
has n_rows=5 n_rows_before=20 cut=true
accepts specrt-bundle export a.specb --format safetensors --size 5 --head head.safetensors -o direct
cmp <(body bare/model.safetensors $((5 * 16 + 2 + 20)) | tail -c 20) <(tail -c 20 direct) ||
    fail "not the target's rows"
cmp <(body bare/model.safetensors $((80 + 2 + 20)) | head -c 80) \
    <(body direct 100 | head -c 80) || fail "not the target's rows"
same bare/mask_embedding.pt d/mask_embedding.pt
[ ! -e bare/README.md ] || fail "a device was copied"
rm d/mask_embedding.pt d/README.md
# A Markov head beside a head that is the target's.
weights $(markov 20 $all)
config "${zlab/DFlashDraftModel/Qwen3DSparkModel}"
accepts trim d --for vllm --size 5 --target head.safetensors -o bare-markov
found "" bare-markov --for vllm

# What cannot be cut, by name.
variant() { config "$deepspec, $1"; }
weights $fc $(lm_head 20 $all) $(markov 20 $all)
for kind in gated rnn fir; do
    variant "\"dflash_config\": {\"markov_head_type\": \"$kind\"}"
    refuses 3 "*d/model.safetensors: is a DSpark drafter: markov_head_type: expected vanilla, *" \
         trim d --for vllm -o x
done
variant '"hc_mult": 4'
refuses 3 "*hc_mult: expected none: *DeepSeek V4*; draft with the whole file" trim d --for vllm -o x
config "$deepspec"
for tensor in gate:gated joint:rnn; do
    weights $(lm_head 20 $all) $(markov 20 $all) markov_head.${tensor%:*}_proj.weight:BF16:1,1:0000
    refuses 3 "*expected vanilla, found ${tensor#*:}: *" trim d --for vllm -o x
done
weights $(lm_head 20 $all) candidate_selector.hidden_projection.weight:BF16:1,1:0000
config '"architectures": ["DFlash2DraftModel"], "vocab_size": 20'
refuses 3 "*is a DFlash 2 drafter: vLLM's selector takes the number of a row for a token*" \
    trim d --for vllm -o x
weights lm_head.weight_packed:I32:20,1:$(printf '%0160d' 0) $(markov 20 $all)
config "$deepspec"
refuses 3 '*tensor "lm_head.weight_packed": expected lm_head.weight, a matrix of rows; give *' \
    trim d --for vllm --target head.safetensors -o x
weights $(lm_head 20 $all) $(markov 19 {0..18})
refuses 3 '*markov_w2.weight": expected 20 rows, as its head has*' trim d --for vllm -o x
weights $(lm_head 3 3 9 12) $(markov 3 3 9 12) d2t:I64:4:$(i64 3 8 10 10)
refuses 3 '*d2t has 4 entries; expected 3, the rows of its head' trim d --for vllm \
    --values offset -o x

# Each fault by its name.
whole="$fc $(lm_head 20 $all) $(markov 20 $all)"
weights $whole
found "" d --target t
has block.size=7 block.n_drafts=7 block.n_target_layers=2 block.markov=true block.selector=false
weights $fc $(lm_head 20 $all) $(markov 19 {0..18})
found markov-rows d
weights $fc $(lm_head 20 $all) ${w1/20,1/10,2} # a vocabulary of another size
found vocab-size d
weights $whole
echo '{"vocab_size": 24, "hidden_size": 1, "num_hidden_layers": 4}' >t/config.json
found vocab-size d --target t # a padded one
echo '{"vocab_size": 20, "hidden_size": 1, "num_hidden_layers": 3}' >t/config.json
found target-layers d --target t
prints '*reads the output of layer 3 (from 0); the target has 3 layers*'
echo '{"vocab_size": 20, "hidden_size": 2, "num_hidden_layers": 4}' >t/config.json
found width d --target t
echo '{"vocab_size": 20, "hidden_size": 1, "num_hidden_layers": 4}' >t/config.json
config "${deepspec/\[1/[-1}"
found target-layers d
variant '"dflash_config": {"block_size": 16}'
found block-size d
prints '*block_size: 7, and 16 in dflash_config; *'
echo "{$deepspec}" >d/config.json
found block-size d
echo "{$deepspec, \"block_size\": 1}" >d/config.json
found block-size d

# GGUFs, as llama.cpp loads them.
{ text dflash.target_layers; word 9 5 2 0 2 4; text dflash.block_size; word 4 7; } >keys
N_KEYS=2
head=output.weight:1:4:20:160
markov="markov_w1.weight:1:2:20:80 markov_w2.weight:1:2:20:80"
for name in dflash dspark:markov dflash2:selector; do
    more=
    [ ${name#*:} != markov ] || more=$markov
    [ ${name#*:} != selector ] || more="selector_hidden.weight:1:4:2:16 \
        selector_predecessor.weight:1:2:20:80 selector_successor.weight:1:2:20:80"
    gguf ${name%:*}.gguf dflash $head $more
    accepts trim ${name%:*}.gguf --for llama.cpp --size 5 -o ${name%:*}-cut.gguf --json
    has n_rows=5 n_rows_before=20 cut=true
    found "" ${name%:*}-cut.gguf --for llama.cpp --target t
    accepts trim ${name%:*}-cut.gguf --format gguf --size 3 -o ${name%:*}-again.gguf
    accepts trim ${name%:*}.gguf --format gguf --size 3 -o ${name%:*}-three.gguf
    cmp <(tail -c 24 ${name%:*}-again.gguf) <(tail -c 24 ${name%:*}-three.gguf) || fail "other ids"
done
refuses 2 "*is a GGUF: expected a folder of safetensors, or --for llama.cpp" \
    trim dspark.gguf --for vllm -o x
# Scored by its embedding, as llama.cpp does, or by the target's head.
gguf tied.gguf dflash token_embd.weight:1:4:20:160 $markov
accepts trim tied.gguf --for llama.cpp --size 5 -o tied-cut.gguf
found "" tied-cut.gguf --for llama.cpp
gguf bare.gguf dflash $markov
refuses 3 "*bare.gguf: has no output.weight: *(--target)" trim bare.gguf --for llama.cpp -o x
{ cat keys; text dflash.embedding_length; word 4 4; } >more && mv more keys && N_KEYS=3
gguf bare.gguf dflash $markov
gguf target.gguf llama token_embd.weight:1:4:20:160
accepts trim bare.gguf --for llama.cpp --size 5 --target target.gguf -o bare-cut.gguf
found "" bare-cut.gguf --for llama.cpp
gguf narrow.gguf llama output.weight:1:6:20:240
refuses 3 "*--target: expected a head of 4 columns, as bare.gguf has states, found 6*" \
    trim bare.gguf --for llama.cpp --target narrow.gguf -o x
gguf other.gguf dflash $head markov_w1.weight:1:2:20:80 markov_w2.weight:1:2:19:76
refuses 3 "*other.gguf: markov_w2.weight: expected 20 rows, as the LM head has, found 19*" \
    trim other.gguf --for llama.cpp -o x
found markov-rows other.gguf
gguf odd.gguf dflash output.weight:99:4:20:160
refuses 3 "*tensor output.weight has the unknown type 99" trim odd.gguf --for llama.cpp -o x
{ cat keys; text dflash.hyper_connection.count; word 4 4; } >more && mv more keys && N_KEYS=4
gguf hyper.gguf dflash $head $markov
refuses 3 "*hyper.gguf: is a DSpark drafter: dflash.hyper_connection.count: expected none*" \
    trim hyper.gguf --for llama.cpp -o x
gguf hyper.gguf dflash $head d2t:27:20:1:160
found "architecture d2t-content" hyper.gguf --for llama.cpp
N_KEYS=
gguf none.gguf dflash $head $markov
found "block-size target-layers" none.gguf --for llama.cpp
{ text dflash.target_layers; word 9 5 2 0 2 9; text dflash.block_size; word 4 7; } >keys
N_KEYS=2
gguf far.gguf dflash $head
found target-layers far.gguf --target t
