#!/usr/bin/env python3
"""Writes data/sample/ from the weights of train_sample.py: target.gguf, draft.safetensors with its
config.json, which serves mtp.safetensors too, draft-small.gguf, and the folder block.

usage: data/export_sample.py [--work DIR] [-o DIR]

Embedding and matrices in Q8_0, norms in F32; the EAGLE head and the MTP module in F16. Needs PyPI's gguf and
safetensors. The same weights give the same bytes."""
import argparse
import json
import os

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file, save_file

import sample_model as model

HERE = os.path.dirname(os.path.abspath(__file__))
CONTEXT = 2048
LAYER = "layers.0."
EAGLE_NAMES = {"fc": "fc.weight", "fc_bias": "fc.bias",
               "attn_q": LAYER + "self_attn.q_proj.weight",
               "attn_k": LAYER + "self_attn.k_proj.weight",
               "attn_v": LAYER + "self_attn.v_proj.weight",
               "attn_output": LAYER + "self_attn.o_proj.weight",
               "ffn_gate": LAYER + "mlp.gate_proj.weight",
               "ffn_up": LAYER + "mlp.up_proj.weight",
               "ffn_down": LAYER + "mlp.down_proj.weight",
               "ffn_norm": LAYER + "post_attention_layernorm.weight"}


def add_tokenizer(out):
    """data/tokenizer.json by GGUF's keys; splitting is Llama-3's."""
    made = json.load(open(os.path.join(HERE, "tokenizer.json")))
    ids = dict(made["model"]["vocab"])
    special = {t["content"]: t["id"] for t in made["added_tokens"]}
    ids.update(special)
    names = sorted(ids, key=ids.get)
    merges = made["model"]["merges"]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("llama-bpe")
    out.add_token_list(names)
    out.add_token_types([gguf.TokenType.CONTROL if n in special else gguf.TokenType.NORMAL
                         for n in names])
    out.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    out.add_bos_token_id(special["<|begin_of_text|>"])
    out.add_eos_token_id(special["<|eot_id|>"])
    out.add_eot_token_id(special["<|eot_id|>"])


def add_shape(out, s):
    out.add_context_length(CONTEXT)
    out.add_block_count(s["n_layers"])
    out.add_embedding_length(s["d"])
    out.add_feed_forward_length(s["n_ffn"])
    out.add_head_count(s["n_heads"])
    out.add_head_count_kv(s["n_kv"])
    out.add_rope_dimension_count(s["n_rot"])
    out.add_rope_freq_base(model.ROPE_BASE)
    out.add_layer_norm_rms_eps(model.EPS)
    out.add_vocab_size(s["n_vocab"])


def write_gguf(work, stage, path, name):
    state = torch.load(os.path.join(work, stage + ".pt"))
    out = gguf.GGUFWriter(path, "llama")
    out.add_name(name)
    out.add_license("mit")
    add_shape(out, state["shape"])
    add_tokenizer(out)
    weights = {"token_embd": state["embedding"], **state["weights"]}
    for key, tensor in weights.items():
        values = tensor.numpy()
        kind = Type.Q8_0 if values.ndim == 2 else Type.F32
        out.add_tensor(key + ".weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


EAGLE3_NAMES = {"embedding_norm": "midlayer.input_layernorm.weight",
                "feature_norm": "midlayer.hidden_norm.weight", "final_norm": "norm.weight",
                **{k: v.replace(LAYER, "midlayer.") for k, v in EAGLE_NAMES.items()}}

# Qwen3-Next's names of an MTP module
MTP_NAMES = {"eh_proj": "mtp.fc.weight", "enorm": "mtp.pre_fc_norm_embedding.weight",
             "hnorm": "mtp.pre_fc_norm_hidden.weight", "final_norm": "mtp.norm.weight",
             "attn_norm": "mtp.layers.0.input_layernorm.weight",
             **{k: "mtp." + v for k, v in EAGLE_NAMES.items() if v.startswith(LAYER)}}


def exported_eagle(path):
    """An EAGLE-2 head's weights, by sample_model's names."""
    made = load_file(path)
    return {ours: torch.from_numpy(made[name]).float() for ours, name in EAGLE_NAMES.items()}


def write_head(weights, names, path):
    save_file({names[k]: v.numpy().astype(np.float16) for k, v in weights.items()}, path)


def eagle_config(s):
    """config.json of an EAGLE-2 head for a target of this shape, as Hugging Face has it. Not "bias": true, as
    EAGLE's own files say of fc: vLLM takes that for biases of the attention, and drafts from memory that nothing
    set. Not tied: SGLang would ask for an embedding that is the target's."""
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "hidden_act": "silu", "hidden_size": s["d"], "intermediate_size": s["n_ffn"],
            "num_attention_heads": s["n_heads"], "num_key_value_heads": s["n_kv"],
            "num_hidden_layers": 1, "rms_norm_eps": model.EPS,
            "rope_theta": s.get("rope_base", model.ROPE_BASE), "tie_word_embeddings": False,
            "torch_dtype": "float16", "vocab_size": s["n_vocab"]}


def write_draft(work, folder):
    state = torch.load(os.path.join(work, "draft.pt"))
    write_head(state["weights"], EAGLE_NAMES, os.path.join(folder, "draft.safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(eagle_config(state["shape"]), f, indent=1)
        f.write("\n")


def write_block(weights, config, folder):
    os.makedirs(folder, exist_ok=True)
    save_file({name: value.numpy().astype(np.float16) for name, value in weights.items()},
              os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", default=os.path.join(HERE, "..", "build", "sample"))
    p.add_argument("-o", dest="folder", default=os.path.join(HERE, "sample"))
    args = p.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    for stage, file in (("target", "target.gguf"), ("small", "draft-small.gguf")):
        if os.path.exists(os.path.join(args.work, stage + ".pt")):
            write_gguf(args.work, stage, os.path.join(args.folder, file), f"specrt sample {stage}")
    if os.path.exists(os.path.join(args.work, "draft.pt")):
        write_draft(args.work, args.folder)
    if os.path.exists(os.path.join(args.work, "mtp.pt")):
        module = torch.load(os.path.join(args.work, "mtp.pt"))["exported"]
        write_head(module, MTP_NAMES, os.path.join(args.folder, "mtp.safetensors"))
    if os.path.exists(os.path.join(args.work, "block.pt")):
        state = torch.load(os.path.join(args.work, "block.pt"))
        write_block(state["exported"], state["config"], os.path.join(args.folder, "block"))
    for file in sorted(os.listdir(args.folder)):
        print(f"{os.path.getsize(os.path.join(args.folder, file)) / 1e6:7.2f} MB  {file}")


if __name__ == "__main__":
    main()
