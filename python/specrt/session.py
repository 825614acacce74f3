"""Policies and sessions over memory of numpy, torch on the CPU, or whatever speaks DLPack: nothing is copied.

    head = Head(drafter.lm_head.weight)                        # [n_rows, d], f32, f16 or bf16, as it lies
    policy = Policy("static:512+window", head, bundle=bundle)
    session = Session(policy, tree=Tree(num_steps=4, topk=1, num_draft_tokens=5))
    session.begin()
    session.prefill(prompt_ids, logits)                        # the target at the prompt, f32 [n, n_logits]
    token = session.draw(logits[-1])
    session.start(token)
    while not policy.ends(token):
        beam = session.expand(drafter(token))                  # f32 [1, d], what the head would multiply
        while len(beam.tokens):
            beam = session.expand(drafter(beam.tokens, beam.parents))
        draft = session.finish()
        logits, states = target(draft.tokens, draft.masks, draft.depths)
        verdict = session.verify(logits)                       # keep verdict.nodes, emit verdict.tokens
        session.observe(logits)
        token = verdict.tokens[-1]

The models are the caller's. Whatever the policy, tokens are those of plain decoding.
"""
from __future__ import annotations

import ctypes as C
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ._lib import (CBeam, CDraft, CHeadDesc, CPolicyDesc, CSampling, CSessionParams, CStats, CStockParams,
                   CStockStats, CTargetRows, CTreeParams, CVerdict, DTYPES, Exclusive, ITEM_BYTES, Int64, Memory, Owner,
                   SpecrtError, array_of, c_text, check_arguments, checked, ints, library, pointer, size_of)
from .bundle import Bundle


class Tree(NamedTuple):
    """The shape of drafts: drafter passes, tokens a row proposes, nodes to verify (root included). A chain of n
    tokens is Tree(n, 1, n + 1). 0 takes EAGLE-2's 6, 10, 60."""
    num_steps: int = 0
    topk: int = 0
    num_draft_tokens: int = 0


class Beam(NamedTuple):
    """The rows of the next pass, best first; none: go on with finish()."""
    tokens: np.ndarray    # int32 [n] target ids
    parents: np.ndarray   # int32 [n] rows of the pass before, whose state each is fed
    logprobs: np.ndarray  # float32 [n] of the path


class Draft(NamedTuple):
    """The tree to verify; node 0 is the last token emitted, which the target has not read yet."""
    tokens: np.ndarray   # int32 [n]
    parents: np.ndarray  # int32 [n] nodes; -1: the root
    depths: np.ndarray   # int32 [n] 0: the root
    masks: np.ndarray    # uint64 [n] bit j: node j is seen
    logprobs: np.ndarray  # float32 [n] of the path


class Verdict(NamedTuple):
    """What a cycle emits: drafts that the target agreed to, then its own token."""
    tokens: np.ndarray  # int32 [n]
    nodes: np.ndarray   # int32 [n] to keep in caches: the root, then those agreed to


@dataclass(frozen=True)
class Stats:
    """Sums since begin(), over n_cycles observations."""
    n_cycles: int
    n_emitted: int
    n_covered: int
    n_drafted: int
    n_rows: int
    n_passes: int
    n_bytes: int
    n_copied: int
    n_events: int
    n_lost: int

    @property
    def accept_length(self) -> float:
        """Tokens emitted per pass of the target, the bonus token included."""
        return self.n_emitted / self.n_cycles if self.n_cycles else 0.0

    @property
    def shortlist_rows(self) -> float:
        """Rows of the head scored, mean over cycles."""
        return self.n_rows / self.n_cycles if self.n_cycles else 0.0


def _matrix(name: str, rows: Any, bias: Any = None, ids: Any = None) -> CHeadDesc:
    m = Memory(rows, name)
    dtype = DTYPES.get(m.dtype)
    if dtype is None or len(m.shape) != 2 or not m.packed or m.row_stride < m.shape[1] * ITEM_BYTES[dtype]:
        raise SpecrtError(f"{name}: expected [n_rows, d] of {', '.join(DTYPES)}, each row in one piece, found "
                          f"{m.dtype} {list(m.shape)}")
    n = m.shape[0]
    return CHeadDesc(m.address, dtype, n, m.shape[1], m.row_stride, pointer(bias, "float32", (n,), "bias"),
                     pointer(ids, "int32", (n,), "ids"))


