#!/usr/bin/env python3
"""Golden rows for tests/specrt/test_rows.c: random blocks of every block format and what PyPI's `gguf`
decodes them to. Needs gguf and numpy. TYPE.bin holds the blocks, then the f32 values."""
import pathlib
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

# Where each format keeps its half-precision scales, in bytes from the start of a block.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0],
}
SCALES = [0.0123, -1.75, 6.0e-8, 300.0]  # ordinary, negative, subnormal, large

rng = np.random.default_rng(1)
folder = pathlib.Path(__file__).parent
for kind, halves in HALVES.items():
    elems, size = GGML_QUANT_SIZES[kind]
    n_blocks = 4 if elems == 32 else 2
    blocks = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)
    for i, block in enumerate(blocks):
        for j, at in enumerate(halves):
            scale = np.array([SCALES[(i + j) % 4] * rng.uniform(0.9, 1.1)], np.float16)
            block[at:at + 2] = scale.view(np.uint8)
    row = blocks.reshape(-1)
    values = dequantize(row, kind).astype("<f4")
    assert values.size == n_blocks * elems and np.isfinite(values).all()
    (folder / f"{kind.name.lower()}.bin").write_bytes(row.tobytes() + values.tobytes())
