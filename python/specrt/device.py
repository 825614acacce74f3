"""Sessions on a GPU for the batches of vLLM's drafter. THIS FILE WAS NEVER RUN ON A GPU: tests/python/test_device.py runs
it over the CUDA kernels on a CPU.

libspecrt_cuda.so has one session for a whole batch. Each sequence of vLLM gets an entry of that session, its slot; rows
that the policy packed once are multiplied once for all slots. Every call and every copy goes into vLLM's stream, and none
waits for the device, except prompts under retrieve@prompt and metrics. All that the host decides follows from what vLLM's
host knows while the device still works: which requests a step has, how many tokens each read, and which may sample.
vLLM captures pieces of the drafter's model, never what is between them, so that nothing here is captured
(docs/decisions/vllm-gpu.md).
"""
from __future__ import annotations

import ctypes as C
from typing import Any

import numpy as np

from ._lib import (CError, CSampling, CStats, CTreeParams, DTYPES, Library, MAX_NODES, Owner, SpecrtError, library,
                   refusal)
from .metrics import Metrics, sums
from .sequences import BLOCK, Sequences
from .session import Policy, Stats

# int32 words of specrt_cuda_beam, specrt_cuda_draft and specrt_verdict, and where their arrays begin.
BEAM_WORDS, DRAFT_WORDS, VERDICT_WORDS = 1 + 3 * MAX_NODES, 2 + 8 * MAX_NODES, 4 + 2 * MAX_NODES
TOKENS, NODES = 1, 1 + MAX_NODES  # of a draft and a verdict; of a verdict
N_SUMS = len(Stats.__dataclass_fields__)  # which CStats begins with


class CCudaPolicyDesc(C.Structure):
    _fields_ = [("rows", C.c_void_p), ("row_stride", C.c_size_t), ("embedding", C.c_void_p),
                ("embedding_stride", C.c_size_t)]


class CCudaSessionParams(C.Structure):
    _fields_ = [("tree", CTreeParams), ("sampling", CSampling), ("n_batch", C.c_int32), ("n_logits", C.c_int32),
                ("hidden", C.c_int), ("draft", C.c_int), ("draft_temperature", C.c_float), ("stock", C.c_int32)]


class CCudaView(C.Structure):
    _fields_ = [("beam", C.c_void_p), ("draft", C.c_void_p), ("verdict", C.c_void_p), ("states", C.c_void_p),
                ("n_batch", C.c_int32), ("topk", C.c_int32), ("num_steps", C.c_int32),
                ("num_draft_tokens", C.c_int32), ("n_logits", C.c_int32), ("width", C.c_int32),
                ("n_bytes", C.c_size_t), ("side", C.c_void_p)]


def cuda_library(path: str = "") -> Library:
    """libspecrt_cuda.so, from now on in place of libspecrt.so, whose functions it has. path: "": where the loader looks."""
    lib = library(path or "libspecrt_cuda.so")
    if not hasattr(lib.lib, "specrt_cuda_open"):
        raise SpecrtError(f"{lib.path}: expected libspecrt_cuda.so, found a library without GPU sessions; `make cuda` builds it")
    lib.cuda_session_last_error.restype = C.POINTER(CError)
    lib.call("cuda_open")
    return lib


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


class DevicePolicy(Owner):
    """A policy on the device that `rows` is on: the drafter's head, borrowed."""

    _close = "cuda_policy_close"

    def __init__(self, policy: Policy, rows: Any) -> None:
        self.policy, self.keep = policy, rows
        desc = CCudaPolicyDesc(rows.data_ptr(), rows.stride(0) * rows.element_size())
        self._own(policy._lib, (policy,), "cuda_policy_create", policy.handle, C.byref(desc))