@checked
class Head(Owner):
    """A draft head: the matrix that the drafter's logits come from.

    rows: [n_rows, d] of float32, float16 or bfloat16, on the CPU; rows may be apart. Held, never copied; keep
    it as it is. bias: float32 [n_rows]. ids: int32 [n_rows], the target id of each row; None: the row's number.
    """

    _close = "head_close"

    def __init__(self, rows: Any, bias: Any = None, ids: Any = None, bundle: Bundle | None = None) -> None:
        self.keep, self.desc = (rows, bias, ids), _matrix("rows", rows, bias, ids)
        self.n_rows, self.width = self.desc.n_rows, self.desc.n_cols
        self._own(library(), (bundle,), "head_bind", bundle.handle if bundle else None, C.byref(self.desc), None)


@checked
class Policy(Owner):
    """A policy, as "static:512+window+successor:256" (specrt.h has the grammar); shared by any number of sessions.

    terminators: token ids that end a text, beside those that the bundle knows. embedding: [n_vocab, d], where
    routers read it. target: the target's Head, where retrieval searches it. ids: distinct token ids, most frequent
    first, the list of "static" in place of the bundle's ("static:N": the first N of them); None: the bundle's.
    """

    _close = "policy_close"

    def __init__(self, text: str, head: Head, bundle: Bundle | None = None, n_vocab: int = 0,
                 terminators: Any = (), embedding: Any = None, target: Head | None = None, ids: Any = None) -> None:
        ends = ints(terminators, "terminators")
        listed = ints(ids, "ids") if ids is not None else None
        known = _matrix("embedding", embedding) if embedding is not None else None
        desc = CPolicyDesc(c_text(text, "text"), n_vocab, len(ends), ends.ctypes.data,
                           listed.ctypes.data if listed is not None else None,
                           len(listed) if listed is not None else 0,
                           C.addressof(known) if known is not None else None,
                           target.handle.value if target else None)
        self.head, self.bundle, self.n_vocab, self.keep = head, bundle, n_vocab, (embedding, target)
        self._own(head._lib, (head, bundle, target), "policy_create", bundle.handle if bundle else None, head.handle,
                  C.byref(desc))

    def _n_logits(self) -> int:
        """Columns of the target's logits: the head's rows, unless it has those of some tokens only."""
        if self.head.keep[2] is None:
            return self.head.n_rows
        n = self.n_vocab or (self.bundle.n_vocab if self.bundle else 0)
        if not n:
            raise SpecrtError("n_logits: expected the columns of the target's logits, found 0; a head with ids needs "
                              "n_logits, or a policy with n_vocab or a bundle")
        return n

    def __str__(self) -> str:
        """In canonical form: sizes filled in."""
        return self._info.text.decode()

    @property
    def _info(self) -> Any:
        return self._lib.policy_get_info(self.handle).contents

    @property
    def needs_prompt_logits(self) -> bool:
        """Whether a source learns from the target's logits at prompt positions, which prefill() passes."""
        return bool(self._info.needs_prompt_logits)

    @property
    def needs_draft_input(self) -> bool:
        """Whether a router reads what drafter passes read, which expand() takes as draft_input."""
        return bool(self._info.needs_draft_input)

    @property
    def static_ids(self) -> np.ndarray:
        """Target ids of the rows of "static", int32 [n], most frequent first; none with sizes by level."""
        return array_of(self._info.static_ids, self._info.n_static, np.int32).copy()

    @property
    def hidden_width(self) -> int:
        """Columns of the target's hidden states that observe() wants; 0: none."""
        return self._info.hidden_width

    @property
    def bound(self) -> int:
        """The most rows that any session scores."""
        return self._info.bound

    def ends(self, token: int) -> bool:
        """Whether a token ends a text."""
        return bool(self._lib.policy_ends(self.handle, token))


class StockStats(NamedTuple):
    """What a stock holds now."""
    n_rows: int      # that it has room for
    n_held: int      # each once
    n_sessions: int
    n_shared: int     # multiplied for all of the last batch that had any
    n_holds: int     # once for each session that holds it
    n_packed: int    # read from the head, since it was made


