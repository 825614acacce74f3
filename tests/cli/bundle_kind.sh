# What a drafter is, by the names that it has for itself: block drafters are named and not cut,
# names that nobody knows are refused, and no kind follows from one tensor.
. "$CLI_TESTS/lib.bash"
NARRATES=1
cp "$CLI_TESTS/../golden/bundles/v1.0-raw.specb" a.specb
mkdir d
fc=fc.weight:BF16:1,5:00000000000000000000
list() { echo "d2t:I64:3:$(i64 3 8 10)" "lm_head.weight:BF16:3,1:aaaabbbbcccc"; }
config() { echo "{$1, \"vocab_size\": 20${2:-}}" >d/config.json; }
weights() { safetensors d/model.safetensors "$@"; }
export_for() { specrt-bundle export a.specb --drafter "$@"; }

# is KIND CODES NAMES... : a folder with these names is this, with these findings, and is not cut.
is() {
    local kind=$1 codes=$2; shift 2
    for names; do
        config "$names" ', "draft_vocab_size": 3'
        found "$codes" d
        prints "*\"kind\":\"$kind\",*"
        for engine in vllm sglang specforge llama.cpp text; do
            refuses 3 "*d*: is $kind: expected an EAGLE, EAGLE-3 or MTP drafter*" export_for d \
                --for $engine -o x
        done
        refuses 3 "*: is $kind: *" export_for d --format gguf -o x
    done
}

weights $fc $(list) t2d:BOOL:20:$(mask 20 3 9 12)
is "a DFlash drafter" "" '"architectures": ["DFlashDraftModel"], "model_type": "qwen3"' \
    '"speculators_model_type": "dflash"' '"architectures": ["Qwen3DFlashModel"]' \
    '"architectures": ["LlamaForCausalLM"], "model_type": "dflash"'
is "a DFlash 2 drafter" "" '"architectures": ["DFlash2DraftModel"]'
# The Markov head of DSpark has a row for each of the head's; one that was left whole is named.
markov() { echo "markov_head.markov_w2.weight:BF16:$1,1:$(printf '0000%.0s' $(seq "$1"))"; }
weights $fc $(list) t2d:BOOL:20:$(mask 20 3 9 12) "$(markov 3)"
is "a DSpark drafter" "" '"architectures": ["DSparkDraftModel"]' \
    '"architectures": ["Qwen3DSparkModel"]' \
    '"architectures": ["DSparkSpeculator"], "speculators_model_type": "dspark"'
weights $fc $(list) t2d:BOOL:20:$(mask 20 3 9 12) "$(markov 20)"
is "a DSpark drafter" "markov-rows" '"architectures": ["Qwen3DSparkModel"]'
found markov-rows d
prints '*"what":"tensor *markov_w2.weight*has 20 rows, and d2t has 3",*'
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
            refuses 3 "*d/config.json: architectures: expected the name of a model or of *, found \
\"$name\"; correct it*" specrt-bundle $verb
        done
    done
done
config '"speculators_model_type": "peagle"'
refuses 3 '*speculators_model_type: expected *found "peagle"; *' specrt-bundle check d
# A plain model's name beside one tensor of a drafter, and no name.
for tensors in "$fc" "$(list)"; do
    weights $tensors layers.0.x:BF16:1:0000
    config '"architectures": ["Qwen3ForCausalLM"]'
    refuses 3 '*found "Qwen3ForCausalLM" beside tensors of a drafter; name the *' \
        specrt-bundle check d
done
weights layers.0.x:BF16:1:0000
config '"model": 1'
refuses 3 '*architectures: expected *, found none; name the *' specrt-bundle check d
config '"architectures": ["Qwen3NextMTP"]'
refuses 3 '*model.safetensors: expected MTP layers (tensors mtp.*' specrt-bundle check d

# word N... : as bytes of 32 bits; text : a string of a GGUF.
# gguf FILE ARCH NAME:TYPE:NE0:NE1:BYTES...
word() {
    for n; do printf "\\x$(printf %02x $((n & 255)))\\x$(printf %02x $((n >> 8)))\\0\\0"; done
}
text() { word ${#1} 0; printf %s "$1"; }
gguf() {
    local file=$1 item name type ne0 ne1 bytes at=0 arch=$2; shift 2
    {
        printf GGUF; word 3 $# 0 1 0
        text general.architecture; word 8; text "$arch"
        for item; do
            IFS=: read -r name type ne0 ne1 bytes <<<"$item"
            text "$name"; word 2 "$ne0" 0 "$ne1" 0 "$type" $at 0
            at=$((at + (bytes + 31) / 32 * 32))
        done
    } >"$file"
    truncate -s $((($(stat -c %s "$file") + 31) / 32 * 32 + at)) "$file"
}
# llama.cpp's architecture of block drafters: its Markov tensor must have the rows of the head.
head=output.weight:0:4:8:128
gguf dflash.gguf dflash $head
gguf dflash2.gguf dflash $head selector_hidden.weight:0:4:4:64
gguf dspark.gguf dflash $head markov_w2.weight:0:2:8:64
gguf left.gguf dflash output.weight:0:4:4:64 markov_w2.weight:0:2:8:64
for pair in dflash:DFlash dflash2:"DFlash 2" dspark:DSpark; do
    found "" ${pair%%:*}.gguf
    prints "*\"kind\":\"a ${pair#*:} drafter\",*"
    for flag in "--format gguf" "--for llama.cpp" "--for vllm" "--for text"; do
        refuses 3 "*${pair%%:*}.gguf: is a ${pair#*:} drafter: expected *" \
            export_for ${pair%%:*}.gguf $flag -o x
    done
done
found markov-rows left.gguf
gguf foo.gguf foodraft fc.weight:0:4:4:64
refuses 3 '*foo.gguf: general.architecture: expected eagle3 or dflash beside tensor "fc.weight"*' \
    specrt-bundle check foo.gguf
refuses 3 '*foo.gguf: general.architecture: expected eagle3 or dflash beside*found foodraft; *' \
    export_for foo.gguf --for llama.cpp -o x
