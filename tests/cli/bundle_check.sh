# Drafters that engines load otherwise than it is meant: each fault by its name, with its fix; and
# those without.
. "$CLI_TESTS/lib.bash"
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
has 'kind=an EAGLE-3 drafter' engine=null target=t file=e
finds config-form --target t --for speculators # which reads its own form alone
has engine=speculators
finding config-form wrong hand speculators "config.json: its form, EAGLE's own or that of \
speculators, is not read by speculators" "convert the drafter with speculators"
accepts specrt-bundle check e --target t
warns "*e: an EAGLE-3 drafter, nothing found"
accepts specrt-bundle check e
warns "*, nothing found; its tokens were not checked, which needs --target"

export="specrt-bundle export BUNDLE --drafter DIR --for ENGINE -o OUT"
trained="add d2t and t2d from the mapping that the drafter was trained with"
# what CODE PATTERN : says a finding, with other numbers than the first.
what() { has "findings[code=$1].what=$2"; }

# The list: ids in place of offsets, either where nothing tells, unsorted, of other tokens, another
# length, none.
weights $layer "$(list 3 9 12)" $head t2d:BOOL:20:$(mask 20 3 9 12)
finds d2t-absolute
finding d2t-absolute wrong export null "tensor \"d2t\" holds token ids: engines take each for an \
offset from its row" "$export"
weights $layer "$(list 3 9 12)" $head
finds "d2t-ambiguous no-t2d"
finding d2t-ambiguous wrong hand null "tensor \"d2t\" reads as ids, too, and no t2d says which" \
    "say which by export --values absolute or offset, which adds t2d"
finding no-t2d fewer export "specforge speculators" "tensor \"t2d\" is missing, which training \
reads" "$export"
weights $layer "$(list 9 2 10)" $head t2d:BOOL:20:$(mask 20 3 9 12)
finds d2t-order
finding d2t-order fewer export specforge "tensor \"d2t\": row 1 is token 3 behind token 9; \
SpecForge wants them ascending" "$export"
finds "" --for vllm
weights $layer "$(list 3 8 10)" $head t2d:BOOL:20:$(mask 20 3 9)
finds d2t-content
finding d2t-content wrong hand null "e/model.safetensors: d2t and t2d name different ids; expected \
t2d to mark those of d2t" "$trained"
weights $layer "$(list 3 8 30)" $head t2d:BOOL:20:$(mask 20 3 9 12)
finds d2t-content
weights $layer "$(list 0 0 0)" $head t2d:BOOL:20:$(mask 20 0 1 2)
finds "d2t-zero terminators" --target t
finding d2t-zero wrong hand null "tensor \"d2t\" is all zeros: row i passes for token i" "$trained"
finding terminators fewer hand null "2 of the target's 2 terminators have no row (3): the end of a \
text is never drafted" "take a list that has them, as vocabtrim-calibrate's; a trained head needs \
training for it"
weights $layer $head
finds no-d2t
finding no-d2t wrong hand null "tensor \"d2t\" is missing: row i of 3 passes for token i, and most \
drafts are refused" "$trained"
weights $layer "$(list 3 8 10)" lm_head.weight:BF16:2,1:aaaabbbb t2d:BOOL:20:$(mask 20 3 9 12)
finds "draft-vocab-size d2t-length"
finding draft-vocab-size wrong export null "config.json: draft_vocab_size: 3; lm_head.weight has 2 \
rows" "set \"draft_vocab_size\" to the head's rows"
finding d2t-length wrong hand null "tensor \"d2t\" has 3 entries, and lm_head.weight has 2 rows" \
    "$trained"
weights $layer "$(list 3 8 10)" t2d:BOOL:20:$(mask 20 3 9 12)
finds "no-head d2t-length"
finding no-head wrong export null "tensor \"lm_head.weight\" is missing: engines take the target's \
whole head" "specrt-bundle export BUNDLE --drafter DIR --for ENGINE --target TARGET -o OUT"
what d2t-length "*3 entries*0 rows"
weights $layer "$(list 3 8 10)" $head t2d:BOOL:19:$(mask 19 3 9 12)
finds t2d-length
finding t2d-length fewer export "specforge speculators" "tensor \"t2d\" has 19 entries; expected \
20, vocab_size" "$export"
weights $layer "$(list 3 8 10)" $head t2d:U8:20:$(mask 20 3 9 12)
finds t2d-type
finding t2d-type fewer export specforge "tensor \"t2d\" is U8; expected BOOL" "$export"
weights $layer "$(list 3 8 10)" $head t2d:BOOL:20:$(mask 20 3 9 12)
config "${good/: 3/: 4}"
finds draft-vocab-size
what draft-vocab-size "*4; * 3 rows"
config "${good%, *}"
finds draft-vocab-size
what draft-vocab-size "*missing; * 3 rows"

# config.json, and names.
config "$good, \"bias\": true, \"attention_bias\": true, \"tie_word_embeddings\": true"
finds "bias attention-bias tied"
finding bias wrong export vllm "config.json: \"bias\": true is taken for biases of the attention, \
which the weights do not have: drafts come from memory that nothing set" \
    "remove \"bias\" from config.json; EAGLE and SGLang read fc.bias without it, too"
