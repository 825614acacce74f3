# A target whose head has more rows than its tokenizer has ids, as many have: the rows behind are
# emitted by nobody, however likely, and every verb reads logits by their real width.
. "$CLI_TESTS/lib.bash"
require python3
cat >pad.py <<'PYTHON'
# The last six ids leave the tokenizer; their rows become those of six frequent tokens.
import struct, sys
data, N = open(sys.argv[1], "rb").read(), 6
at = 24
def take(form):
    global at
    values = struct.unpack_from("<" + form, data, at)
    at += struct.calcsize("<" + form)
    return values if len(values) > 1 else values[0]
def text():
    global at
    n = take("Q")
    at += n
    return data[at - n:at]
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
out = bytearray(data[:24])
for _ in range(n_keys):
    first, key, kind = at, text(), take("I")
    if kind == 8:
        text()
    elif kind != 9:
        at += SIZES[kind]
    else:
        of, n = take("IQ")
        cut = key in (b"tokenizer.ggml.tokens", b"tokenizer.ggml.token_type")
        items = at
        for i in range(n):
            if cut and i == n - N:
                end = at
            if of == 8:
                text()
            else:
                at += SIZES[of]
        if cut:
            out += data[first:items - 8] + struct.pack("<Q", n - N) + data[items:end]
            continue
    out += data[first:at]
infos = at
for _ in range(n_tensors):
    name, n_dims = text(), take("I")
    dims, (kind, offset) = [take("Q") for _ in range(n_dims)], take("IQ")
    if name == b"token_embd.weight":
        columns, rows, where = dims[0], dims[1], offset
        row = {0: 4 * columns, 1: 2 * columns, 8: columns // 32 * 34}[kind]
out += data[infos:at]
out += bytes(-len(out) % 32)
tensors = bytearray(data[at + -at % 32:])
for i, token in enumerate((220, 198, 264, 284, 13, 11)):
    source, to = where + token * row, where + (rows - N + i) * row
    tensors[to:to + row] = tensors[source:source + row]
open(sys.argv[2], "wb").write(out + tensors)
PYTHON
python3 pad.py "$sample/target.gguf" padded.gguf || fail "no padded target"
pair=(--target padded.gguf --draft "$sample/draft.safetensors")
hot=(--temperature 1 --seed 2)
few=(--prompts "$prompts/code.jsonl" "$prompts/qa.jsonl" --limit 2 --max-tokens $(most 24 10))

accepts specrt-eval generate --target padded.gguf "${few[@]}" "${hot[@]}" --ids
cp ../out plain
holds plain '[].ids=[0-9]*'
json plain '[].ids' | tr ' ' '\n' | awk '$1 > 32761 { exit 1 }' || fail \
    "padding was drawn: $(cat plain)"
for policy in full window:64@min=16; do
    for flags in "--topk 1 --num-steps 3" "--topk 3 --num-steps 3 --num-draft-tokens 9"; do
        case "$policy $flags" in
            "full --topk 1"* | *"@min=16 --topk 3"*) ! is_quick || continue ;;
        esac
        accepts specrt-eval compare "${pair[@]}" "${few[@]}" "${hot[@]}" --policy $policy $flags
        prints "*compared with plain decoding: all equal*"
    done
done
accepts specrt-eval decode "${pair[@]}" "${few[@]}" "${hot[@]}" -q --topk 1 --num-steps 3 \
    --sampled-drafts

# Columns behind the ids are not what a list is looked up for: the same best tokens as without them.
text=$(cd "$CLI_TESTS/../../data/corpus" && pwd)
lists() {
    accepts vocabtrim-calibrate --tokenizer "$1" --corpus "$text" --size 2048 -q -f -o list.specb
    accepts specrt-eval compare --target "$1" --draft "$sample/draft.safetensors" "${few[@]}" \
        --bundle list.specb --topk 1 --num-steps 3 --policy static:2048 --lists --json
    json ../out 'rows[].recall'
}
[ "$(lists padded.gguf)" = "$(lists "$sample/target.gguf")" ] ||
    fail "other lists: $(lists padded.gguf), without padding $(lists "$sample/target.gguf")"

# A trace of it replays as it was.
accepts specrt-eval record "${pair[@]}" "${few[@]}" "${hot[@]}" --topk 1 --num-steps 3 \
    --policy window:64@min=16 --json -q -o a.trace
printed=$(json ../out accept_length coverage shortlist_rows | xargs)
accepts specrt-eval replay --trace a.trace --policy window:64@min=16 --json
row='rows[policy=window:64@min=16][domain=all]'
found=$(json ../out "$row.accept_length" "$row.coverage" "$row.shortlist_rows" | cut -d ' ' -f 1 | \
    xargs)
[ "$found" = "$printed" ] || fail "the run printed $printed; replay found $found"
