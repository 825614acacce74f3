"""A plug-in for vLLM: drafters score the LM-head rows of a list of tokens, in place of the whole head.

    SPECRT_TOKEN_MAP=model.specb SPECRT_SIZE=8192 vllm serve TARGET \\
        --speculative-config '{"method": "mtp", "num_speculative_tokens": 4}'

SPECRT_TOKEN_MAP names a bundle or a token map of any format, SPECRT_SIZE the number of a bundle's ids (default: the
calibrated size). SPECRT_WINDOW=W adds W tokens of each request's own (vllm_window.py). SPECRT_METRICS=FILE writes accept
length and coverage there while requests run (metrics.py). vLLM finds register() by its entry point vllm.general_plugins; without SPECRT_TOKEN_MAP it does nothing.

After vLLM has loaded a drafter, each of its head modules becomes a smaller one, a ParallelLMHead of the listed rows,
which every tensor-parallel rank has whole. The model's own code computes the logits: norms, scales, caps and the layer
of an MTP step stay vLLM's. The best of the listed logits becomes a token id after the choice; sampled drafts get
logits of the whole vocabulary, with -inf for unlisted tokens. Rows and ids keep their addresses, and no step waits for
the device, so that CUDA graphs can contain all of it. Both model runners of vLLM are covered. The target verifies with
its whole vocabulary, so the output stays the target's. It was never run on a GPU.
"""
from __future__ import annotations

import atexit
import importlib
import logging
import os
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from ._lib import SpecrtError
from .bundle import Bundle
from .maps import read_map
from .metrics import Exporter, Metrics
from .vllm_window import Rows, Widened, Window, follows

log = logging.getLogger("vllm.specrt")

# What the plug-in needs of vLLM: module, class, methods. tests/interop/newest.py looks for them in new releases.
HEADS = [("vllm.model_executor.layers.logits_processor", "LogitsProcessor",
          ("forward", "get_top_tokens", "get_top_k_tokens")),
         ("vllm.model_executor.layers.vocab_parallel_embedding", "ParallelLMHead", ("__init__",))]
DRAFTERS = {"V2": ("vllm.v1.worker.gpu.spec_decode.speculator", "DraftModelSpeculator", ("load_model", "sample_draft")),
            "V1": ("vllm.v1.spec_decode.llm_base_proposer", "SpecDecodeBaseProposer", ("load_model", "_greedy_sample"))}