@checked
class Stock(Owner):
    """Packed rows that several sessions of a head hold, each once: for expand_batch(), which multiplies those that
    enough of a batch hold for all of it. Drafts are the same to the bit. A stock and its sessions are one thread's.

    n_rows: how many rows sessions may hold together; 0: the head's, which are always enough. costs: what a row's
    product with 1, 2... states takes, in any unit; none: each state beyond the first takes a third of it.
    """

    _close = "stock_close"

    def __init__(self, head: Head, n_rows: int = 0, costs: Any = ()) -> None:
        times = np.ascontiguousarray(costs, np.float64).reshape(-1)
        params = CStockParams(n_rows, times.ctypes.data if len(times) else None, len(times))
        self.head = head
        self._own(head._lib, (head,), "stock_create", head.handle, C.byref(params), None)

    def stats(self) -> StockStats:
        s = CStockStats()
        with self._exclusive():
            self._lib.stock_get_stats(self.handle, C.byref(s))
        return StockStats(*(getattr(s, name) for name in StockStats._fields))


def _beam(b: CBeam) -> Beam:
    return Beam(array_of(b.tokens, b.n, np.int32).copy(), array_of(b.parents, b.n, np.int32).copy(),
                array_of(b.logprobs, b.n, np.float32).copy())


@checked
class Session(Owner):
    """One sequence; one thread at a time. Sequences of a batch have a session each.

    temperature 0 is greedy; top_k, top_p, min_p and seed are the target's sampling, 0: off. n_logits: columns of the
    target's logits; 0: the head's rows or, where it has ids, the tokens of policy or bundle. sampled: chains sampled from the drafter's distribution, verified by rejection.
    stock: a Stock of the policy's head, which holds the rows that the session packs; None: it has its own.
    """

    _close = "session_close"

    def __init__(self, policy: Policy, tree: Tree = Tree(), temperature: float = 0.0, top_k: int = 0,
                 top_p: float = 0.0, min_p: float = 0.0, seed: Int64 = 0, sequence: Int64 = 0, n_logits: int = 0,
                 sampled: bool = False, draft_temperature: float = 0.0, stock: Stock | None = None) -> None:
        self.width, self.n_logits = policy.head.width, n_logits or policy._n_logits()
        params = CSessionParams(CTreeParams(*Tree(*tree)), CSampling(temperature, top_k, top_p, min_p, seed, sequence),
                                self.n_logits, int(sampled), draft_temperature,
                                stock=stock.handle if stock else None)
        self.policy, self.stock = policy, stock
        self._own(policy._lib, (policy, stock), "session_create", policy.handle, C.byref(params), None)
        self._busy = stock._busy if stock else self._busy  # a stock and its sessions are one thread's
        self._forget()

    def _forget(self, n_next: int | None = None) -> None:
        """No draft is under way; the next pass has n_next rows, None: it needs start() first."""
        self._draft, self._verdict, self._beam, self._n_next = CDraft(), CVerdict(), CBeam(), n_next

    def _ask(self, name: str, *args: Any) -> Any:
        """Calls a function that cannot fail."""
        with self._exclusive():
            return getattr(self._lib, "session_" + name)(self.handle, *args)

    def _step(self, name: str, *args: Any, expected: str) -> None:
        with self._exclusive():
            self._lib.step("session_" + name, self.handle, *args, expected=expected)

    def begin(self) -> None:
        """A new sequence: everything is forgotten."""
        self._step("begin", 0, 0, expected="a new sequence")
        self._forget()

    def turn(self, position: Int64) -> None:
        """In place of begin(): the next turn of a conversation, whose cache holds `position` tokens."""
        self._step("begin", 1, position, expected="position at least 0")
        self._forget()

    def save(self) -> bytes:
        """All that drafts follow from: a session of the same policy that load()s it, in another process too, drafts
        what this one would. Between cycles; statistics and a draft that is under way are not in it."""
        n, between = C.c_size_t(), "a session between cycles, after begin() or observe()"
        self._step("save", None, C.c_size_t(0), C.byref(n), expected=between)
        out = C.create_string_buffer(n.value)
        self._step("save", out, n, C.byref(n), expected=between)
        return out.raw[:n.value]

    def load(self, saved: bytes) -> None:
        """In place of begin(): go on where a session was saved, with turn() before the next prompt. Bytes of another
        policy, vocabulary or origin are refused (SpecrtError), and the session is as after begin()."""
        self._forget()
        with self._exclusive():
            self._lib.call("session_load", self.handle, saved, C.c_size_t(len(saved)))
        self._forget(1)

    def set_sequence(self, number: Int64) -> None:
        """The number that keys the draws after the next begin() or turn()."""
        self._ask("set_sequence", number)

    def _rows(self, n: int, logits: Any, ids: Any, hidden: Any = None) -> CTargetRows | None:
        if logits is None and ids is None and hidden is None:
            return None
        k, width = size_of(ids, 1, "ids"), size_of(hidden, 1, "hidden")
        return CTargetRows(pointer(logits, "float32", (n, self.n_logits), "logits"),
                           pointer(ids, "int32", (n, k), "ids"), k,
                           pointer(hidden, "float32", (n, width), "hidden"), width)

    def prefill(self, tokens: Any, logits: Any = None, ids: Any = None) -> None:
        """The next prompt tokens [n], and what the target said there: logits float32 [n, n_logits], or its best
        ids int32 [n, k]; neither where it did not compute them."""
        tokens = ints(tokens, "tokens", self.n_logits)
        rows = self._rows(len(tokens), logits, ids)
        self._step("prefill", C.c_void_p(tokens.ctypes.data), len(tokens), C.byref(rows) if rows else None,
                   expected=f"tokens in [0, {self.n_logits})")

    def draw(self, logits: Any) -> int:
        """The token that plain decoding emits next. logits: float32 [n_logits] of the target."""
        if logits is None:
            raise TypeError("logits: expected float32 [n_logits], found None")
        return self._ask("draw", pointer(logits, "float32", (self.n_logits,), "logits"))

    def start(self, token: int) -> None:
        """The first token after the prompt, the root of the first draft."""
        self._step("start", token, expected=f"token in [0, {self.n_logits}), found {token}")
        self._forget(1)

    def shortlist(self) -> np.ndarray:
        """Target ids int32 [n] that may be drafted in this cycle; of routed sources those of the last level."""
        with self._exclusive():
            return self._ids(self._lib.session_shortlist(self.handle))

    @staticmethod
    def _ids(shortlist: Any) -> np.ndarray:
        out = [np.empty(0, np.int32)]
        for i in range(shortlist.contents.n_segments):
            s = shortlist.contents.segments[i]
            ids = array_of(s.ids, s.n_rows, np.int32)
            out.append(np.delete(ids, array_of(s.masked, s.n_masked, np.int32)) if s.n_masked else ids.copy())
        return np.concatenate(out)

    def expand(self, draft_hidden: Any, draft_input: Any = None) -> Beam:
        """Scores a drafter pass and grows the draft by it. @return the next pass.

        draft_hidden: float32 [n, d] what the pass gave, 1 row at first, then one for each of the beam. draft_input: the same of
        what it reads, for policies that route by it.
        """
        n = self._check_next(size_of(draft_hidden, 0, "draft_hidden"))
        self._step("expand", pointer(draft_hidden, "float32", (n, self.width), "draft_hidden"),
                   pointer(draft_input, "float32", (n, self.width), "draft_input"), n, C.byref(self._beam),
                   expected=f"finite states; `draft_input` too, where the policy {self.policy} routes by it")
        self._n_next = self._beam.n
        return _beam(self._beam)

    def _check_next(self, n: int) -> int:
        """The rows of the next pass, of which n were given."""
        if self.handle and not self._n_next:
            raise SpecrtError("Session.expand: expected start() or observe() before it; after an empty beam, finish()")
        if n != self._n_next:
            raise SpecrtError(f"hidden: expected {self._n_next} row{'s' * (self._n_next > 1)}, one for each of the "
                              f"beam (at first the last token's), found {n}")
        return n

    def finish(self) -> Draft:
        """The tree to verify."""
        d = self._draft
        self._ask("finish", C.byref(d))
        self._n_next = None
        return Draft(array_of(d.tokens, d.n, np.int32).copy(), array_of(d.parents, d.n, np.int32).copy(),
                     array_of(d.depths, d.n, np.int32).copy(), array_of(d.masks, d.n, np.uint64).copy(),
                     array_of(d.logprobs, d.n, np.float32).copy())

    def verify(self, logits: Any) -> Verdict:
        """What the target, float32 [n, n_logits] at the draft's nodes, makes of it: losslessly."""
        self._check_draft("verify", self._draft.n, "finish()")
        self._step("verify", C.byref(self._draft),
                   pointer(logits, "float32", (self._draft.n, self.n_logits), "logits"), C.byref(self._verdict),
                   expected="the draft of finish()")
        v = self._verdict
        return Verdict(np.array(v.tokens[:v.n], np.int32), np.array(v.nodes[:v.n], np.int32))

    def _check_draft(self, name: str, n: int, before: str) -> None:
        if self.handle and not n:
            raise SpecrtError(f"Session.{name}: expected {before} before it in this cycle")

    def observe(self, logits: Any = None, ids: Any = None, hidden: Any = None) -> None:
        """Learns from the cycle: the target at the draft's nodes, as for prefill(); hidden: float32 [n,
        policy.hidden_width] where that is not 0."""
        self._check_draft("observe", self._verdict.n, "verify()")
        rows = self._rows(self._draft.n, logits, ids, hidden)
        self._step("observe", C.byref(self._draft), C.byref(self._verdict), C.byref(rows) if rows else None,
                   expected=f"hidden [n, {self.policy.hidden_width}] where the policy reads states")
        self._forget(1)

    def observe_chain(self, tokens: Any, n_accepted: int, last: int, logits: Any = None, ids: Any = None,
                      hidden: Any = None) -> None:
        """The same of a chain that was verified elsewhere: tokens [n] the root and what was drafted, how many of
        those were accepted, and the target's own token after them."""
        tokens = ints(tokens, "tokens", self.n_logits)
        rows = self._rows(len(tokens), logits, ids, hidden)
        self._step("observe_chain", C.c_void_p(tokens.ctypes.data), len(tokens), n_accepted, last,
                   C.byref(rows) if rows else None,
                   expected=f"at least 1 token, n_accepted below their number and last in "
                            f"[0, {self.n_logits}), found {len(tokens)}, {n_accepted} and {last}")
        self._forget(1)

    def member(self, token: int, level: int = 0) -> bool:
        """Whether a token could be drafted at a level."""
        return bool(self._ask("member", token, level))

    def stats(self) -> Stats:
        """Since begin()."""
        s = CStats()
        self._ask("get_stats", C.byref(s))
        return Stats(*(getattr(s, name) for name in Stats.__dataclass_fields__))


