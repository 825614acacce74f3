#!/usr/bin/env python3
"""The backward pass of engine/train/align.c beside PyTorch's autograd, on the repository's own EAGLE heads. Opt-in:
run from the project's root after `make build/tests/align_gradients`; needs torch and numpy, and says so when
they are missing. PyTorch computes in float64: hidden states, every gradient, one step of AdamW."""
import json
import pathlib
import subprocess
import sys

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch numpy, or apt-get install python3-torch")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

PEER = "build/tests/align_gradients"
PAIRS = [("data/sample/target.gguf", "data/sample/draft.safetensors"),
         ("build/models/smollm2.gguf", "data/smollm2/draft.safetensors")]
RANK, ALPHA, RATE = 8, 12.0, 0.01
rng = np.random.default_rng(11)
MATRICES = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


def load(path):
    """Tensors of a safetensors file of f16 or f32, as float64."""
    raw = pathlib.Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    kinds = {"F16": np.float16, "F32": np.float32}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + x for x in t["data_offsets"])
        yield name, np.frombuffer(raw[begin:end], kinds[t["dtype"]]).reshape(t["shape"]).astype(float)


class Layer:
    """An EAGLE-2 head's layer over rows, by its definition."""

    def __init__(self, path, mode):
        folder = pathlib.Path(path).parent
        self.k = json.loads((folder / "config.json").read_text())
        self.k.setdefault("head_dim", self.k["hidden_size"] // self.k["num_attention_heads"])
        self.mode, tensors = mode, dict(load(path))
        self.w = {name: tensors[f"layers.0.{name}.weight"] for name in MATRICES}
        self.w["norm"] = tensors["layers.0.post_attention_layernorm.weight"]
        self.w["fc"] = tensors["fc.weight"]
        self.w["bias"] = tensors["fc.bias"]
        self.w = {name: torch.tensor(value) for name, value in self.w.items()}
        if mode == "lora":
            d, q, v = self.k["hidden_size"], self.w[MATRICES[0]].shape[0], self.w[MATRICES[2]].shape[0]
            shapes = [(RANK, d), (q, RANK), (RANK, d), (v, RANK)]
            self.trained = [torch.tensor(rng.normal(0, 0.1, s).astype(np.float32)).double()
                            for s in shapes]
        else:
            self.trained = [self.w[name] for name in [*MATRICES, "norm", "fc", "bias"]]
        for value in self.trained:
            value.requires_grad_(True)

    def rotate(self, x, positions):
        half = self.k["head_dim"] // 2
        base = self.k["rope_theta"]
        frequency = np.float32([base ** (-i / half) for i in range(half)]).astype(float)
        angle = torch.tensor(np.outer(positions, frequency))[:, None, :]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def norm(self, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.k["rms_norm_eps"]) * self.w["norm"]

    def run(self, inputs, positions, queries):
        k, w = self.k, self.w
        heads, groups, d = k["num_attention_heads"], k["num_key_value_heads"], k["head_dim"]
        x = inputs if self.mode == "lora" else inputs @ w["fc"].T + w["bias"]
        product = {name: x @ w[f"self_attn.{name}_proj"].T for name in "qkv"}
        if self.mode == "lora":
            qa, qb, va, vb = self.trained
            product["q"] = product["q"] + ALPHA / RANK * x @ qa.T @ qb.T
            product["v"] = product["v"] + ALPHA / RANK * x @ va.T @ vb.T
        q = self.rotate(product["q"].view(-1, heads, d), positions)
        key = self.rotate(product["k"].view(-1, groups, d), positions)
        value = product["v"].view(-1, groups, d)
        out = []
        for row, first, n, path, n_path in queries:
            seen = [*range(first, first + n), *range(path, path + n_path)]
            mixed = []
            for h in range(heads):
                g = h // (heads // groups)
                weight = torch.softmax(key[seen, g] @ q[row, h] / d ** 0.5, 0)
                mixed.append(weight @ value[seen, g])
            out.append(x[row] + w["self_attn.o_proj"] @ torch.cat(mixed))
        h = torch.stack(out)
        n = self.norm(h)
        act = torch.nn.functional.silu(n @ w["mlp.gate_proj"].T) * (n @ w["mlp.up_proj"].T)
        return h + act @ w["mlp.down_proj"].T


def relative(ours, theirs):
    return float(np.sqrt(((ours - theirs) ** 2).sum() / (theirs ** 2).sum()))


def check(target, draft, mode):
    layer = Layer(draft, mode)
    d = layer.k["hidden_size"]
    positions = np.int32([*range(20), 20, 21, 22, *range(40, 55)])
    queries = np.int32([(19, 0, 20, 0, 0), (20, 0, 20, 20, 1), (22, 0, 20, 20, 3), (7, 0, 8, 0, 0),
                        (37, 23, 15, 0, 0)])
    inputs = rng.normal(0, 1, (len(positions), d * (1 if mode == "lora" else 2))).astype(np.float32)
    dh = rng.normal(0, 1, (len(queries), d)).astype(np.float32)
    masters = np.concatenate([v.detach().numpy().ravel() for v in layer.trained]).astype(np.float32)
    given = b"".join(np.ascontiguousarray(x).tobytes() for x in (
        np.int32([len(positions), len(queries)]), positions, queries, masters, inputs, dh))
    out = subprocess.run([PEER, target, draft, mode], input=given, capture_output=True, check=True)
    ours = np.frombuffer(out.stdout, np.float32).astype(float)
    hidden, ours = ours[:dh.size], ours[dh.size:]
    optimiser = torch.optim.AdamW(layer.trained, lr=RATE, weight_decay=0.0)
    theirs = layer.run(torch.tensor(inputs).double(), positions, queries.tolist())
    (theirs * torch.tensor(dh).double()).sum().backward()
    errors = {"hidden": relative(hidden, theirs.detach().numpy().ravel())}
    at = 0
    for i, value in enumerate(layer.trained):
        n = value.numel()
        errors[f"block {i}"] = relative(ours[at:at + n], value.grad.numpy().ravel())
        at += n
    before = [v.detach().clone().numpy().ravel() for v in layer.trained]
    optimiser.step()
    moved = np.concatenate([v.detach().numpy().ravel() - b for v, b in zip(layer.trained, before)])
    errors["step"] = relative(ours[at:] - masters, moved)
    worst = max(errors, key=errors.get)
    # A step at zero moments goes by the sign alone, and elements near zero may differ in it.
    bad = {k: e for k, e in errors.items() if e > (2e-2 if k == "step" else 1e-5)}
    print(f"{'FAIL' if bad else 'ok'} {draft} {mode}: greatest relative error of {len(errors)}: "
          f"{errors[worst]:.2e} ({worst}); of gradients "
          f"{max(e for k, e in errors.items() if 'block' in k):.2e}")
    return not bad


results = {True: 0, False: 0}
skipped = 0
if not pathlib.Path(PEER).exists():
    print(f"skipped: no {PEER}; make {PEER}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)
for target, draft in PAIRS:
    for mode in ("lora", "full"):
        if pathlib.Path(target).exists():
            results[check(target, draft, mode)] += 1
        else:
            print(f"skipped: no {target}")
            skipped += 1
print(f"{results[True]} passed, {results[False]} failed, {skipped} skipped")
sys.exit(results[False] > 0)
