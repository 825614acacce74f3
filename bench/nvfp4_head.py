#!/usr/bin/env python3
"""nvfp4_head.py MODEL.gguf OUT.gguf : the head of a model, rounded to NVFP4 and stored in f16, so that
`specrt-eval replay --model OUT.gguf --policy full@head=q8_0` says what an NVFP4 head accepts: q8_0 adds a twentieth of
its error. NVFP4 has 16 columns to a scale in E4M3 and an f32 scale for all, here the one that puts the largest scale at
448. Rows are rounded to the nearest. `scales=4` also tries each block with its largest weight at 4 and takes what is
nearer ("four over six")."""
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E4M3 = np.array([m * 2.0 ** -9 for m in range(8)]
                + [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)][:-1], np.float32)


def nearest(x, values):
    return values[np.searchsorted((values[1:] + values[:-1]) / 2, x)]


def rounded(rows, whole, tops):
    """Rows [n, d] by a scale for all; tops: what the largest weight of a block may become."""
    x = (rows / whole).reshape(len(rows), -1, 16)
    best = least = None
    for top in tops:
        scale = nearest(np.abs(x).max(-1, keepdims=True) / top, E4M3)
        y = np.sign(x) * nearest(np.abs(x) / np.where(scale > 0, scale, 1), E2M1) * scale
        error = ((y - x) ** 2).sum(-1, keepdims=True)
        best = y if best is None else np.where(error < least, y, best)
        least = error if least is None else np.minimum(error, least)
    return best.reshape(rows.shape) * whole


def main():
    model, out = sys.argv[1:3]
    tensors = {t.name: t for t in gguf.GGUFReader(model).tensors}
    head = tensors.get("output.weight", tensors["token_embd.weight"])
    rows = dequantize(head.data, head.tensor_type).astype(np.float32)
    whole, tops = np.abs(rows).max() / (6 * 448), [6, 4] if "scales=4" in sys.argv[3:] else [6]
    half = np.concatenate([rounded(rows[i:i + 8192], whole, tops).astype(np.float16) for i in range(0, len(rows), 8192)])
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_tensor("output.weight", half)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
