# What a drafter is, by the names that it has for itself: names that nobody knows are refused, and
# no kind follows from one tensor.
. "$CLI_TESTS/lib.bash"
cp "$CLI_TESTS/../golden/bundles/v1.0-raw.specb" a.specb
mkdir d
fc=fc.weight:BF16:1,5:00000000000000000000
list() { echo "d2t:I64:3:$(i64 3 8 10)" "lm_head.weight:BF16:3,1:aaaabbbbcccc"; }
config() { echo "{$1, \"vocab_size\": 20${2:-}}" >d/config.json; }
weights() { safetensors d/model.safetensors "$@"; }
export_for() { specrt-bundle export a.specb --drafter "$@"; }

# is KIND CODES NAMES... : a folder with these names is this, with these findings.
is() {
    local kind=$1 codes=$2; shift 2
    for names; do
        config "$names" ', "draft_vocab_size": 3, "block_size": 8'
        found "$codes" d
        has "kind=$kind"
    done
}

weights $fc $(list) t2d:BOOL:20:$(mask 20 3 9 12)
is "a DFlash drafter" "" '"architectures": ["DFlashDraftModel"], "model_type": "qwen3"' \
    '"speculators_model_type": "dflash"' '"architectures": ["Qwen3DFlashModel"]' \
    '"architectures": ["LlamaForCausalLM"], "model_type": "dflash"'
is "a DFlash 2 drafter" "" '"architectures": ["DFlash2DraftModel"]'
# The Markov head of DSpark has a row for each of the head's; one that was left whole is named.
markov() {
    echo "markov_head.markov_w1.weight:BF16:20,1:$(printf '0000%.0s' {1..20})"
    echo "markov_head.markov_w2.weight:BF16:$1,1:$(printf '0000%.0s' $(seq "$1"))"
}
weights $fc $(list) t2d:BOOL:20:$(mask 20 3 9 12) $(markov 3)
is "a DSpark drafter" "" '"architectures": ["DSparkDraftModel"]' \
    '"architectures": ["Qwen3DSparkModel"]' \
    '"architectures": ["DSparkSpeculator"], "speculators_model_type": "dspark"'
weights $fc $(list) t2d:BOOL:20:$(mask 20 3 9 12) $(markov 20)
is "a DSpark drafter" "markov-rows" '"architectures": ["Qwen3DSparkModel"]'
found markov-rows d
finding markov-rows wrong hand null \
    "tensor \"markov_head.markov_w2.weight\" has 20 rows, and d2t has 3" "cut the whole drafter*"
# Uncut, without a head and an embedding of its own, as z-lab publishes it.
weights $fc norm.weight:BF16:1:0000
config '"architectures": ["DFlashDraftModel"]'
found "" d

# Names that are not known, whatever tensors are there.
for tensors in "$fc" "$(list)" "layers.0.x:BF16:1:0000"; do
    weights $tensors
    for name in FooBarDraftModel PeagleDraftModel MedusaModel; do
        config "\"architectures\": [\"$name\"]"
        for verb in "check d" "export a.specb --drafter d --for sglang -o x"; do
            refuses 3 "*d/config.json: architectures: expected the name of a model or of an EAGLE, \
EAGLE-3, MTP, DFlash or DSpark drafter, found \"$name\"; correct it if it is one of these" \
                specrt-bundle $verb
        done
    done
done
config '"speculators_model_type": "peagle"'
refuses 3 '*d/config.json: speculators_model_type: *found "peagle"; *' specrt-bundle check d
# A plain model's name beside one tensor of a drafter, and no name.
for tensors in "$fc" "$(list)"; do
    weights $tensors layers.0.x:BF16:1:0000
    config '"architectures": ["Qwen3ForCausalLM"]'
    refuses 3 "*found \"Qwen3ForCausalLM\" beside tensors of a drafter; name the drafter's own \
class, such as LlamaForCausalLMEagle3" specrt-bundle check d
done
weights layers.0.x:BF16:1:0000
config '"model": 1'
refuses 3 '*d/config.json: architectures: *found none; *' specrt-bundle check d
config '"architectures": ["Qwen3NextMTP"]'
refuses 3 '*: d/model.safetensors: expected MTP layers (tensors mtp.*), as config.json *' \
    specrt-bundle check d

# llama.cpp's architecture of block drafters: its Markov tensor must have the rows of the head.
# They are cut in bundle_block.sh.
{ text dflash.target_layers; word 9 5 1 0 1; text dflash.block_size; word 4 8; } >keys
head=output.weight:0:4:8:128 markov="markov_w1.weight:0:2:8:64 markov_w2.weight:0:2:8:64"
N_KEYS=2
gguf dflash.gguf dflash $head
gguf dflash2.gguf dflash $head selector_hidden.weight:0:4:4:64
gguf dspark.gguf dflash $head $markov
gguf left.gguf dflash output.weight:0:4:4:64 $markov
N_KEYS=
for pair in dflash:DFlash dflash2:"DFlash 2" dspark:DSpark; do
    found "" ${pair%%:*}.gguf
    has "kind=a ${pair#*:} drafter"
done
found markov-rows left.gguf
finding markov-rows wrong hand "llama.cpp specrt" \
    'tensor "markov_w2.weight" has 8 rows, and output.weight has 4*' "*the whole *"
gguf foo.gguf foodraft fc.weight:0:4:4:64
refuses 3 "*foo.gguf: general.architecture: expected eagle3 or dflash beside tensor \"fc.weight\", \
found foodraft; convert the drafter with llama.cpp's convert_hf_to_gguf.py" specrt-bundle check \
    foo.gguf
refuses 3 '*foo.gguf: general.architecture: *found foodraft; *' \
    export_for foo.gguf --for llama.cpp -o x