class DeviceSession(Owner):
    """A batch of greedy chains of n_steps tokens: specrt_cuda.h's calls, in torch's current stream."""

    _close = "cuda_session_close"

    def __init__(self, policy: DevicePolicy, n_batch: int, n_steps: int, stock: bool) -> None:
        rows = policy.keep
        self.device, n_nodes = rows.device, n_steps + 1
        # One step more than is drafted, so that every pass has a beam after it.
        params = CCudaSessionParams(tree=CTreeParams(n_steps + 1, 1, n_nodes), n_batch=n_batch, n_logits=rows.shape[0],
                                    hidden=DTYPES[str(rows.dtype).split(".")[-1]], stock=int(stock))
        self._own(policy._lib, (policy,), "cuda_session_create", policy.handle, C.byref(params))
        view = CCudaView()
        self._lib.cuda_session_get_view(self.handle, C.byref(view))
        self.beam = words(view.beam, (n_batch, BEAM_WORDS), self.device)
        self.draft = words(view.draft, (n_batch, DRAFT_WORDS), self.device)
        self.verdict = words(view.verdict, (n_batch, VERDICT_WORDS), self.device)

    def call(self, name: str, *args: Any) -> None:
        """args: numbers, None, and tensors on the device."""
        import torch
        stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0
        pointers = [C.c_void_p(a.data_ptr()) if torch.is_tensor(a) else a for a in args]
        status = getattr(self._lib, "cuda_session_" + name)(self.handle, *pointers, C.c_void_p(stream))
        if not status:
            return
        refused = self._lib.cuda_session_last_error(self.handle).contents
        if refused.status == status:
            raise refusal(status, b"specrt_cuda_session_" + refused.msg)
        err = CError()
        self._lib.cuda_check(C.byref(err))
        raise refusal(status, f"specrt_cuda_session_{name}: ".encode() + (err.msg or self._lib.status_name(status)))


