#!/usr/bin/env python3
"""random_eagle3.py TARGET DRAFTER [options]: an EAGLE-3 drafter of random weights as hubs lay it out, and config.json of
its target (Llama, 4,096 wide and 128,256 tokens by default: 0.85 GB). Needs numpy."""
import argparse
import json
import pathlib
import struct

import numpy as np


def shapes(d, n_draft, d_ffn, kv):
    """Names and shapes of a Llama EAGLE-3 drafter: one layer that reads the embedding beside the hidden state."""
    layer = "midlayer."
    yield "fc.weight", (d, 3 * d)
    yield layer + "hidden_norm.weight", (d,)
    yield layer + "input_layernorm.weight", (d,)
    yield layer + "post_attention_layernorm.weight", (d,)
    for name, rows in (("q", d), ("k", kv), ("v", kv)):
        yield f"{layer}self_attn.{name}_proj.weight", (rows, 2 * d)
    yield layer + "self_attn.o_proj.weight", (d, d)
    for name in "gate", "up":
        yield f"{layer}mlp.{name}_proj.weight", (d_ffn, d)
    yield layer + "mlp.down_proj.weight", (d, d_ffn)
    yield "norm.weight", (d,)
    yield "lm_head.weight", (n_draft, d)


def write_safetensors(path, tensors):
    """tensors: name, dtype as the format spells it, shape, bytes."""
    header, at = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for *_, data in tensors:
            file.write(data)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("target", type=pathlib.Path)
    p.add_argument("drafter", type=pathlib.Path)
    p.add_argument("--vocab", type=int, default=128256)
    p.add_argument("--width", type=int, default=4096)
    p.add_argument("--draft-vocab", type=int, default=32000)
    p.add_argument("--keep", type=int, nargs="*", default=[], help="ids that the drafter has whatever else")
    p.add_argument("--aux", type=int, nargs=3, help="layers of the target that it reads, for one of few layers")
    args = p.parse_args()
    d, n = args.width, args.draft_vocab
    heads, d_ffn = max(d // 128, 2), d * 7 // 2 // 64 * 64
    kv_heads = max(heads // 4, 1)
    rng = np.random.default_rng(1)
    tensors = [(name, "F16", shape, (rng.standard_normal(shape, np.float32) / 32).astype("<f2").tobytes())
               for name, shape in shapes(d, n, d_ffn, d // heads * kv_heads)]
    ids = np.array(sorted(set(range(n - len(args.keep))) | set(args.keep)))[:n]
    mask = np.zeros(args.vocab, np.uint8)
    mask[ids] = 1
    tensors += [("d2t", "I64", (n,), (ids - np.arange(n)).astype("<i8").tobytes()),
                ("t2d", "BOOL", (args.vocab,), mask.tobytes())]
    config = {"model_type": "llama", "hidden_act": "silu", "hidden_size": d, "intermediate_size": d_ffn,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "num_hidden_layers": 1,
              "head_dim": d // heads, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
              "vocab_size": args.vocab, "torch_dtype": "float16", "tie_word_embeddings": False}
    aux = {"eagle_aux_hidden_state_layer_ids": args.aux} if args.aux else {}
    for folder, more in ((args.target, {"architectures": ["LlamaForCausalLM"]}),
                         (args.drafter, {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": n, **aux})):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**config, **more}))
    write_safetensors(args.drafter / "model.safetensors", tensors)


if __name__ == "__main__":
    main()
