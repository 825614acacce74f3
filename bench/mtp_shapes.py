#!/usr/bin/env python3
"""Bytes that a round of drafts by a model's MTP layer reads, from published shapes: nothing is
loaded, and nothing runs. transformers builds each model on the device "meta", which has no memory,
and its parameters are counted. An MTP layer is one more of the model's last layers, and fc.

Assumed: batch 1, weights in bfloat16, caches not counted. An expert layer reads for n tokens the
experts that n independent uniform choices touch. The accept length is the same for a cut head.

    build/interop/transformers/bin/python bench/mtp_shapes.py  # made by make interop
"""
import importlib

import torch
import transformers

CUT, DEPTHS, BYTES = 32, range(1, 5), 2
LARGE = {"hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
         "num_attention_heads": 24, "linear_num_value_heads": 48}
LARGEST = {"hidden_size": 4096, "num_hidden_layers": 60, "num_attention_heads": 32,
           "linear_num_value_heads": 64, "num_experts": 512, "num_experts_per_tok": 10,
           "moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024}
AIR = {"head_dim": 128}
GLM = {"head_dim": 128, "hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 92,
       "n_routed_experts": 160, "moe_intermediate_size": 1536, "first_k_dense_replace": 3}
# Model, transformers' module, and what differs from the defaults there.
MODELS = [("Qwen3.5-9B", "qwen3_5.Qwen3_5Text", {}),
          ("Qwen3.5-27B, Qwen3.8-27B", "qwen3_5.Qwen3_5Text", LARGE),
          ("Qwen3.5-35B-A3B", "qwen3_5_moe.Qwen3_5MoeText", {}),
          ("Qwen3.5-397B-A17B", "qwen3_5_moe.Qwen3_5MoeText", LARGEST),
          ("GLM-4.5-Air", "glm4_moe.Glm4Moe", AIR), ("GLM-4.5", "glm4_moe.Glm4Moe", GLM),
          ("GLM-5", "glm_moe_dsa.GlmMoeDsa", {})]


def count(module):
    return sum(p.numel() for p in module.parameters())


class Shapes:
    """Parameters of a model: all of them, and those that a pass reads."""

    def __init__(self, where, changes):
        module, _, name = where.partition(".")
        path = f"transformers.models.{module}."
        configs, modeling = (importlib.import_module(f"{path}{kind}_{module}")
                             for kind in ("configuration", "modeling"))
        config = getattr(configs, f"{name}Config")(**changes)
        with torch.device("meta"):
            model = getattr(modeling, f"{name.removesuffix('Text')}ForCausalLM")(config)
        self.total, self.layers, self.head = count(model), model.model.layers, count(model.lm_head)
        self.n_rows, width = model.lm_head.weight.shape
        self.per_token = getattr(config, "num_experts_per_tok", 0)
        self.module = self.read(self.layers[-1], 1) + 2 * width * width
        self.rest = count(model.model.norm) + self.head

    def read(self, layer, n_tokens):
        experts = getattr(layer.mlp, "experts", None)
        if experts is None:
            return count(layer)
        n = experts.gate_up_proj.shape[0]
        touched = 1 - (1 - self.per_token / n) ** n_tokens
        return count(layer) - count(experts) * (1 - touched)

    def target(self, n_tokens):
        return self.rest + sum(self.read(layer, n_tokens) for layer in self.layers)


def main():
    print(f"transformers {transformers.__version__}; MB: 1e6 bytes; cut: the head's rows / {CUT}\n"
          "share: of the bytes of a round, the head's; gain: a round / a round with the head cut\n")
    print(f"{'model':26}{'parameters':>10}{'rows':>9}"
          f"  MB of a step: {'layer':>5}{'head':>6}{'cut':>4}"
          + "".join(f"  depth {depth}: share, gain" for depth in DEPTHS))
    for name, where, changes in MODELS:
        s = Shapes(where, changes)
        head, layer, cut = (x * BYTES / 1e6 for x in (s.head, s.module, s.head / CUT))
        line = f"{name:26}{s.total / 1e9:9.1f}B{s.n_rows:9,}{layer:20,.0f}{head:6,.0f}{cut:4,.0f}"
        for depth in DEPTHS:
            whole = depth * (layer + head) + s.target(depth + 1) * BYTES / 1e6
            line += f"{depth * head / whole:16.1%}{whole / (whole - depth * (head - cut)):6.3f}x"
        print(line, flush=True)


if __name__ == "__main__":
    main()