@check_arguments
def expand_batch(sessions: Sequence[Session], draft_hidden: Any, draft_input: Any = None) -> list[Beam]:
    """Session.expand() for several sequences of one policy at once, which reads the rows that all share (static
    ones, and those that many hold of one Stock) once and not once a sequence; the same beams to the bit.

    draft_hidden: float32 [n, d], the rows of sessions[0], then of sessions[1] and so on. draft_input: the same of what these
    read, for policies that route by it.
    """
    for session in sessions:
        if not isinstance(session, Session):
            raise TypeError(f"sessions: expected Session objects, found {type(session).__name__}")
    if not sessions:
        return []
    n, count, first = size_of(draft_hidden, 0, "draft_hidden"), len(sessions), sessions[0]
    for i, session in enumerate(sessions):
        if session.handle and session._n_next is None:
            raise SpecrtError(f"sessions[{i}]: expected start() or observe() before expand_batch()")
    expected = sum(s._n_next or 0 for s in sessions)
    if n != expected:
        raise SpecrtError(f"draft_hidden: expected {expected} rows, one for each of the sessions' "
                          f"beams, found {n}")
    beams = (CBeam * count)()
    with Exclusive(list(sessions)):
        first._lib.step("session_expand_batch", (C.c_void_p * count)(*(s.handle.value for s in sessions)), count,
                        pointer(draft_hidden, "float32", (n, first.width), "draft_hidden"),
                        pointer(draft_input, "float32", (n, first.width), "draft_input"), n, beams,
                        expected="each session once, all of one policy")
    for session, beam in zip(sessions, beams):
        session._n_next = beam.n
    return [_beam(b) for b in beams]
