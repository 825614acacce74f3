"""A plug-in for vLLM: drafters that score the target's whole head score a list's rows, or a policy's, alone.

    SPECRT_TOKEN_MAP=model.specb SPECRT_SIZE=8192 vllm serve TARGET \\
        --speculative-config '{"method": "eagle", "model": "DRAFTER", "num_speculative_tokens": 4}'
    SPECRT_POLICY=microspec vllm serve ...       # rows that follow each sequence

SPECRT_TOKEN_MAP names a bundle or a token map of any format, SPECRT_SIZE how many of a bundle's ids (the calibrated
size); SPECRT_POLICY a policy in specrt.h's grammar, for which SPECRT_TOKEN_MAP names its bundle, where it needs one;
SPECRT_STOCK whether its sessions hold their packed rows together: 1 or 0; unset: where vLLM may batch sequences.
SPECRT_METRICS=FILE writes accept length, coverage and more there, while requests run (metrics.py).
On a GPU a policy needs libspecrt_cuda.so, which SPECRT_CUDA_LIBRARY names (device.py). It was never run on a GPU.
vLLM finds register() by its entry point vllm.general_plugins; with neither variable it does nothing. For EAGLE-1/2
heads and draft models; the embedding stays whole, and the target verifies with its whole vocabulary, so the output
stays the target's. What it cannot do right it refuses, in one line, before anything is served.
"""
from __future__ import annotations

import atexit
import logging
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._lib import SpecrtError
from .bundle import Bundle
from .maps import read_map
from .metrics import Exporter, Metrics
from .session import Head, Policy, Stock

VERSIONS = ("0.32",)  # of vLLM, whose proposer was read
log = logging.getLogger("vllm.specrt")


@dataclass(frozen=True)
class Settings:
    path: str       # of a bundle or token map; "": none
    size: int       # 0: all of a map, a bundle's calibrated size
    policy: str = ""  # "": the list
    stock: bool | None = None  # whether its sessions share the rows that they pack; None: those of a batch
    metrics: str = ""  # file that metrics are written to; "": none
    cuda: str = ""  # libspecrt_cuda.so; "": where the loader looks, if the drafter is on a GPU


def settings(environment: Any = os.environ) -> Settings | None:
    """What the environment asks for; None: nothing."""
    path, policy = environment.get("SPECRT_TOKEN_MAP", ""), environment.get("SPECRT_POLICY", "")
    size = environment.get("SPECRT_SIZE", "0")
    if not path and not policy:
        return None
    if not size.isdigit():
        raise SpecrtError(f"SPECRT_SIZE: expected a whole number, found '{size}'")
    stock = environment.get("SPECRT_STOCK", "")
    if stock not in ("", "0", "1"):
        raise SpecrtError(f"SPECRT_STOCK: expected 0 or 1, found '{stock}'")
    if stock and not policy:
        raise SpecrtError("SPECRT_STOCK: expected SPECRT_POLICY beside it; a list's rows are shared without")
    if policy and int(size):
        raise SpecrtError(f"SPECRT_SIZE {size}: expected none beside SPECRT_POLICY; write the size into the policy")
    return Settings(path, int(size), policy, stock == "1" if stock else None, environment.get("SPECRT_METRICS", ""),
                    environment.get("SPECRT_CUDA_LIBRARY", ""))


