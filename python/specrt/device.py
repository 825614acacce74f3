"""The structs of specrt_cuda.h, and memory of libspecrt_cuda.so as tensors, for programs that call it by ctypes, as
examples/torch_host.py does. It was never run on a GPU."""
from __future__ import annotations

import ctypes as C
from typing import Any

import numpy as np

from ._lib import CSampling, CTreeParams, MAX_NODES

# int32 words of specrt_cuda_beam, specrt_cuda_draft and specrt_verdict.
BEAM_WORDS, DRAFT_WORDS, VERDICT_WORDS = 1 + 3 * MAX_NODES, 2 + 8 * MAX_NODES, 4 + 2 * MAX_NODES


class CCudaPolicyDesc(C.Structure):
    _fields_ = [("rows", C.c_void_p), ("row_stride", C.c_size_t), ("embedding", C.c_void_p),
                ("embedding_stride", C.c_size_t)]


class CCudaSessionParams(C.Structure):
    _fields_ = [("tree", CTreeParams), ("sampling", CSampling), ("n_batch", C.c_int32), ("n_logits", C.c_int32),
                ("hidden", C.c_int), ("draft", C.c_int), ("draft_temperature", C.c_float), ("stock", C.c_int32),
                ("n_block", C.c_int32), ("p_min", C.c_float), ("confidence_bias", C.c_float), ("confidence", C.c_void_p)]


class CCudaView(C.Structure):
    _fields_ = [("beam", C.c_void_p), ("draft", C.c_void_p), ("verdict", C.c_void_p), ("states", C.c_void_p),
                ("n_batch", C.c_int32), ("topk", C.c_int32), ("num_steps", C.c_int32),
                ("num_draft_tokens", C.c_int32), ("n_logits", C.c_int32), ("width", C.c_int32),
                ("n_bytes", C.c_size_t), ("side", C.c_void_p)]


class _Words:
    """Memory of the library as torch takes it."""

    def __init__(self, address: int, shape: tuple[int, int]) -> None:
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<i4", "data": (address, False), "version": 2}


def words(address: int, shape: tuple[int, int], device: Any) -> Any:
    """Memory of the library as an int32 tensor that shares it."""
    import torch
    if device.type == "cuda":
        return torch.as_tensor(_Words(address, shape), device=device)
    raw = (C.c_int32 * (shape[0] * shape[1])).from_address(address)
    return torch.from_numpy(np.ctypeslib.as_array(raw).reshape(shape))
