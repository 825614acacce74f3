# compare --align: drafters that learn beside those that stay; snapshots; bad input.
. "$CLI_TESTS/lib.bash"
target=$CLI_TESTS/../../data/sample/target.gguf
draft=$CLI_TESTS/../../data/sample/draft.safetensors
prompts=$CLI_TESTS/../../data/prompts
compare() {
    specrt-eval compare --target "$target" --draft "$draft" --topk 1 --num-steps 3 --stream \
        --max-tokens "$(most 16 8)" --prompts "$prompts/qa.jsonl" --limit "$(most 4 2)" \
        --policy window:64@min=16 "$@"
}
# value KEY : the first number behind a key of the JSON
value() { grep -o "\"$1\":[^,}]*" ../out | head -1 | cut -d: -f2; }
lengths() { grep -o '"accept_length":[^,}]*' ../out; }
# drafts_as_frozen : each request of the JSON takes the cycles of the drafter that stays; true where
# there is no python3
drafts_as_frozen() {
    [ -z "$(command -v python3)" ] || python3 - ../out <<'END'
import json, sys
of = {}
for r in json.load(open(sys.argv[1]))["requests"]:
    of.setdefault(r["policy"].split(" (")[0], []).append(r["n_cycles"])
window = of["window:64@min=16"]
sys.exit(window[0::2] != window[1::2])
END
}

accepts compare --align lora@batch=4@rate=0.01
prints "*window:64@min=16 *
window:64@min=16 (lora@batch=4@rate=0.01) *
alignment * path A * path B * steps *
window:64@min=16 (lora@batch=4@rate=0.01) *compared with plain decoding: all equal"

# the same bytes on every run and for any threads; another rate drafts otherwise
accepts compare --align lora@batch=4@rate=0.01 --json --align-save a.safetensors
for key in n_path_a n_path_b n_rejected n_dropped n_steps n_bad_steps loss update_ms parameters \
    moments activations requests align_ms n_looks n_taken n_returns n_restarts look_ms; do
    prints "*\"$key\":*"
done
[ "$(value n_steps)" -gt 0 ] || fail "no steps"
[ "$(grep -o '"align":{' ../out | wc -l)" = 1 ] || fail "alignment is of all domains, once"
took=$(grep -o '"align":{[^}]*' ../out | grep -o '"update_ms":[0-9.e-]*' | cut -d: -f2)
awk "BEGIN { exit !($took > 0.01) }" || fail "no milliseconds: $took"
lengths >lengths
accepts compare --align lora@batch=4@rate=0.01 --json --align-save b.safetensors \
    --threads 1
cmp a.safetensors b.safetensors || fail "another run saves other bytes"
lengths | cmp - lengths || fail "another run drafts otherwise"
refuses 2 "*a.safetensors: exists; use -f *" compare --align lora --align-save a.safetensors
grep -q '"r": *32' adapter_config.json || fail "no rank in adapter_config.json"
grep -aq 'base_model.model.layers.0.self_attn.q_proj.lora_A.weight' a.safetensors ||
    fail "not PEFT's names"

# a rate of 0 drafts as the frozen drafter does; what was learnt is there again
accepts compare --align lora@batch=4@rate=0 --json
[ "$(grep -o '"n_emitted":[0-9]*' ../out | sort -u | wc -l)" -gt 0 ] || fail "no requests"
drafts_as_frozen || fail "a rate of 0 drafts otherwise than the frozen drafter"
accepts compare --align lora@rate=0 --align-load a.safetensors --align-save c.safetensors
cmp a.safetensors c.safetensors || fail "a snapshot came back other"

# several at once, each with a drafter of its own
accepts compare --align lora@batch=4@rate=0.01,osd@interval=1,lora@batch=2@optimiser=sgd
prints "*(lora@batch=4@rate=0.01) *(osd@interval=1) *(lora@batch=2@optimiser=sgd) *all equal"

# OSD, steps beside the cycles, plain descent
accepts compare --align osd@interval=1 --align-save osd.safetensors
prints "*window:64@min=16 (osd@interval=1) *compared with plain decoding: all equal"
accepts compare --align lora@batch=4@optimiser=sgd --align-async
prints "*all equal"
accepts compare --align lora@batch=2 --temperature 0.7
prints "*all equal"

# a guard drafts with nothing that a rate of 1e9 made; several alignments
accepts compare --align lora@batch=4@rate=1e9@clip=0@guard=1 --json
[ "$(value n_looks)" -gt 0 ] || fail "no looks"
drafts_as_frozen || fail "a guard drafts with ruin"
accepts compare --align lora@guard=2@batch=4,lora@batch=4,osd@guard=1@interval=1
prints "*looks*back*restarts*all equal"

# settings that ruin the drafter, or never train it: decoding goes on without loss
accepts compare --align lora@batch=4@rate=1e9@clip=0
prints "*all equal"
accepts compare --align osd@interval=1@rate=1e9
prints "*all equal"

# what does not fit
refuses 2 "*--align: expected off, lora or osd, found 'on'" compare --align on
refuses 2 "*--align: 'optimiser=lion': expected rate, *" compare --align lora@optimiser=lion
refuses 2 "*--align-save and --align-load: expected --align lora or osd with them" compare \
    --align-load a.safetensors
refuses 2 "*--align-save: expected one --policy and one --align, *" compare --policy full \
    --align lora --align-save d.safetensors
refuses 2 "*--align-save: expected one --policy and one --align, *" compare --align lora,osd \
    --align-save d.safetensors
refuses 2 "*--align: 'rat=1': expected rate, clip, *" compare --align lora@rat=1
refuses 2 "*--align: 'rank=257': expected rate, *" compare --align lora@rank=257
refuses 2 "*--align: expected at most 8, found more" compare \
    --align lora,lora,lora,lora,lora,lora,lora,lora,lora
refuses 2 "*--align: 'rate=-1': expected rate, *" compare --align lora@rate=-1
refuses 1 "*nosuch: cannot open: *" compare --align lora --align-load nosuch
refuses 3 "*lib.bash: *" compare --align lora --align-load "$CLI_TESTS/lib.bash"
refuses 3 "*osd.safetensors: *lora_A.weight: expected \[32, 256\], found none" compare \
    --align lora --align-load osd.safetensors
refuses 3 "*a.safetensors: *lora_A.weight: expected \[8, 256\], found \[32, 256\] of F32" \
    compare --align lora@rank=8@alpha=32 --align-load a.safetensors
refuses 3 "*a.safetensors: lora_alpha: expected 8, found 32" compare --align lora@rank=8 \
    --align-load a.safetensors
cp osd.safetensors other.safetensors
cp "${draft%/*}/config.json" .
refuses 3 "*a.safetensors: is of another drafter; expected digest *, found *" compare --align lora \
    --draft other.safetensors --align-load a.safetensors
head -c 5000 a.safetensors >cut.safetensors
refuses 3 "*cut.safetensors: *" compare --align lora --align-load cut.safetensors
small=$CLI_TESTS/../../data/sample/draft-small.gguf
refuses 3 "*alignment: expected an EAGLE head, found an independent drafter" compare --align lora \
    --draft "$small"
