"""Traces: decoding cycles of any stack, for `specrt-eval replay` and `plan` (docs/FORMAT.md, "Traces")."""
from __future__ import annotations

import ctypes as C
import os
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ._lib import CTraceInfo, CTraceRecord, CTreeParams, Single, SpecrtError, c_text, checked, ints, library

# What may be known of a record: name, dtype, shape by the names of its sizes.
FIELDS = [field.split(":") for field in (
    "tokens:i4:n nodes:i4:n tree_tokens:i4:n_nodes tree_parents:i4:n_nodes tree_logprobs:f4:n_nodes "
    "target_hidden:f2:n:d_target top_ids:i4:n:n_top top_logits:f4:n:n_top top_logsumexp:f4:n "
    "draft_hidden:f2:n:d_draft draft_ids:i4:n:n_draft_top draft_logits:f4:n:n_draft_top "
    "draft_logsumexp:f4:n tree_top_ids:i4:n_nodes:n_tree_top prompt_hidden:f2:d_target").split()]
SEQUENCE, CYCLE = 1, 2
_WRITE = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.c_size_t)


@checked
class TraceWriter(Single, AbstractContextManager["TraceWriter"]):
    """Writes a trace as it goes, readable up to any cut.

        with TraceWriter("run.trace", n_vocab=128256, d_target=4096, d_draft=4096) as trace:
            trace.sequence(prompt_ids, domain="code")
            top = logits.topk(10)  # of the target, at the nodes that the tokens were drawn from
            trace.cycle(emitted, nodes=nodes, tree_tokens=tree, tree_parents=parents, target_hidden=hidden,
                        top_ids=top.indices, top_logits=top.values, top_logsumexp=logits.logsumexp(-1))

    Arrays are numpy's or torch's, of the shapes in FIELDS. tree: num_steps, topk, num_draft_tokens. sizes:
    d_target, d_draft, n_top (10), n_draft_top (64), n_tree_top.
    """

    def __init__(self, path: str | os.PathLike[str], n_vocab: int, tree: tuple[int, int, int] = (0, 0, 0),
                 temperature: float = 0.0, n_ids: int = 0, terminators: Any = (), policy: str = "",
                 sha256: bytes = bytes(32), **sizes: int) -> None:
        self.sizes = {"d_target": 0, "d_draft": 0, "n_top": 10, "n_draft_top": 64, "n_tree_top": 0, **sizes}
        self._lib, ends = library(), ints(terminators, "terminators")
        info = CTraceInfo((C.c_uint8 * 32)(*sha256), n_vocab, *(self.sizes[name] for name in (
            "d_target", "d_draft", "n_top", "n_draft_top", "n_tree_top")), c_text(policy, "policy") or None,
            CTreeParams(*tree), 0, temperature, n_ids, len(ends), ends.ctypes.data)
        self.handle: Any = None
        self.file = open(path, "wb")
        self._write = _WRITE(self._append)
        self.handle = self._lib.open("trace_writer_create", C.byref(info), self._write, None, None)

    def _append(self, _: Any, data: int, n: int) -> int:
        try:
            return 0 if self.file.write(C.string_at(data, n)) == n else 1
        except OSError:
            return 1

    def sequence(self, tokens: Any, domain: str = "", **arrays: Any) -> None:
        """A new sequence and its prompt, tokens [n]."""
        self._record(SEQUENCE, domain, dict(arrays, tokens=tokens))

    def cycle(self, tokens: Any, **arrays: Any) -> None:
        """A cycle: the tokens [n] that it emitted, and what was known where they were drawn."""
        self._record(CYCLE, "", dict(arrays, tokens=tokens))

    def _record(self, kind: int, domain: str, arrays: dict[str, Any]) -> None:
        if not self.handle:
            raise SpecrtError("TraceWriter is closed; expected an open one")
        sizes = dict(self.sizes, n=len(arrays["tokens"]), n_nodes=len(arrays.get("tree_tokens", ())))
        record = CTraceRecord(kind, sizes["n"], sizes["n_nodes"], c_text(domain, "domain")[:31])
        unknown = set(arrays) - {field[0] for field in FIELDS}
        if unknown:
            raise SpecrtError(f"{unknown.pop()}: expected one of {', '.join(f[0] for f in FIELDS)}")
        keep = []
        for name, dtype, *shape in FIELDS:
            if name not in arrays:
                continue
            x, size = arrays[name], int(np.prod([sizes[axis] for axis in shape]))
            try:
                x = np.ascontiguousarray(x.detach().double().cpu() if hasattr(x, "detach") else x, "<" + dtype)
            except (TypeError, ValueError):
                raise TypeError(f"{name}: expected numbers, found {type(arrays[name]).__name__}") from None
            if x.size != size or size == 0:
                raise SpecrtError(f"{name}: expected {size} numbers, found {x.size}")
            keep.append(x)
            setattr(record, name, x.ctypes.data)
        self._lib.call("trace_write", self.handle, C.byref(record))

    def close(self) -> None:
        """Writes what is pending."""
        if self.handle:
            handle, self.handle = self.handle, None
            try:
                self._lib.call("trace_writer_close", handle)
            finally:
                self.file.close()

    def __exit__(self, *_: Any) -> None:
        self.close()
