"""A plug-in for vLLM: drafters that score the target's whole head score a list's rows alone.

    SPECRT_TOKEN_MAP=model.specb SPECRT_SIZE=8192 vllm serve TARGET \\
        --speculative-config '{"method": "eagle", "model": "DRAFTER", "num_speculative_tokens": 4}'

SPECRT_TOKEN_MAP names a bundle or a token map of any format, SPECRT_SIZE how many of a bundle's ids (the calibrated
size). vLLM finds register() by its entry point vllm.general_plugins; without SPECRT_TOKEN_MAP it does nothing. For EAGLE-1/2
heads and draft models; the embedding stays whole, and the target verifies with its whole vocabulary, so the output
stays the target's. What it cannot do right it refuses, in one line, before anything is served.
"""
from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._lib import SpecrtError
from .bundle import Bundle
from .maps import read_map

VERSIONS = ("0.32",)  # of vLLM, whose proposer was read
log = logging.getLogger("vllm.specrt")


@dataclass(frozen=True)
class Settings:
    path: str
    size: int  # 0: all of a map, a bundle's calibrated size


def settings(environment: Any = os.environ) -> Settings | None:
    """What the environment asks for; None: nothing."""
    path, size = environment.get("SPECRT_TOKEN_MAP"), environment.get("SPECRT_SIZE", "0")
    if not path:
        return None
    if not size.isdigit():
        raise SpecrtError(f"SPECRT_SIZE: expected a whole number, found '{size}'")
    return Settings(path, int(size))


def read_ids(wanted: Settings) -> np.ndarray:
    """Target ids int32 [n], by rank where the file has ranks."""
    with open(wanted.path, "rb") as file:
        is_bundle = file.read(6) == b"\x89SPECB"
    if is_bundle:
        with Bundle(wanted.path) as bundle:
            return bundle.ids(wanted.size)
    ids = read_map(wanted.path)
    if wanted.size > len(ids):
        raise SpecrtError(f"{wanted.path}: SPECRT_SIZE {wanted.size}: expected at most {len(ids)}, its ids")
    return ids[:wanted.size or len(ids)]


def check_version(version: str) -> None:
    if ".".join(version.split(".")[:2]) not in VERSIONS:
        raise SpecrtError(f"vLLM {version}: expected {' or '.join(VERSIONS)}, whose drafters specrt knows; unset "
                          "SPECRT_TOKEN_MAP, or take a specrt for this version")


def check_drafter(model: Any, ids: np.ndarray, n_vocab: int, tensor_parallel: int) -> None:
    """Refuses what would draft wrong tokens silently."""
    name = type(model).__name__
    if tensor_parallel != 1:
        raise SpecrtError(f"{name}: tensor parallel size {tensor_parallel}: expected 1; a list's rows lie in all shards")
    if getattr(model, "draft_id_to_target_id", None) is not None:
        raise SpecrtError(f"{name}: has a d2t of its own; cut it by `specrt-bundle export --drafter DIR --for vllm`")
    if len(ids) == 0 or int(ids.min()) < 0 or int(ids.max()) >= n_vocab:
        raise SpecrtError(f"{name}: expected ids in [0, {n_vocab}), the drafter's vocabulary, found "
                          f"{int(ids.max()) if len(ids) else 'none'}; the list is another model's")
    if getattr(getattr(model, "logits_processor", None), "soft_cap", None) is not None:
        raise SpecrtError(f"{name}: caps its logits, which the plug-in does not")


def find_head(model: Any, target: Any, n_vocab: int) -> Any:
    """The matrix [n_vocab or more, d] that the drafter scores by. On a CPU vLLM packs weights and empties them:
    then the target's, which such a drafter shares."""
    inner = getattr(target, "model", None)
    for owner in (getattr(model, "lm_head", None), getattr(target, "lm_head", None),
                  getattr(inner, "embed_tokens", None)):
        weight = getattr(owner, "weight", None)
        if weight is None or not weight.numel():
            continue
        if getattr(owner, "bias", None) is not None:
            raise SpecrtError(f"{type(model).__name__}: its head has a bias, which the plug-in leaves out")
        if weight.dim() != 2 or weight.shape[0] < n_vocab or not weight.is_floating_point():
            raise SpecrtError(f"{type(model).__name__}: expected a head [{n_vocab}, d] of floats, found "
                              f"{weight.dtype} {list(weight.shape)}; quantised heads are not cut")
        return weight
    raise SpecrtError(f"{type(model).__name__}: has no head, and the target shows none")


def trim(proposer: Any, target: Any, ids: np.ndarray, tensor_parallel: int) -> None:
    """Makes the proposer's model score the rows of ids alone."""
    import torch
    model = proposer.model
    n_vocab = model.config.vocab_size
    check_drafter(model, ids, n_vocab, tensor_parallel)
    head = find_head(model, target, n_vocab)
    index = torch.from_numpy(ids.astype(np.int64)).to(head.device)
    rows = head.detach()[index].clone()
    scale = getattr(getattr(model, "logits_processor", None), "scale", 1.0)

    def compute_logits(hidden: Any, *_: Any, **__: Any) -> Any:
        small = hidden @ rows.T
        out = small.new_full((*small.shape[:-1], n_vocab), float("-inf"))
        out[..., index] = small if scale == 1.0 else small * scale
        return out

    model.compute_logits = compute_logits
    if hasattr(proposer, "_greedy_sample"):
        proposer._greedy_sample = lambda hidden: index[(hidden @ rows.T).argmax(-1)]
    log.info("specrt: %s scores %d of %d rows", type(model).__name__, len(ids), head.shape[0])


def patch(proposer: type, ids: np.ndarray) -> None:
    """Trims drafters of this class as they are loaded; once, however often it is asked."""
    if getattr(proposer, "_specrt_list", None) is not None:
        return
    load = proposer.load_model

    def load_model(self: Any, target_model: Any, *args: Any, **more: Any) -> Any:
        out = load(self, target_model, *args, **more)
        parallel = getattr(getattr(self, "vllm_config", None), "parallel_config", None)
        trim(self, target_model, ids, getattr(parallel, "tensor_parallel_size", 1))
        return out

    proposer._specrt_list = ids
    proposer.load_model = load_model


def register() -> None:
    """vLLM's entry point; runs in every one of its processes."""
    wanted = settings()
    if wanted is None:
        return
    import vllm
    check_version(vllm.__version__)
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
    patch(SpecDecodeBaseProposer, read_ids(wanted))