def is_bundle(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(6) == b"\x89SPECB"


def read_ids(wanted: Settings) -> np.ndarray:
    """Target ids int32 [n], by rank where the file has ranks."""
    if is_bundle(wanted.path):
        with Bundle(wanted.path) as bundle:
            return bundle.ids(wanted.size)
    ids = read_map(wanted.path)
    if wanted.size > len(ids):
        raise SpecrtError(f"{wanted.path}: SPECRT_SIZE {wanted.size}: expected at most {len(ids)}, its ids")
    return ids[:wanted.size or len(ids)]


def check_version(version: str) -> None:
    if ".".join(version.split(".")[:2]) not in VERSIONS:
        raise SpecrtError(f"vLLM {version}: expected {' or '.join(VERSIONS)}, whose drafters specrt knows; unset "
                          "SPECRT_TOKEN_MAP and SPECRT_POLICY, or take a specrt for this version")


def check_drafter(proposer: Any, tensor_parallel: int) -> None:
    """Refuses what would draft wrong tokens silently."""
    model = proposer.model
    name = type(model).__name__
    if tensor_parallel != 1:
        raise SpecrtError(f"{name}: tensor parallel size {tensor_parallel}: expected 1; a list's rows lie in all shards")
    if getattr(model, "draft_id_to_target_id", None) is not None:
        raise SpecrtError(f"{name}: has a d2t of its own; cut it by `specrt-bundle export --drafter DIR --for vllm`")
    if getattr(getattr(model, "logits_processor", None), "soft_cap", None) is not None:
        raise SpecrtError(f"{name}: caps its logits, which the plug-in does not")
    if getattr(proposer, "use_heterogeneous_vocab", False):
        raise SpecrtError(f"{name}: use_heterogeneous_vocab: expected a drafter of the target's vocabulary")


def check_ids(ids: np.ndarray, n_vocab: int) -> None:
    """Refuses another model's list."""
    if len(ids) == 0 or int(ids.min()) < 0 or int(ids.max()) >= n_vocab:
        raise SpecrtError(f"ids: expected some in [0, {n_vocab}), the drafter's vocabulary, found "
                          f"{int(ids.max()) if len(ids) else 'none'}; the list is another model's")


def check_following(proposer: Any, weight: Any) -> None:
    """Refuses what sessions of a policy cannot draft for."""
    if weight.device.type not in ("cpu", "cuda"):
        raise SpecrtError(f"SPECRT_POLICY: expected a drafter on a CPU or a CUDA device, found {weight.device}; take a "
                          "list there")
    if getattr(proposer, "_enable_probabilistic_draft_probs", False):
        raise SpecrtError("SPECRT_POLICY: expected draft_sample_method greedy, found probabilistic; take a list for that")
    if getattr(proposer, "parallel_drafting", False):
        raise SpecrtError("SPECRT_POLICY: expected drafts token by token, found parallel_drafting; take a list for that")
    if getattr(getattr(proposer, "speculative_config", None), "disable_padded_drafter_batch", False):
        raise SpecrtError("SPECRT_POLICY: expected padded batches, found disable_padded_drafter_batch; leave it out")


def find_head(model: Any, target: Any, n_vocab: int) -> Any:
    """The matrix [n_vocab or more, d] that the drafter scores by. On a CPU vLLM may pack weights and empty them: then
    the one that such a drafter shares, its own embedding or something of the target's."""
    own, inner, tied = getattr(model, "lm_head", None), getattr(target, "model", None), getattr(model, "model", None)
    shared = getattr(getattr(model, "config", None), "tie_word_embeddings", False)
    places = [own, getattr(tied, "embed_tokens", None) if shared else None]
    if own is None or own is getattr(target, "lm_head", None) or not getattr(model, "has_own_lm_head", True):
        places += [getattr(target, "lm_head", None), getattr(inner, "embed_tokens", None)]
    for owner in places:
        weight = getattr(owner, "weight", None)
        if weight is None or not weight.numel():
            continue
        if getattr(owner, "bias", None) is not None:
            raise SpecrtError(f"{type(model).__name__}: its head has a bias, which the plug-in leaves out")
        if weight.dim() != 2 or weight.shape[0] < n_vocab or not weight.is_floating_point():
            raise SpecrtError(f"{type(model).__name__}: expected a head [{n_vocab}, d] of floats, found "
                              f"{weight.dtype} {list(weight.shape)}; quantised heads are not cut")
        return weight
    raise SpecrtError(f"{type(model).__name__}: shows no head, nor does what it shares of the target")


class ListCount:
    """What a list covers of the passes that verify drafts. Sums stay on the device until they are asked for."""

    reads_plain = False

    def __init__(self, text: str, index: Any, n_vocab: int, row_bytes: int) -> None:
        self.text, self.n_rows, self.row_bytes = text, len(index), row_bytes
        self.member = index.new_zeros(n_vocab).index_fill_(0, index, 1)
        self.tokens = index.new_zeros(2)  # emitted, covered
        self.n_cycles = self.n_drafted = 0

    def verified(self, runner: Any, logits: Any, metadata: Any, sampled: Any) -> None:
        """As Sequences.verified(); sampled [n_sequences, n], -1 behind what was accepted."""
        drafts = metadata.num_draft_tokens
        self.n_cycles += sum(n > 0 for n in drafts)
        self.n_drafted += sum(drafts)
        rows = sampled[self.member.new_tensor(drafts) > 0].long()
        emitted = rows >= 0
        self.tokens[0] += emitted.sum()
        self.tokens[1] += (self.member[rows.clamp(min=0)] * emitted).sum()

    def collect(self) -> Metrics:
        metrics, (emitted, covered) = Metrics(), self.tokens.tolist()
        metrics.add(self.text, {
            "cycles": self.n_cycles, "emitted_tokens": emitted, "covered_tokens": covered, "drafted_tokens": self.n_drafted,
            "scored_rows": self.n_cycles * self.n_rows, "read_bytes": self.n_drafted * self.n_rows * self.row_bytes})
        return metrics


def trim(proposer: Any, head: Any, ids: np.ndarray) -> None:
    """Makes the proposer's model score the rows of ids alone."""
    import torch
    model = proposer.model
    n_vocab = model.config.vocab_size
    check_ids(ids, n_vocab)
    index = torch.from_numpy(ids.astype(np.int64)).to(head.device)
    rows = head.detach()[index].clone()
    scale = getattr(getattr(model, "logits_processor", None), "scale", 1.0)

    def compute_logits(hidden: Any, *_: Any, **__: Any) -> Any:
        small = hidden @ rows.T
        out = small.new_full((*small.shape[:-1], n_vocab), float("-inf"))
        out[..., index] = small if scale == 1.0 else small * scale
        return out

    model.compute_logits = compute_logits
    proposer._specrt_watch = ListCount(f"static:{len(ids)}", index, n_vocab, head.shape[1] * head.element_size())
    if hasattr(proposer, "_greedy_sample"):
        proposer._greedy_sample = lambda hidden: index[(hidden @ rows.T).argmax(-1)]
    log.info("specrt: %s scores %d of %d rows", type(model).__name__, len(ids), head.shape[0])


def follow(proposer: Any, head: Any, wanted: Settings) -> None:
    """Makes the proposer draft by a policy, with a session for each sequence of the batch."""
    check_following(proposer, head)
    on_device = bool(wanted.cuda) or head.device.type == "cuda"
    if on_device:
        from .device import DeviceSequences, cuda_library
        cuda_library(wanted.cuda)
    else:
        from .sequences import Sequences
    if wanted.path and not is_bundle(wanted.path):
        raise SpecrtError(f"{wanted.path}: expected a bundle beside SPECRT_POLICY, found a token map")
    n_vocab = proposer.model.config.vocab_size
    rows = head.detach()[:n_vocab]
    policy = Policy(wanted.policy, Head(rows.cpu()), Bundle(wanted.path) if wanted.path else None)
    if policy.hidden_width:
        raise SpecrtError(f"SPECRT_POLICY {policy}: reads the target's hidden states, which vLLM does not show; "
                          "for retrieve say @sem=logits")
    scheduler = getattr(getattr(proposer, "vllm_config", None), "scheduler_config", None)
    n_batch = getattr(scheduler, "max_num_seqs", 1)
    stock = n_batch > 1 if wanted.stock is None else wanted.stock
    if on_device:
        proposer._specrt_watch = DeviceSequences(policy, rows, proposer, n_batch, stock)
    else:
        proposer._specrt_watch = Sequences(policy, proposer, Stock(policy.head) if stock else None,
                                           1 if wanted.stock else 2)
    log.info("specrt: %s drafts by %s, at most %d of %d rows%s", type(proposer.model).__name__, policy, policy.bound,
             n_vocab, ", packed once for all sequences of a batch" if stock else "")


def patch(proposer: type, wanted: Settings) -> None:
    """Fits drafters of this class as they are loaded; once, however often it is asked."""
    if getattr(proposer, "_specrt", None) is not None:
        return
    load = proposer.load_model

    def load_model(self: Any, target_model: Any, *args: Any, **more: Any) -> Any:
        out = load(self, target_model, *args, **more)
        parallel = getattr(getattr(self, "vllm_config", None), "parallel_config", None)
        check_drafter(self, getattr(parallel, "tensor_parallel_size", 1))
        head = find_head(self.model, target_model, self.model.config.vocab_size)
        if wanted.policy:
            follow(self, head, wanted)
        else:
            trim(self, head, read_ids(wanted))
        if wanted.metrics:
            export(self._specrt_watch, wanted.metrics)
        return out

    proposer._specrt = wanted
    proposer.load_model = load_model


def export(watch: Any, path: str) -> None:
    """Writes what the watch of a proposer collects, now, while it watches and at the end."""
    watch.exporter = Exporter(path, watch.collect)
    try:
        watch.exporter.write()
    except OSError as error:
        raise SpecrtError(f"SPECRT_METRICS {path}: expected a file in a folder that is there, found: {error}") from None
    atexit.register(watch.exporter.write)


def patch_runner(runner: type) -> None:
    """Lets the watch of a proposer, sessions or a list, see what the target said at the positions that it verified."""
    if getattr(runner, "_specrt", None) is not None:
        return
    sample = runner._sample

    def _sample(self: Any, logits: Any, metadata: Any) -> Any:
        watch = getattr(getattr(self, "drafter", None), "_specrt_watch", None)
        if watch is None or (metadata is None and not watch.reads_plain):
            return sample(self, logits, metadata)
        kept = logits.clone() if metadata is None else logits  # a sampler without drafts writes into them
        out = sample(self, logits, metadata)
        watch.verified(self, kept, metadata, out.sampled_token_ids)
        if getattr(watch, "exporter", None):
            watch.exporter.tick()
        return out

    runner._specrt, runner._sample = True, _sample


def spread(x: Any, ends: Any, n: int, replace_from: int = 0, replace_to: int = 0) -> Any:
    """x [n_sequences], each for all of its drafts [n], whose counts add up to `ends` [n_sequences]."""
    import torch
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    return torch.where(x == replace_from, replace_to, x).to(x.dtype).repeat_interleave(counts, output_size=n)


def mend_sampling() -> None:
    """Without Triton vLLM 0.32 fills a copy with the temperature, top_k and top_p of each draft, and verifies by
    memory that nobody wrote (vllm#55005: _expand_kernel_impl of vllm/utils/cpu_triton_utils.py): no target's distribution."""
    from vllm.triton_utils import HAS_TRITON
    if HAS_TRITON:
        return
    from vllm.v1.sample import rejection_sampler
    constrain = rejection_sampler.apply_sampling_constraints
    if constrain.__module__ == __name__:
        return

    def apply_sampling_constraints(logits: Any, *rest: Any) -> Any:
        return constrain(logits, *rest) if len(logits) else logits  # top_k of no drafts has no maximum

    rejection_sampler.expand_batch_to_tokens = spread
    rejection_sampler.apply_sampling_constraints = apply_sampling_constraints
    log.info("specrt: mends how vLLM samples with drafts where there is no Triton (vllm#55005)")


def refuse_v2() -> None:
    """vLLM's second model runner has speculators of its own, which nothing here reaches: it says so."""
    try:
        from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator
    except ImportError:
        return

    def load_model(*_: Any, **__: Any) -> None:
        raise SpecrtError("vLLM's model runner V2: expected V1, whose drafters specrt knows; set "
                          "VLLM_USE_V2_MODEL_RUNNER=0")

    DraftModelSpeculator.load_model = load_model


def register() -> None:
    """vLLM's entry point; runs in every one of its processes."""
    wanted = settings()
    if wanted is None:
        return
    import vllm
    check_version(vllm.__version__)
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
    refuse_v2()
    mend_sampling()
    patch(SpecDecodeBaseProposer, wanted)
    if wanted.policy or wanted.metrics:
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner
        patch_runner(GPUModelRunner)
