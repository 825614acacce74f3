#!/usr/bin/env python3
"""large_head.py q8_0|q4_0 OUT.gguf : a model with a head of 248,320 x 5,120 for `specrt-eval plan`: four layers of a 27B
model's shape, an MTP layer, weights by chance. What it says means nothing; what it costs does. Needs PyPI's gguf."""
import sys

import gguf
import numpy as np

VOCAB, D, FFN, HEADS, KV, D_HEAD, LAYERS = 248320, 5120, 17408, 40, 8, 128, 4
TYPE, BYTES, SCALE = {"q8_0": (gguf.GGMLQuantizationType.Q8_0, 34, 3e-4),
                      "q4_0": (gguf.GGMLQuantizationType.Q4_0, 18, 3e-3)}[sys.argv[1]]
chance = np.random.default_rng(1)


def matrix(rows, columns):
    blocks = chance.integers(0, 256, (rows * columns // 32, BYTES), dtype=np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(SCALE).tobytes(), np.uint8)
    return blocks.reshape(rows, columns // 32 * BYTES)


def add_tokenizer(out):
    """GPT-2's letters for bytes, one merge, and ids with a name."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("llama-bpe")
    out.add_token_list([*letters, "ab", *(f"<t{i}>" for i in range(VOCAB - 257))])
    out.add_token_types([1] * 257 + [3] * (VOCAB - 257))
    out.add_token_merges(["a b"])
    out.add_bos_token_id(257)
    out.add_eos_token_id(258)


def add_layer(out, at):
    for name in ("attn_norm", "ffn_norm"):
        out.add_tensor(f"{at}.{name}.weight", np.ones(D, np.float32))
    for name, rows, columns in (("attn_q", HEADS * D_HEAD, D), ("attn_k", KV * D_HEAD, D),
                                ("attn_v", KV * D_HEAD, D), ("attn_output", D, HEADS * D_HEAD),
                                ("ffn_gate", FFN, D), ("ffn_up", FFN, D), ("ffn_down", D, FFN)):
        out.add_tensor(f"{at}.{name}.weight", matrix(rows, columns), raw_dtype=TYPE)


out = gguf.GGUFWriter(sys.argv[2], "llama")
for add, value in ((out.add_context_length, 2048), (out.add_block_count, LAYERS + 1),
                   (out.add_embedding_length, D), (out.add_feed_forward_length, FFN),
                   (out.add_head_count, HEADS), (out.add_head_count_kv, KV),
                   (out.add_rope_dimension_count, D_HEAD), (out.add_rope_freq_base, 1e6),
                   (out.add_layer_norm_rms_eps, 1e-6), (out.add_vocab_size, VOCAB)):
    add(value)
out.add_uint32("llama.nextn_predict_layers", 1)
add_tokenizer(out)
for name in ("token_embd", "output"):
    out.add_tensor(f"{name}.weight", matrix(VOCAB, D), raw_dtype=TYPE)
out.add_tensor("output_norm.weight", np.ones(D, np.float32))
for i in range(LAYERS + 1):
    add_layer(out, f"blk.{i}")
out.add_tensor(f"blk.{LAYERS}.nextn.eh_proj.weight", matrix(D, 2 * D), raw_dtype=TYPE)
for name in ("enorm", "hnorm", "shared_head_norm"):
    out.add_tensor(f"blk.{LAYERS}.nextn.{name}.weight", np.ones(D, np.float32))
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()
