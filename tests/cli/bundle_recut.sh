# A drafter's folder cut to a bundle's ids, as engines load it; byte for byte where nothing is cut.
. "$CLI_TESTS/lib.bash"
NARRATES=1
cp "$CLI_TESTS/../golden/bundles/v1.0-raw.specb" a.specb
head_file head.safetensors 20
config() { # FILE ARCHITECTURE ROWS MORE
    echo "{\"architectures\": [\"$2\"], \"vocab_size\": 20, \"draft_vocab_size\": $3${4:-}}" >"$1"
}
direct() { # SIZE FILE : the list's rows of the whole head
    accepts specrt-bundle export a.specb --format safetensors --size "$1" --head head.safetensors \
        -o "$2"
}
cut() { specrt-bundle export a.specb --drafter "$@"; }
mkdir e
direct 12 e/model.safetensors
config e/config.json LlamaForCausalLMEagle3 12
echo '{"eos_token_id": 3}' >e/generation_config.json
echo weights >e/pytorch_model.bin

# Nothing to cut: the same bytes, and what stands beside them, but other weights.
accepts cut e --for vllm --size 12 -o same --json
prints '*"n_rows":12,"n_rows_before":12,"cut":false,*"same_weights":true,*}'
for file in config.json model.safetensors generation_config.json; do same e/$file same/$file; done
[ "$(ls same | wc -l)" = 3 ] || fail "same/ holds $(ls same)"
for engine in vllm sglang specforge llama.cpp; do
    accepts cut e/model.safetensors --for $engine -o $engine
    direct 8 eight.safetensors
    same $engine/model.safetensors eight.safetensors
    rm eight.safetensors
    grep -q '"draft_vocab_size": *8' $engine/config.json || fail "$(cat $engine/config.json)"
done
# Through the d2t of one that is cut already; ids without a row give way to the next ones.
accepts cut vllm --for vllm --size 5 -o five
direct 5 five.safetensors
same five/model.safetensors five.safetensors
refuses 2 "*size 9: expected at most 8, the ids of the bundle that have rows in vllm/model.safe*" \
    cut vllm --for vllm --size 9 -o x
accepts cut five --for sglang -o default
warns "*default: nothing was cut: the drafter had 5 rows, *default: its 5 rows cover *%*"
same default/model.safetensors five.safetensors

# A flag alone that engines read otherwise; weights in several files become one.
mkdir tied parts
cp e/model.safetensors tied
config tied/config.json LlamaForCausalLMEagle3 12 ', "tie_word_embeddings": true'
accepts cut tied --for vllm --size 12 -o untied
grep -q '"tie_word_embeddings": *false' untied/config.json || fail "$(cat untied/config.json)"
list=d2t:I64:3:$(i64 3 9 16) mask=t2d:BOOL:20:$(mask 20 3 10 18)
rows=lm_head.weight:BF16:3,1:aaaabbbbcccc
safetensors parts/1.safetensors "$list" "$mask"
safetensors parts/2.safetensors "$rows"
echo '{"weight_map": {"d2t": "1.safetensors", "t2d": "1.safetensors",
    "lm_head.weight": "2.safetensors"}}' >parts/model.safetensors.index.json
config parts/config.json LlamaForCausalLMEagle3 3
accepts cut parts --for vllm --size 3 -o one --json
prints '*"same_weights":true*'
mkdir one-again && cp one/config.json one-again
safetensors one-again/model.safetensors "$list" "$rows" "$mask"
found "" one && found "" one-again
cmp <(tail -c 50 one/model.safetensors) <(tail -c 50 one-again/model.safetensors) ||
    fail "other rows"

# Any type of rows, scales beside them, both orders of ids, absolute ones, and a layer's other name.
mkdir f g
# EAGLE's own name of the target's class, beside all of an EAGLE-3 layer.
layer() { echo fc.weight:F32:1,3:$zeros "$1.hidden_norm.weight:F32:1:00000000" \
    "$1.self_attn.q_proj.weight:F32:1,2:${zeros:8}"; }
zeros=000000000000000000000000
config f/config.json LlamaForCausalLM 3 ', "tie_word_embeddings": true, "bias": true'
safetensors f/model.safetensors $(layer layers.0) d2t:I64:3:$(i64 3 9 1) \
    lm_head.weight:F8_E4M3:3,4:aaaaaaaabbbbbbbbcccccccc t2d:BOOL:20:$(mask 20 3 10)
refuses 3 "*d2t and t2d name different ids*" cut f --for sglang -o x
rows="lm_head.weight:F8_E4M3:2,4:aaaaaaaabbbbbbbb"
safetensors f/model.safetensors d2t:I64:3:$(i64 10 2 16) $(layer layers.0) \
    layers.0.x:F32:1:01020304 \
    lm_head.weight:F8_E4M3:3,4:bbbbbbbbaaaaaaaacccccccc \
    lm_head.weight_scale:F32:3,1:020000000100000003000000 lm_head.input_scale:F32::0a0b0c0d \
    t2d:BOOL:20:$(mask 20 3 10 18)
accepts cut f --for sglang --size 2 -o cut
safetensors expected.safetensors d2t:I64:2:$(i64 3 9) fc.weight:F32:1,3:$zeros \
    lm_head.input_scale:F32::0a0b0c0d lm_head.weight_scale:F32:2,1:0100000002000000 \
    midlayer.norms:F32:1,3:$zeros midlayer.x:F32:1:01020304 "$rows" \
    t2d:BOOL:20:$(mask 20 3 10)
