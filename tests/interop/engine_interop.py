#!/usr/bin/env python3
"""Our engine's logits beside PyPI's transformers, on tiny random models. Opt-in: run from the project's
root; needs torch, transformers, gguf and numpy, and says so when they are missing.

Each model is made by transformers (4.51 or later, for Qwen3), written to GGUF as converters do, and run by both over a
few prompts; transformers computes in float64."""
import pathlib
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch transformers gguf numpy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

TOLERANCE = 1e-4
PEER = "build/tests/engine_logits"
rng = np.random.default_rng(4)
folder = tempfile.TemporaryDirectory()

LLAMA3_SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                  "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
SHARED = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 211,
          "num_attention_heads": 4, "max_position_embeddings": 256, "rms_norm_eps": 1e-5}
MODELS = [
    ("llama", {"num_key_value_heads": 2}),
    ("llama", {"num_key_value_heads": 4, "tie_word_embeddings": True, "rope_theta": 500000.0}),
    ("llama", {"num_key_value_heads": 1, "rope_theta": 5000.0, "rope_scaling": LLAMA3_SCALING}),
    ("qwen2", {"num_key_value_heads": 2, "rope_theta": 1e6}),
    ("qwen2", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    ("qwen3", {"num_key_value_heads": 2, "head_dim": 32, "rope_theta": 1e6}),
    ("qwen3", {"num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True}),
]


class Config(dict):
    """What a model is, by transformers' names."""

    def __init__(self, arch, options):
        super().__init__(SHARED, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False)
        self.update(options)
        self.setdefault("head_dim", self["hidden_size"] // self["num_attention_heads"])
        self.arch = arch

    def __getattr__(self, name):
        return self[name]


def shapes(k):
    """Names and shapes of a checkpoint."""
    q, kv = k.num_attention_heads * k.head_dim, k.num_key_value_heads * k.head_dim
    yield "model.embed_tokens.weight", (k.vocab_size, k.hidden_size)
    yield "model.norm.weight", (k.hidden_size,)
    if not k.tie_word_embeddings:
        yield "lm_head.weight", (k.vocab_size, k.hidden_size)
    for i in range(k.num_hidden_layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (k.hidden_size,)
        yield layer + "post_attention_layernorm.weight", (k.hidden_size,)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            yield f"{layer}self_attn.{name}_proj.weight", (rows, k.hidden_size)
            if k.arch == "qwen2":
                yield f"{layer}self_attn.{name}_proj.bias", (rows,)
            if k.arch == "qwen3" and name != "v":
                yield f"{layer}self_attn.{name}_norm.weight", (k.head_dim,)
        yield layer + "self_attn.o_proj.weight", (k.hidden_size, q)
        yield layer + "mlp.gate_proj.weight", (k.intermediate_size, k.hidden_size)
        yield layer + "mlp.up_proj.weight", (k.intermediate_size, k.hidden_size)
        yield layer + "mlp.down_proj.weight", (k.hidden_size, k.intermediate_size)


def random_weights(k):
    """Large enough that attention and the nonlinearity matter."""
    def draw(name, shape):
        centre = 1.0 if "norm" in name else 0.0
        spread = 0.3 if len(shape) == 1 else 1.5 / np.sqrt(shape[1])
        return (centre + spread * rng.standard_normal(shape)).astype(np.float32)
    return {name: draw(name, shape) for name, shape in shapes(k)}


def rope_factors(k):
    """What Llama-3 divides each frequency by."""
    s = k.rope_scaling
    turns = k.rope_theta ** (-np.arange(0, k.head_dim, 2) / k.head_dim) / (2 * np.pi)
    if not s:
        return np.ones_like(turns)
    smooth = (s["original_max_position_embeddings"] * turns - s["low_freq_factor"]) / (
        s["high_freq_factor"] - s["low_freq_factor"])
    smooth = np.clip(smooth, 0, 1)
    return 1 / ((1 - smooth) / s["factor"] + smooth)


# ---- to GGUF ----

GGUF_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
              "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GGUF_ENDS = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
             "model.norm.weight": "output_norm.weight"}


def gguf_name(name):
    if name in GGUF_ENDS:
        return GGUF_ENDS[name]
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[stem]}.{kind}"


def adjacent_pairs(w, n_heads):
    """Rotated halves of each head to adjacent pairs, as GGUF's llama stores queries and keys."""
    return w.reshape(n_heads, 2, -1, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def write_gguf(k, weights, path):
    writer = gguf.GGUFWriter(str(path), k.arch)
    writer.add_context_length(k.max_position_embeddings)
    writer.add_block_count(k.num_hidden_layers)
    writer.add_embedding_length(k.hidden_size)
    writer.add_feed_forward_length(k.intermediate_size)
    writer.add_head_count(k.num_attention_heads)
    writer.add_head_count_kv(k.num_key_value_heads)
    writer.add_key_length(k.head_dim)
    writer.add_value_length(k.head_dim)
    writer.add_layer_norm_rms_eps(k.rms_norm_eps)
    writer.add_rope_freq_base(k.rope_theta)
    if k.rope_scaling:
        writer.add_tensor("rope_freqs.weight", rope_factors(k).astype(np.float32))
    for name, w in weights.items():
        if k.arch == "llama" and "q_proj" in name:
            w = adjacent_pairs(w, k.num_attention_heads)
        if k.arch == "llama" and "k_proj" in name:
            w = adjacent_pairs(w, k.num_key_value_heads)
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- logits ----

def transformers_logits(k, weights, prompts):
    name = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[k.arch]
    options = {key: value for key, value in k.items() if key != "head_dim" or k.arch == "qwen3"}
    config = getattr(transformers, name + "Config")(**options, attn_implementation="eager")
    model = getattr(transformers, name + "ForCausalLM")(config).double().eval()
    state = {name: torch.from_numpy(w).double() for name, w in weights.items()}
    if k.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    with torch.no_grad():
        return [model(torch.tensor([p])).logits[0].numpy() for p in prompts]


def engine_logits(k, path, prompts):
    lines = "".join(" ".join(map(str, p)) + "\n" for p in prompts)
    run = subprocess.run([PEER, str(path)], input=lines.encode(), capture_output=True, check=True)
    rows = np.frombuffer(run.stdout, np.float32).reshape(-1, k.vocab_size)
    return np.split(rows, np.cumsum([len(p) for p in prompts])[:-1])


def check(arch, options):
    k = Config(arch, options)
    weights = random_weights(k)
    path = pathlib.Path(folder.name) / "model.gguf"
    prompts = [rng.integers(0, k.vocab_size, n).tolist() for n in (1, 7, 33, 120)]
    write_gguf(k, weights, path)
    ours, theirs = engine_logits(k, path, prompts), transformers_logits(k, weights, prompts)
    away = max(float(np.abs(x - y).max()) for x, y in zip(ours, theirs))
    passed = away <= TOLERANCE and all(np.isfinite(x).all() for x in ours)
    print(f"{'PASS' if passed else 'FAIL'} {arch} {options}: logits of deviation {np.concatenate(theirs).std():.2f}, "
          f"{away:.1e} from transformers")
    return passed


def main():
    subprocess.run(["make", "-s", PEER], check=True)
    results = [check(*model) for model in MODELS]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed, 0 skipped")
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
