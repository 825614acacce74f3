"""write(gguf, out, tokenizer=None): a Llama of a GGUF as a Hugging Face folder, weights in f32: config.json,
model.safetensors, tokenizer.json (the file given, else a byte-level BPE from what the GGUF says) and its config."""
import json
import pathlib
import shutil

import gguf
import numpy as np
from safetensors.numpy import save_file

NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
SPECIAL = 3  # of tokenizer.ggml.token_type


def halves(rows, n_heads):
    """Rotary pairs lie side by side in a GGUF, half a head apart in a Hugging Face folder."""
    pairs = rows.reshape(n_heads, rows.shape[0] // n_heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows.shape))


def tensors(reader, config):
    """Tensors by their names in the folder: f32."""
    found = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    yield "model.embed_tokens.weight", found["token_embd.weight"]
    yield "model.norm.weight", found["output_norm.weight"]
    if "output.weight" in found:
        yield "lm_head.weight", found["output.weight"]
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for layer in range(config["num_hidden_layers"]):
        for ours, theirs in NAMES.items():
            rows = found[f"blk.{layer}.{ours}.weight"]
            yield f"model.layers.{layer}.{theirs}.weight", halves(rows, heads[ours]) if ours in heads else rows


def tokenizer(said):
    """tokenizer.json of a GGUF's byte-level BPE; digits one by one, as SmolLM2 splits."""
    names, types = said("tokenizer.ggml.tokens"), said("tokenizer.ggml.token_type")
    added = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, name in enumerate(names) if types[i] == SPECIAL]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence",
                              "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]},
            "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {name: i for i, name in enumerate(names)}, "merges": said("tokenizer.ggml.merges")}}


def settings(reader, said):
    head = {t.name: t for t in reader.tensors}["token_embd.weight"]
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": int(head.shape[0]), "vocab_size": int(head.shape[1]),
            "intermediate_size": said("llama.feed_forward_length"),
            "num_attention_heads": said("llama.attention.head_count"),
            "num_key_value_heads": said("llama.attention.head_count_kv"),
            "head_dim": int(head.shape[0]) // said("llama.attention.head_count"),
            "num_hidden_layers": said("llama.block_count"),
            "rms_norm_eps": said("llama.attention.layer_norm_rms_epsilon"),
            "rope_theta": said("llama.rope.freq_base"), "max_position_embeddings": said("llama.context_length"),
            "tie_word_embeddings": not any(t.name == "output.weight" for t in reader.tensors),
            "torch_dtype": "float32", "bos_token_id": said("tokenizer.ggml.bos_token_id"),
            "eos_token_id": said("tokenizer.ggml.eos_token_id"), "attention_bias": False, "mlp_bias": False}


def write(path, out, tokenizer_json=None):
    reader, out = gguf.GGUFReader(path), pathlib.Path(out)

    def said(key):
        value = reader.fields[key].contents()
        return value.item() if isinstance(value, np.generic) else value

    assert said("general.architecture") == "llama", path
    config = settings(reader, said)
    out.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors(reader, config)), out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=1))
    if tokenizer_json:
        shutil.copy(tokenizer_json, out / "tokenizer.json")
    else:
        (out / "tokenizer.json").write_text(json.dumps(tokenizer(said)))
    names = said("tokenizer.ggml.tokens")
    (out / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config["max_position_embeddings"],
         "bos_token": names[config["bos_token_id"]], "eos_token": names[config["eos_token_id"]]}))
