"""Token maps: lists of target ids in the formats of other engines (docs/TOKEN_MAPS.md)."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from . import _tool
from ._lib import SpecrtError, ints

FORMATS = ("sglang-pt", "vllm-json", "text", "npy", "speculators", "eagle3-pt", "safetensors", "mtplx")


def read_map(path: str | os.PathLike[str], values: str | None = None, n_vocab: int = 0,
             dedupe: bool = False) -> np.ndarray:
    """The target ids of a map in any format, told by content: int32 [n] in its own order.

    values: "absolute" or "offset" where both readings fit, "blocks" for exllamav3's list. n_vocab: ids must be below
    it; 0: unknown. dedupe: keep the first of ids that are listed twice, which are an error otherwise.
    """
    flags = ["--values", values] if values else []
    flags += ["--n-vocab", n_vocab] if n_vocab else []
    flags += ["--dedupe"] if dedupe else []
    text = _tool.run("map", _tool.file(path), "--format", "text", "-o", "-", "-q", *flags)
    return np.array(text.split(), np.int32)


def write_map(ids: Any, path: str | os.PathLike[str], format: str, n_vocab: int = 0,
              force: bool = False) -> None:
    """Writes target ids [n] as one of FORMATS; the forms with d2t ascend. Nothing is there on an error.

    n_vocab: rows of the target's head, the length of t2d; needed by forms that have one.
    """
    if format not in FORMATS:
        raise SpecrtError(f"format '{format}': expected one of {', '.join(FORMATS)}")
    flags = ["--n-vocab", n_vocab] if n_vocab else []
    _tool.run("map", "/dev/stdin", "--values", "absolute", "--format", format, "-o", _tool.file(path), "-q",
              *flags, *(["-f"] if force else []), input="\n".join(map(str, ints(ids, "ids").tolist())) + "\n")