WALK = [("vllm.v1.worker.gpu.spec_decode.dspark.speculator", "DSparkSpeculator", ("_sample_sequential",))]
RUNNERS = {"V2": ("vllm.v1.worker.gpu.model_runner", "GPUModelRunner", ("sample",)),
           "V1": ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", ("_sample",))}


@dataclass(frozen=True)
class Settings:
    path: str  # of a bundle or token map
    size: int  # 0: all of a map, a bundle's calibrated size
    metrics: str = ""  # file that metrics are written to; "": none
    window: int = 0  # tokens of each request's own; 0: none


def settings(environment: Any = os.environ) -> Settings | None:
    """What the environment asks for; None: nothing."""
    for name in "SPECRT_POLICY", "SPECRT_STOCK":
        if environment.get(name):
            raise SpecrtError(f"{name}: expected a list (SPECRT_TOKEN_MAP), found a setting of policies, which this plug-in "
                              "does not run any more (docs/decisions/vllm.md); unset it")
    path, size = environment.get("SPECRT_TOKEN_MAP", ""), environment.get("SPECRT_SIZE", "0")
    if not path:
        return None
    window = environment.get("SPECRT_WINDOW", "0")
    for name, number in ("SPECRT_SIZE", size), ("SPECRT_WINDOW", window):
        if not number.isdigit():
            raise SpecrtError(f"{name}: expected a whole number, found '{number}'")
    return Settings(path, int(size), environment.get("SPECRT_METRICS", ""), int(window))


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


def find(version: str, hooks: list[tuple[str, str, tuple[str, ...]]]) -> list[type]:
    """The classes of hooks. A vLLM that lacks one is refused by the name of what it lacks."""
    out = []
    for module, name, methods in hooks:
        try:
            out.append(getattr(importlib.import_module(module), name))
            missing = [f"{name}.{method}" for method in methods if not hasattr(out[-1], method)]
        except (ImportError, AttributeError):
            missing = [f"{module}.{name}"]
        if missing:
            raise SpecrtError(f"vLLM {version}: expected {missing[0]}, which the plug-in replaces, found none; unset "
                              "SPECRT_TOKEN_MAP, or take a specrt for this version")
    return out


BLOCK = "precompute_and_store_context_kv"  # a model that drafts blocks has this method


# --- the head of a list ---

@dataclass
class Columns:
    """The columns of a listed head's logits. All heads of a drafter share one."""
    ids: Any            # int64 [n] ascending: the token of each column; of a drafter with a d2t its place there
    chooses: bool       # whether the drafter's best column is chosen first and becomes a token afterwards
    table: Any          # of the logits at present: ids, or int64 [n_requests, n + W], the windows' tokens behind the list's
    narrow: bool = False  # the logits at present: [..., n], or [..., vocabulary] with -inf for unlisted tokens
    n_calls: int = 0    # how often logits were computed
    window: Any = None  # Window

    def widen(self, requests: Any) -> None:
        """The states to be scored are of requests int [n_requests], as many of each."""
        import torch
        own = self.window.tokens(requests)
        self.table = torch.cat([self.ids.expand(len(own), -1), own], 1)

    def of(self, n_states: int) -> Any:
        """The table of n_states states."""
        table = self.table
        return table if table is self.ids else table.repeat_interleave(n_states // len(table), 0)

    def tokens(self, columns: Any) -> Any:
        """The tokens of columns int64 [n_states]."""
        return self.of(len(columns)).expand(len(columns), -1).gather(1, columns[:, None])[:, 0]


def gather(head: Any, ids: Any) -> Any:
    """Rows [n, d] of a head for ids int64 [n], gathered over tensor-parallel ranks. The identity is multiplied by the head,
    which gives the rows of quantised and packed heads, too."""
    import torch
    from vllm.distributed import tensor_model_parallel_all_reduce
    shard = head.shard_indices
    mine = (ids >= shard.org_vocab_start_index) & (ids < shard.org_vocab_end_index)
    local = torch.where(mine, ids - shard.org_vocab_start_index, 0)
    identity = torch.eye(head.embedding_dim, dtype=head.params_dtype, device=ids.device)
    rows = torch.cat([head.quant_method.apply(head, part)[:, local].T for part in identity.split(256)], 1)
    rows = torch.where(mine[:, None], rows, 0)
    return rows if head.tp_size == 1 else tensor_model_parallel_all_reduce(rows.contiguous())


def listed_head(head: Any, columns: Columns) -> Any:
    """A ParallelLMHead with the rows of columns alone, whole on every rank."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    rows = gather(head, columns.ids)
    out = ParallelLMHead(*rows.shape, params_dtype=rows.dtype, disable_tp=True).to(rows.device)
    out.weight.data.zero_()  # of the rows that pad it
    out.weight.data[:len(rows)] = rows
    out.quant_method.process_weights_after_loading(out)
    out.specrt_columns = columns
    out._retain_weight_for_gather = out.is_w4a16_nvfp4 = False  # DSpark's top k asks its Markov head for these
    if columns.window is not None:
        out.quant_method = Widened(out.quant_method, columns, Rows(head, gather))
    return out


def heads(drafter: Any) -> list[tuple[Any, str, Any]]:
    """The head modules of a drafter's model: parent, name in it, module. Names what the plug-in cannot cut."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
    model = drafter.model
    name = type(model).__name__
    if getattr(model, "masked_embedding", None) is not None:
        raise SpecrtError(f"{name}: scores by ordered embeddings, which read few rows already; unset SPECRT_TOKEN_MAP")
    if getattr(drafter.speculative_config, "use_heterogeneous_vocab", False):
        raise SpecrtError(f"{name}: use_heterogeneous_vocab: expected a drafter of the target's vocabulary")
    found = [(parent, key, child) for parent in model.modules() for key, child in parent._modules.items()
             if isinstance(child, ParallelLMHead) or key == "lm_head" and isinstance(child, VocabParallelEmbedding)]
    if not found or hasattr(model, "sample_sequential"):
        raise SpecrtError(f"{name}: expected a head module (ParallelLMHead) that vLLM's code alone scores by, found "
                          f"{'kernels of its own' if found else 'none'}")
    if any(getattr(child, "bias", None) is not None for *_, child in found):
        raise SpecrtError(f"{name}: its head has a bias, which the plug-in leaves out")
    return found


def find_columns(model: Any, n_rows: int, ids: np.ndarray, device: Any) -> Columns:
    """The columns that ids have in a head of n_rows."""
    import torch
    ids = torch.from_numpy(np.sort(ids).astype(np.int64)).to(device)
    d2t = getattr(model, "draft_id_to_target_id", None)
    if d2t is not None:  # the model makes tokens of its columns
        ids = torch.isin(torch.arange(len(d2t), device=device) + d2t.to(device), ids).nonzero()[:, 0]
    if not len(ids) or int(ids[0]) < 0 or int(ids[-1]) >= n_rows:
        raise SpecrtError(f"ids: expected some in [0, {n_rows}), the drafter's vocabulary, found "
                          f"{int(ids[-1]) if len(ids) else 'none'}; the list is another model's")
    # EAGLE-3 models, those with a d2t, and Gemma 4 with suppressed tokens work on logits of the whole vocabulary.
    wide = d2t is not None or hasattr(model, "draft_id_to_target_id") and not hasattr(model, BLOCK)
    suppresses = any(value is not None for name, value in vars(model).items() if name.startswith("_suppress"))
    return Columns(ids, not wide and not suppresses, ids)


def make_window(drafter: Any, n_rows: int, ids: Any, width: int) -> Window:
    """Windows of `width` tokens beside the list ids int64 [n], for a head of n_rows."""
    model, name, most = drafter.model, type(drafter.model).__name__, n_rows - len(ids)
    if not hasattr(drafter, "sample_draft") or hasattr(model, "compute_candidates") or hasattr(drafter, "_jacobi_refine"):
        raise SpecrtError(f"{name}: SPECRT_WINDOW: expected a drafter of runner V2 whose drafts name their requests; unset it")
    if getattr(drafter, "_draft_topk", None):
        raise SpecrtError(f"{name}: SPECRT_WINDOW: expected no dspark_draft_topk, which reads the Markov head by the list's "
                          "columns; unset one of them")
    if getattr(model, "draft_id_to_target_id", None) is not None:
        raise SpecrtError(f"{name}: SPECRT_WINDOW: expected a drafter of the target's vocabulary, found a d2t; unset it")
    if width > most:
        raise SpecrtError(f"SPECRT_WINDOW: expected at most {most}, the rows beside the list, found {width}")
    drafter.use_local_argmax_reduction = False  # it sees the list's columns alone, which every rank has anyway
    log.info("specrt: %s has windows of %d tokens for up to %d requests", name, width, drafter.max_num_reqs)
    return Window(drafter.max_num_reqs, width, drafter.num_speculative_steps + 1, ids, n_rows)


def walk_in_columns(drafter: Any, columns: Columns) -> None:
    """DSpark adds its Markov head in the list's columns, as vLLM does for a d2t, and makes tokens of what it chose. Sampled
    drafts of windows alone have logits of the whole vocabulary."""
    whole, n_best, is_sampled = drafter.model.map_draft_to_target, drafter._draft_topk or 0, drafter.draft_logits is not None
    if n_best > len(columns.ids):
        raise SpecrtError(f"dspark_draft_topk: expected at most {len(columns.ids)}, the rows of the list, found {n_best}")
    if is_sampled and columns.window is not None:
        return
    columns.narrow = True
    drafter.model.map_draft_to_target = lambda found: whole(columns.tokens(found))
    if is_sampled:
        drafter._d2t_scatter_index = whole(columns.ids)
        drafter._draft_scatter_buf = drafter.draft_logits.new_full((drafter.max_num_reqs, drafter.vocab_size), float("-inf"))


def trim(drafter: Any, ids: np.ndarray, width: int = 0) -> Columns:
    """Replaces the heads of a loaded drafter. width: of its windows."""
    found, done = heads(drafter), {}
    head, model = found[0][2], drafter.model
    columns = find_columns(model, head.org_vocab_size, ids, next(model.parameters()).device)
    if width:
        columns.window = make_window(drafter, head.org_vocab_size, columns.ids, width)
    for parent, name, child in found:
        if child.org_vocab_size != head.org_vocab_size:
            raise SpecrtError(f"{type(model).__name__}: {name}: expected {head.org_vocab_size} rows, as its first head has, "
                              f"found {child.org_vocab_size}")
        if id(child) not in done:
            done[id(child)] = listed_head(child, columns)
        setattr(parent, name, done[id(child)])
    if hasattr(drafter, "_sample_sequential"):
        walk_in_columns(drafter, columns)
    log.info("specrt: %s scores %d of %d rows", type(model).__name__, len(columns.ids), head.org_vocab_size)
    return columns


# --- what is replaced in vLLM's classes, each once however often vLLM registers ---

def replace(owner: type, name: str, make: Callable[[Any], Any]) -> None:
    """Sets owner.name to make(owner.name)."""
    before = getattr(owner, name)
    if not hasattr(before, "specrt_before"):
        after = make(before)
        after.specrt_before = before
        setattr(owner, name, after)


def scores(forward: Any) -> Any:
    """LogitsProcessor.forward: of a listed head the logits of its columns, or of the vocabulary."""
    def listed(self: Any, lm_head: Any, *args: Any, **more: Any) -> Any:
        logits, columns = forward(self, lm_head, *args, **more), getattr(lm_head, "specrt_columns", None)
        if columns is None:
            return logits
        columns.n_calls += 1
        logits = logits[..., :columns.table.shape[-1]]
        if columns.narrow:
            return logits
        wide = logits.new_full((*logits.shape[:-1], self.org_vocab_size), float("-inf"))
        # Empty places of windows repeat a listed token, whose logit may round otherwise there: the larger one counts.
        return wide.scatter_reduce_(-1, columns.of(len(logits)).expand_as(logits), logits, "amax")
    return listed


def tops(top: Any) -> Any:
    """LogitsProcessor.get_top_tokens and get_top_k_tokens, whose ids are then columns."""
    def listed(self: Any, lm_head: Any, *args: Any, **more: Any) -> Any:
        found, columns = top(self, lm_head, *args, **more), getattr(lm_head, "specrt_columns", None)
        if columns is None:
            return found
        columns.n_calls += 1
        return (columns.ids[found[0]], *found[1:]) if isinstance(found, tuple) else columns.ids[found]
    return listed


def draws(draw: Any) -> Any:
    """sample_draft(hidden, positions, requests, ...) and _greedy_sample(hidden): where the best is wanted, it is chosen of
    the columns."""
    def listed(self: Any, *args: Any, **more: Any) -> Any:
        columns = getattr(self, "_specrt_columns", None)
        if columns is None:
            return draw(self, *args, **more)
        n_calls = columns.n_calls
        if columns.window is not None:
            columns.widen(args[2])
        columns.narrow = (columns.chooses and getattr(self, "draft_logits", None) is None
                          and not self.use_local_argmax_reduction)
        try:
            out = draw(self, *args, **more)
            if columns.n_calls == n_calls:
                raise SpecrtError(f"{type(self.model).__name__}: scores its head by code of its own; unset SPECRT_TOKEN_MAP")
            return columns.tokens(out) if columns.narrow else out
        finally:
            columns.narrow, columns.table = False, columns.ids
    return listed


def walks(walk: Any) -> Any:
    """_sample_sequential(n_requests, ...) of DSpark: the windows are those of its requests."""
    def listed(self: Any, n_requests: int, *args: Any) -> None:
        columns, n_steps = getattr(self, "_specrt_columns", None), self.num_speculative_steps
        if columns is None or columns.window is None:
            return walk(self, n_requests, *args)
        columns.widen(self.sample_idx_mapping[:n_requests * n_steps:n_steps])
        try:
            return walk(self, n_requests, *args)
        finally:
            columns.table = columns.ids
    return listed


def loads(wanted: Settings) -> Callable[[Any], Any]:
    def make(load: Any) -> Any:
        def load_model(self: Any, *args: Any, **more: Any) -> Any:
            out = load(self, *args, **more)
            self._specrt_columns = trim(self, read_ids(wanted), wanted.window)
            from vllm.distributed import get_tensor_model_parallel_rank
            if wanted.metrics and get_tensor_model_parallel_rank() == 0:
                self._specrt_count = Count(self.model, self._specrt_columns)
                self._specrt_count.exporter = export(self._specrt_count, wanted.metrics)
            return out
        return load_model
    return make


# --- metrics ---

class Count:
    """What a list covers of the passes that verify drafts. The sums are on the device; collect() alone waits for them."""

    def __init__(self, model: Any, columns: Columns) -> None:
        head = next(m for m in model.modules() if getattr(m, "specrt_columns", None) is columns)
        d2t, ids = getattr(model, "draft_id_to_target_id", None), columns.ids
        self.ids = ids if d2t is None else ids + d2t[ids]  # int64 [n], tokens
        self.n_rows, self.row_bytes = len(ids), head.embedding_dim * head.weight.element_size()
        self.sums = ids.new_zeros(4)  # cycles, emitted, covered, drafted

    def add(self, sampled: Any, n_sampled: Any, n_drafted: Any) -> None:
        """sampled: token ids [n, k], of which the first n_sampled [n] count. n_drafted: [n]."""
        import torch
        valid = torch.arange(sampled.shape[1], device=sampled.device) < n_sampled[:, None]
        valid &= n_drafted[:, None] > 0
        at = torch.searchsorted(self.ids, sampled.long().clamp(min=0)).clamp(max=self.n_rows - 1)
        covered = valid & (self.ids[at] == sampled)
        self.sums += torch.stack([(n_drafted > 0).sum(), valid.sum(), covered.sum(), n_drafted.clamp(min=0).sum()])

    def collect(self) -> Metrics:
        metrics, (cycles, emitted, covered, drafted) = Metrics(), self.sums.tolist()
        metrics.add(f"static:{self.n_rows}", {
            "cycles": cycles, "emitted_tokens": emitted, "covered_tokens": covered, "drafted_tokens": drafted,
            "scored_rows": cycles * self.n_rows, "read_bytes": drafted * self.n_rows * self.row_bytes})
        return metrics


def verdict_v2(out: Any, *_: Any) -> tuple[Any, Any, Any]:
    """What GPUModelRunner.sample of runner V2 says: sampled, n_sampled, n_drafted."""
    output, n_sampled, n_rejected = out
    return output.sampled_token_ids, n_sampled, n_sampled + n_rejected - 1


def verdict_v1(out: Any, _: Any, metadata: Any) -> tuple[Any, Any, Any] | None:
    """What GPUModelRunner._sample of runner V1 says; sampled is -1 behind what was accepted."""
    import torch
    if metadata is None:
        return None
    ends = metadata.cu_num_draft_tokens
    sampled = out.sampled_token_ids
    return sampled, (sampled >= 0).sum(1), torch.diff(ends, prepend=ends.new_zeros(1))


def counts(drafter: str, verdict: Callable[..., Any]) -> Callable[[Any], Any]:
    """A runner's sampling, which then counts for its attribute `drafter`."""
    def make(sample: Any) -> Any:
        def counted(self: Any, *args: Any) -> Any:
            out, count = sample(self, *args), getattr(getattr(self, drafter, None), "_specrt_count", None)
            found = verdict(out, *args) if count is not None else None
            if found is not None:
                count.add(*found)
                count.exporter.tick()
            return out
        return counted
    return make


def samples(wanted: Settings, runner: str, count: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What a runner's sampling becomes."""
    def make(sample: Any) -> Any:
        if wanted.window and runner == "V2":
            sample = follows(sample)
        return count(sample) if wanted.metrics else sample
    return make


def export(count: Count, path: str) -> Exporter:
    """Writes what a count collects, now, while it counts and at the end."""
    exporter = Exporter(path, count.collect)
    try:
        exporter.write()
    except OSError as error:
        raise SpecrtError(f"SPECRT_METRICS {path}: expected a file in a folder that is there, found: {error}") from None
    atexit.register(exporter.write)
    return exporter


# --- where vLLM samples without Triton ---

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


def is_there(module: str) -> bool:
    try:
        return importlib.import_module(module) is not None
    except ImportError:
        return False


def register() -> None:
    """vLLM's entry point; runs in every one of its processes."""
    wanted = settings()
    if wanted is None:
        return
    import vllm
    processor, _ = find(vllm.__version__, HEADS)
    replace(processor, "forward", scores)
    for name in "get_top_tokens", "get_top_k_tokens":
        replace(processor, name, tops)
    for runner, owner, verdict in ("V2", "speculator", verdict_v2), ("V1", "drafter", verdict_v1):
        if runner == "V1" and not is_there(DRAFTERS[runner][0]):
            continue  # deprecated, and one day gone
        [drafter] = find(vllm.__version__, [DRAFTERS[runner]])
        load, choose = DRAFTERS[runner][2]
        replace(drafter, load, loads(wanted))
        replace(drafter, choose, draws)
        if wanted.metrics or wanted.window and runner == "V2":
            [sampler] = find(vllm.__version__, [RUNNERS[runner]])
            replace(sampler, RUNNERS[runner][2][0], samples(wanted, runner, counts(owner, verdict)))
    if wanted.window:
        [drafter] = find(vllm.__version__, WALK)
        replace(drafter, WALK[0][2][0], walks)
    mend_sampling()