class Slot:
    """A sequence of vLLM, and what the host knows of its entry of the session."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.n_read = 0       # prompt tokens that the session knows
        self.started = False  # the whole prompt is read


class DeviceSequences(Sequences):
    """As Sequences, on the device. n_batch: the most sequences of a step."""

    def __init__(self, policy: Policy, rows: Any, proposer: Any, n_batch: int, stock: bool) -> None:
        import torch
        super().__init__(policy, proposer)
        self.session = DeviceSession(DevicePolicy(policy, rows), n_batch, proposer.num_speculative_tokens, stock)
        self.n_nodes, self.device, self.n_plain = proposer.num_speculative_tokens + 1, rows.device, 0
        self.known: dict[str, Slot] = {}
        self.batch: list[Slot] = []
        self.free = list(range(n_batch))
        self.hidden = rows.new_zeros(n_batch, rows.shape[1])
        self.logits = rows.new_zeros(n_batch, self.n_nodes, rows.shape[0], dtype=torch.float32)
        self.newest = rows.new_zeros(n_batch, dtype=torch.int32)
        self.stats = rows.new_zeros(n_batch, C.sizeof(CStats) // 8, dtype=torch.int64)
        self.totals = rows.new_zeros(N_SUMS, dtype=torch.int64)  # of what slots did before their last begin()
        self.nodes = torch.arange(self.n_nodes, dtype=torch.int32, device=self.device)

    def put(self, rows: Any) -> Any:
        """Numbers of the host as int64 on the device, without a wait."""
        import torch
        host = torch.from_numpy(np.asarray(rows, np.int64))
        return host.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else host

    def sync(self, hidden: Any) -> None:
        runner, (logits, drafted, sampled) = self.runner, self.step
        names, bounds = runner.input_batch.req_ids, runner.query_start_loc.np
        self.free += [self.known.pop(name).number for name in list(self.known) if name not in runner.requests]
        drafted = drafted or [0] * len(names)
        follows, prompts, first = [], [], 0
        for i, name in enumerate(names):
            slot = self.known.get(name) or self.admit(name, names)
            begin, n, samples = int(bounds[i]), int(bounds[i + 1] - bounds[i]), not runner.discard_request_mask.np[i]
            if slot.started and samples and n == drafted[i] + 1:
                follows.append((i, slot.number, n, begin, first))
            else:
                prompts.append((i, slot, begin, n - drafted[i], samples))
            first += drafted[i] + 1
        self.batch = [self.known[name] for name in names]
        self.slots = self.put([slot.number for slot in self.batch])
        self.observe(follows, logits, sampled)
        for i, slot, begin, n, _ in prompts:
            self.read(i, slot, runner.input_ids.gpu[begin:begin + n], hidden[begin:begin + n])
        self.start([(i, slot) for i, slot, _, _, samples in prompts if samples], sampled)

    def admit(self, name: str, names: list[str]) -> Slot:
        """A slot for a new sequence; where none is free, that of one which vLLM preempted."""
        if not self.free:
            self.free.append(self.known.pop(next(other for other in self.known if other not in names)).number)
        slot = self.known[name] = Slot(self.free.pop())
        self.begin(slot, 0)
        return slot

    def begin(self, slot: Slot, position: int) -> None:
        self.session.call("get_stats", self.stats)
        self.totals += self.stats[slot.number, :N_SUMS]
        self.session.call("begin", slot.number)
        slot.started, slot.n_read = False, position

    def observe(self, follows: list[tuple[int, ...]], logits: Any, sampled: Any) -> None:
        """The cycle of slots that drafted: of each its place in the batch, number, tokens that the target read, the first
        of these, and the first row of logits. The others' draft is empty: they learn nothing and keep their trees."""
        session, draft, verdict = self.session, self.session.draft, self.session.verdict
        session.call("finish")
        draft[:, 0] = 0
        if follows:
            places, numbers, counts, begins, firsts = at = np.array(follows, np.int64).T
            steps = np.concatenate([np.arange(n) for n in counts])
            rows, step, token, row = self.put([np.repeat(numbers, counts), steps, np.repeat(begins, counts) + steps,
                                               np.repeat(firsts, counts) + steps])
            places, numbers, counts, *_ = self.put(at)
            draft[numbers, 0] = counts.int()
            draft[rows, TOKENS + step] = self.runner.input_ids.gpu[token]
            self.logits[rows, step] = logits[row].float()
            self.n_plain += sum(n == 1 for _, _, n, *_ in follows)
        session.call("verify", self.logits)  # ranks the target's tokens for observe()
        if follows:
            emitted = sampled[places].int()
            verdict[numbers, 0] = (emitted >= 0).sum(1).minimum(counts).int()
            verdict[numbers, TOKENS:TOKENS + emitted.shape[1]] = emitted.clamp(min=0)
            verdict[numbers, NODES:NODES + self.n_nodes] = self.nodes
        session.call("observe", None)
        session._lib.cuda_session_serve(session.handle)

    def read(self, i: int, slot: Slot, tokens: Any, hidden: Any) -> None:
        """The next part of a prompt, as Sequence.read()."""
        batch = self.runner.input_batch
        position = int(batch.num_computed_tokens_cpu[i])
        if slot.started or slot.n_read != position:
            self.begin(slot, position)
            before = batch.token_ids_cpu[i, :position]
            before = self.put(before[before >= 0]).int()  # vLLM's host may lack what the device just wrote
            if len(before):
                self.session.call("prefill", slot.number, before, len(before), None)
        for j in range(0, len(tokens), BLOCK):
            part = tokens[j:j + BLOCK]
            logits = self.runner.model.compute_logits(hidden[j:j + BLOCK]).float().contiguous() if self.prompts else None
            self.session.call("prefill", slot.number, part, len(part), logits)
        slot.n_read += len(tokens)

    def start(self, starts: list[tuple[int, Slot]], sampled: Any) -> None:
        """Slots whose whole prompt is read."""
        if not starts:
            return
        places, numbers = self.put([[i for i, _ in starts], [slot.number for _, slot in starts]])
        emitted = sampled[places].int()
        last = ((emitted >= 0).sum(1) - 1).clamp(min=0)
        self.newest[numbers] = emitted.gather(1, last[:, None])[:, 0].clamp(min=0)
        for _, slot in starts:
            self.session.call("start", slot.number, self.newest)
            slot.started = True

    def best(self, hidden: Any) -> Any:
        import torch
        if len(hidden) != len(self.batch):
            return self._full(hidden)
        self.hidden[self.slots] = hidden.to(self.hidden.dtype)
        self.session.call("expand", self.hidden, None)
        n, token = self.session.beam[self.slots, :2].T
        return torch.where(n > 0, token, 0).long()  # 0 of a prompt that goes on: vLLM drops what is drafted

    def collect(self) -> Metrics:
        self.session.call("get_stats", self.stats)
        totals = (self.stats[:, :N_SUMS].sum(0) + self.totals).tolist()  # waits for the device
        metrics = Metrics()
        metrics.add(str(self.policy), sums(Stats(*totals), self.n_plain))
        return metrics