body() { tail -c "$2" "$1"; }
cmp <(body cut/model.safetensors 84) <(body expected.safetensors 84) || fail "not the rows of f"
grep -q midlayer.x cut/model.safetensors || fail "the layer is not renamed"
grep -q '"tie_word_embeddings": *false' cut/config.json || fail "still tied"
grep -q '"LlamaForCausalLMEagle3"' cut/config.json || fail "no class of EAGLE-3"
grep -q '"bias": *true' cut/config.json || fail "SGLang's bias is gone"
accepts cut f --for vllm --size 2 -o cut-vllm
! grep -q '"bias"' cut-vllm/config.json || fail "vLLM would take bias for the attention's"
safetensors g/model.safetensors d2t:I64:3:$(i64 10 3 18) \
    lm_head.weight:BF16:3,1:bbbbaaaacccc t2d:BOOL:20:$(mask 20 3 10 18)
config g/config.json LlamaForCausalLMEagle3 3
accepts cut g --for vllm --size 2 -o ids
cmp <(body ids/model.safetensors 40) <(printf '\3\0\0\0\0\0\0\0\11\0\0\0\0\0\0\0\xaa\xaa\xbb\xbb'
    printf '\0\0\0\1\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0') || fail "absolute ids are not made offsets"

# EAGLE-3 without a head drafts with the target's: the list's rows of that become its own.
mkdir h
safetensors h/model.safetensors midlayer.self_attn.q_proj.weight:F32:1:00000000
config h/config.json LlamaForCausalLMEagle3 20 ', "hidden_size": 8'
refuses 2 "*lm_head.weight, found none; *(--target)" cut h --for vllm -o x
accepts cut h --for vllm --size 5 --target head.safetensors -o h5 --json
prints '*"n_ids":5,"n_rows":5,"n_rows_before":20,"cut":true,*'
cmp <(body h5/model.safetensors 100) <(body five.safetensors 100) || fail "not the target's rows"
accepts cut h5 --for sglang --size 5 -o h5-again
refuses 2 "*h5/model.safetensors: *expected no --target*" cut h5 --for vllm \
    --target head.safetensors -o x
config h/config.json LlamaForCausalLMEagle3 20 ', "hidden_size": 16'
refuses 3 "*head.safetensors: rows of its head have 8 numbers; expected 16, hidden_size of h/*" \
    cut h --for vllm --target head.safetensors -o x
head_file short.safetensors 3
refuses 3 "*short.safetensors: has no row for token *" cut h --for vllm \
    --target short.safetensors -o x

# A drafter that scores by the target's head: SGLang takes a list for it, the others do not.
sample=$CLI_TESTS/../../data/sample
echo "The patient has a fever and a cough." >text.txt
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus text.txt --holdout 0 --size 100 \
    -o s.specb
accepts specrt-bundle export s.specb --drafter "$sample/draft.safetensors" --for sglang -o sg
warns "*--speculative-token-map sg/token_map.pt*"
accepts specrt-bundle export s.specb --format sglang-pt -o map.pt
same sg/token_map.pt map.pt
same sg/model.safetensors "$sample/draft.safetensors"
grep -q '"LlamaForCausalLMEagle"' sg/config.json || fail "no class of EAGLE"
refuses 3 "*is an EAGLE-1/2 drafter: it scores by the target's head*(--for sglang)*" \
    specrt-bundle export s.specb --drafter "$sample/draft.safetensors" --for vllm -o x

for file in */config.json; do echo "-- $file: $(tr -d ' \n' <"$file")"; done
# What is refused leaves no folder.
mkdir whole plain
cp head.safetensors whole/model.safetensors
config whole/config.json LlamaForCausalLM 20
refuses 3 "*is a model of its own: *expected an EAGLE or MTP drafter" cut whole --for vllm -o x
safetensors plain/model.safetensors midlayer.self_attn.q_proj.weight:F32:1:00000000 \
    lm_head.weight:BF16:3,1:aaaabbbbcccc
config plain/config.json LlamaForCausalLMEagle3 3
refuses 3 "*d2t: missing; expected one for the 3 rows*fewer than the target's 20*" cut plain \
    --for vllm -o x
refuses 3 "*is EAGLE's own, which speculators does not read*" cut e --for speculators -o x
touch same/notes
refuses 2 "*same: expected a new or empty folder, found notes in it*" cut g --for vllm -f -o same
rm same/notes
refuses 2 "*same/config.json: exists; use -f*" cut e --for vllm -o same
accepts cut e --for vllm -o same -f
refuses 2 "*e/config.json: expected a folder, found a file" cut e --for vllm \
    -o e/config.json
refuses 2 "*--for: expected one of vllm, sglang, *, found 'x'" cut e --for x -o x
refuses 2 "*expected a folder or file to write to*" cut e --for vllm
refuses 2 "*--for goes without --format*" cut e --for vllm --format text -o x
refuses 2 "*expected the drafter to cut*" specrt-bundle export a.specb --for vllm -o x
refuses 1 "*none*" cut none --for vllm -o x
refuses 1 "*no/such: cannot make the folder*" cut e --for vllm -o no/such