finding attention-bias wrong export null "config.json: \"attention_bias\": true, and the weights \
have no self_attn.q_proj.bias" "set \"attention_bias\": false in config.json"
finding tied wrong export sglang "config.json: \"tie_word_embeddings\": true: the embedding, which \
is the target's, is taken for the head" "set \"tie_word_embeddings\": false in config.json"
finds "attention-bias config-form" --for speculators
config "${good/\"vocab_size\": 20, /}"
weights $layer "$(list 3 8 10)" $head
finds "d2t-ambiguous vocab-size" --for vllm
finding vocab-size wrong hand null "config.json: vocab_size: missing" \
    "set \"vocab_size\" to the target's"
weights layers.0.x:BF16:1:0000 fc.weight:BF16:1,2:00000000
config '"architectures": ["LlamaForCausalLMEagle"], "vocab_size": 20, "tie_word_embeddings": true'
finds tied
has 'kind=an EAGLE-1/2 drafter'
weights model.layers.0.x:BF16:1:0000 lm_head.weight:BF16:2,1:00000000
config '"architectures": ["LlamaForCausalLM"], "vocab_size": 20, "tie_word_embeddings": true'
finds "" # a model may tie its head
has 'kind=a model of its own'
# EAGLE's own folders name the target's class: all tensors of a drafter say what it is.
zeros=000000000000000000000000
weights fc.weight:F32:1,3:$zeros midlayer.hidden_norm.weight:F32:1:00000000 \
    midlayer.self_attn.q_proj.weight:F32:1,2:${zeros:8} "$(list 3 8 10)" $head \
    t2d:BOOL:20:$(mask 20 3 9 12)
config "${good/Eagle3/}"
finds "" --for vllm
finds architecture --for sglang
finding architecture wrong export "sglang specforge" "config.json: architectures: LlamaForCausalLM \
is loaded as a whole Llama" "name LlamaForCausalLMEagle3"
config
weights layers.0.self_attn.q_proj.weight:F32:1:00000000 layers.0.hidden_norm.weight:F32:1:00000000 \
    "$(list 3 8 10)" $head t2d:BOOL:20:$(mask 20 3 9 12) fc.bias:F32:1:0000803f
finds fc-bias --for vllm
finding fc-bias fewer hand vllm "tensor \"fc.bias\" is left out" \
    "train fc without a bias for vLLM; it costs some acceptance here"
finds layer-name --for sglang
finding layer-name wrong export "sglang specforge" "tensors \"layers.0.*\" are left out: the layer \
of EAGLE-3 is read as \"midlayer.*\"" "$export"

# Beside its target.
weights $layer $fc "$(list 3 9 11)" $head t2d:BOOL:20:$(mask 20 3 10 13)
finds terminators --target t
what terminators "1 of * 2 *(9): *"
echo '{"vocab_size": 24, "hidden_size": 5, "eos_token_id": 3}' >t/config.json
finds "vocab-size width" --target t
take="take the drafter of this target"
finding vocab-size wrong hand null "config.json: vocab_size: 20, and the target has 24" "$take"
finding width wrong hand null "tensor \"fc.weight\" reads 12 numbers; expected 15, 3 states of the \
target's width 5" "$take"
cp "$TOKENIZER" t/tokenizer.json
echo '{"vocab_size": 20, "hidden_size": 4}' >t/config.json
finds "terminators bytes" --target t --keep bytes
what terminators "2 of * 2 *(32753): *"
finding bytes fewer hand null "253 of 256 tokens of one byte have no row (0): what is spelt by \
bytes is not drafted" "vocabtrim-calibrate --keep bytes, and train for that list"
cp "$CLI_TESTS/../golden/tokenizers/bytes.json" e/tokenizer.json
finds "tokenizer terminators" --target t
finding tokenizer wrong hand null "its tokenizer, gpt2-style BPE (tokenizer.json), is another than \
the target's, llama3-style BPE (tokenizer.json)" "$take"
accepts specrt-bundle check "$CLI_TESTS/../../data/sample/draft.safetensors" --for llama.cpp \
    --target "$CLI_TESTS/../../data/sample/target.gguf"

rm -r t/tokenizer.json
refuses 3 "*t: --keep bytes: expected a tokenizer in the target's folder, found none that is read" \
    specrt-bundle check e --target t --keep bytes
refuses 2 "*--keep bytes: expected the target (--target DIR)" specrt-bundle check e --keep bytes
refuses 2 "*--for: expected one of vllm, sglang, specforge, speculators, llama.cpp, specrt, \
gemma4, exllamav3, mtplx, text, found 'x'" specrt-bundle check e --for x
refuses 1 "*: none: *" specrt-bundle check e --target none
echo "[]" >e/config.json
refuses 3 "*e/config.json: expected a JSON object" specrt-bundle check e
rm e/config.json
refuses 1 "*: e/config.json: *" specrt-bundle check e
