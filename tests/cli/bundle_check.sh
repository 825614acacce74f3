# Drafters that engines load otherwise than it is meant: each fault by its name, with its fix; and
# those without.
. "$CLI_TESTS/lib.bash"
NARRATES=1
mkdir e t
layer=midlayer.self_attn.q_proj.weight:F32:1:00000000
fc=fc.weight:BF16:1,12:000000000000000000000000000000000000000000000000
head=lm_head.weight:BF16:3,1:aaaabbbbcccc
good='"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 20, "draft_vocab_size": 3'
config() { echo "{${1:-$good}}" >e/config.json; }
weights() { safetensors e/model.safetensors "$@"; }
list() { echo "d2t:I64:3:$(i64 "$@")"; }
echo '{"vocab_size": 20, "hidden_size": 4, "eos_token_id": [3, 9]}' >t/config.json

# finds CODES FLAGS... : exactly these in the drafter e.
finds() { found "$1" e "${@:2}"; }

config
weights $layer $fc "$(list 3 8 10)" $head t2d:BOOL:20:$(mask 20 3 9 12)
for engine in vllm sglang specforge llama.cpp; do
    finds "" --target t --for $engine
done
finds "" --target t
finds config-form --target t --for speculators # which reads its own form alone
accepts specrt-bundle check e --target t
warns "*e: an EAGLE-3 drafter, nothing found"

# The list: ids in place of offsets, either where nothing tells, unsorted, of other tokens, another
# length, none.
weights $layer "$(list 3 9 12)" $head t2d:BOOL:20:$(mask 20 3 9 12)
finds d2t-absolute
weights $layer "$(list 3 9 12)" $head
finds "d2t-ambiguous no-t2d"
weights $layer "$(list 9 2 10)" $head t2d:BOOL:20:$(mask 20 3 9 12)
finds d2t-order
finds "" --for vllm
weights $layer "$(list 3 8 10)" $head t2d:BOOL:20:$(mask 20 3 9)
finds d2t-content
weights $layer "$(list 3 8 30)" $head t2d:BOOL:20:$(mask 20 3 9 12)
finds d2t-content
weights $layer "$(list 0 0 0)" $head t2d:BOOL:20:$(mask 20 0 1 2)
finds "d2t-zero terminators" --target t
prints "*2 of the target's 2 terminators have no row (3)*"
weights $layer $head
finds no-d2t
weights $layer "$(list 3 8 10)" lm_head.weight:BF16:2,1:aaaabbbb t2d:BOOL:20:$(mask 20 3 9 12)
finds "draft-vocab-size d2t-length"
weights $layer "$(list 3 8 10)" t2d:BOOL:20:$(mask 20 3 9 12)
finds "no-head d2t-length"
weights $layer "$(list 3 8 10)" $head t2d:BOOL:19:$(mask 19 3 9 12)
finds t2d-length
weights $layer "$(list 3 8 10)" $head t2d:U8:20:$(mask 20 3 9 12)
finds t2d-type
weights $layer "$(list 3 8 10)" $head t2d:BOOL:20:$(mask 20 3 9 12)
config "${good/: 3/: 4}"
finds draft-vocab-size
config "${good%, *}"
finds draft-vocab-size

# config.json, and names.
config "$good, \"bias\": true, \"attention_bias\": true, \"tie_word_embeddings\": true"
finds "bias attention-bias tied"
finds "attention-bias config-form" --for speculators
config "${good/\"vocab_size\": 20, /}"
weights $layer "$(list 3 8 10)" $head
finds "d2t-ambiguous vocab-size" --for vllm
weights layers.0.x:BF16:1:0000 fc.weight:BF16:1,2:00000000
config '"architectures": ["LlamaForCausalLMEagle"], "vocab_size": 20, "tie_word_embeddings": true'
finds tied
weights model.layers.0.x:BF16:1:0000 lm_head.weight:BF16:2,1:00000000
config '"architectures": ["LlamaForCausalLM"], "vocab_size": 20, "tie_word_embeddings": true'
finds "" # a model may tie its head
# EAGLE's own folders name the target's class: all tensors of a drafter say what it is.
zeros=000000000000000000000000
weights fc.weight:F32:1,3:$zeros midlayer.hidden_norm.weight:F32:1:00000000 \
    midlayer.self_attn.q_proj.weight:F32:1,2:${zeros:8} "$(list 3 8 10)" $head \
    t2d:BOOL:20:$(mask 20 3 9 12)
config "${good/Eagle3/}"
finds "" --for vllm
finds architecture --for sglang
prints '*"fix":"name LlamaForCausalLMEagle3"*'
config
weights layers.0.self_attn.q_proj.weight:F32:1:00000000 layers.0.hidden_norm.weight:F32:1:00000000 \
    "$(list 3 8 10)" $head t2d:BOOL:20:$(mask 20 3 9 12) fc.bias:F32:1:0000803f
finds fc-bias --for vllm
finds layer-name --for sglang

# Beside its target.
weights $layer $fc "$(list 3 9 11)" $head t2d:BOOL:20:$(mask 20 3 10 13)
finds terminators --target t
echo '{"vocab_size": 24, "hidden_size": 5, "eos_token_id": 3}' >t/config.json
finds "vocab-size width" --target t
cp "$TOKENIZER" t/tokenizer.json
echo '{"vocab_size": 20, "hidden_size": 4}' >t/config.json
finds "terminators bytes" --target t --keep bytes
cp "$CLI_TESTS/../golden/tokenizers/bytes.json" e/tokenizer.json
finds "tokenizer terminators" --target t
accepts specrt-bundle check "$CLI_TESTS/../../data/sample/draft.safetensors" --for llama.cpp \
    --target "$CLI_TESTS/../../data/sample/target.gguf"

rm -r t/tokenizer.json
refuses 3 "*--keep bytes: expected a tokenizer in the target's folder*" specrt-bundle check e \
    --target t --keep bytes
refuses 2 "*--keep bytes: expected the target*" specrt-bundle check e --keep bytes
refuses 2 "*--for: expected one of vllm, *found 'x'" specrt-bundle check e --for x
refuses 1 "*none*" specrt-bundle check e --target none
echo "[]" >e/config.json
refuses 3 "*e/config.json: expected a JSON object" specrt-bundle check e
rm e/config.json
refuses 1 "*e/config.json: cannot open*" specrt-bundle check e
