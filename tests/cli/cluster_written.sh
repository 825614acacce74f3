# Routers trained on a trace that specrt.TraceWriter wrote, for a head of its own vocabulary too.
. "$CLI_TESTS/lib.bash"
needs_python_library

# The best token is that of the only column that is 1: of cluster c, rows c, c + 8, ... Of EAGLE-3's
# head row i is for token 3 (63 - i).
"$python" - <<'PYTHON' || fail "the files are not written"
import json, struct
import numpy as np, specrt
rows, cols = np.mgrid[0:64, 0:8]
head = np.where(rows % 8 == cols, 0x3F80 + rows, 0x3D00 + (rows * 7 + cols) % 64).astype("<u2")
offsets = 189 - 4 * np.arange(64)
def tensors(path, **arrays):
    header, at = {}, 0
    for name, (dtype, x) in arrays.items():
        header[name.replace("_weight", ".weight")] = {
            "dtype": dtype, "shape": x.shape, "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(x.tobytes() for _, x in arrays.values())
def eagle3(path, *entries):
    ids = offsets.astype("<i8")
    for place, value in entries:
        ids[place] = value
    tensors(path, lm_head_weight=("BF16", head), d2t=("I64", ids))
tensors("model.safetensors", lm_head_weight=("BF16", head))
eagle3("eagle3.safetensors")
eagle3("far.safetensors", (63, 9999999999))
eagle3("twice.safetensors", (0, 1), (1, 0))
def write(path, n, n_vocab, token_of):
    with specrt.TraceWriter(path, n_vocab, d_target=8, d_draft=8, n_top=2) as trace:
        for i in range(n):
            if i % 6 == 0:
                trace.sequence([i % n_vocab])
            c = i * 5 % 8
            state = np.where(np.arange(8) == c, 1, 0.0625 + i % 50 / 1024)
            best = token_of(c + 8 * (np.array([i, i + 3]) % 8))
            trace.cycle([best[0]], nodes=[0], tree_tokens=[0], tree_parents=[-1], top_ids=best,
                        draft_hidden=state)
write("run.trace", 192, 64, lambda row: row)
write("eagle3.trace", 192, 192, lambda row: 189 - 3 * row)
write("few.trace", 2, 64, lambda row: row)
PYTHON

train() { cluster-build --model "$model" --router coral --clusters 8 --mean-rows 8 --epochs 40 \
    --rate 0.02 "$@"; }
model=model.safetensors
accepts train --trace run.trace --json -o run.specb
has router.recall=1 router.recall_oracle=1 router.n_examples=192
accepts specrt-bundle verify run.specb
refuses 3 "*training: expected 64 or more drafted positions of 2 or more prompts, found 2 of 1; *" \
    train --trace few.trace -o x.specb
refuses 2 "*--router centroid, dynaspec or coral*" cluster-build --router none --model $model \
    --trace run.trace -o x.specb
model=eagle3.safetensors
accepts train --trace eagle3.trace --json -o eagle3.specb
has n_rows=64 router.recall=1
accepts specrt-bundle verify eagle3.specb --model $model
accepts specrt-bundle info eagle3.specb --json
has group.n_members=64
refuses 3 '*far.safetensors: tensor "d2t": entry 63 leads outside *' \
    cluster-build --model far.safetensors --clusters 2 -o x.specb
refuses 3 '*twice.safetensors: tensor "d2t": expected a token for each row, found token 1 twice' \
    cluster-build --model twice.safetensors --clusters 2 -o x.specb
