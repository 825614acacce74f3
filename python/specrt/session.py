"""Policies and sessions over memory of numpy, torch on the CPU, or whatever speaks DLPack: nothing is copied.

    head = Head(drafter.lm_head.weight)                        # [n_rows, d], f32, f16 or bf16, in place
    policy = Policy("static:512+window", head, bundle=bundle)
    session = Session(policy, n_logits=logits.shape[-1], tree=Tree(num_steps=4, topk=1, num_draft_tokens=5))
    session.begin(max_tokens=256)
    session.prefill(prompt, logits)                            # the target at the prompt, f32 [n, n_logits]
    verdict = session.first(logits[-1])
    answer = verdict.tokens.tolist()
    while not verdict.end:
        beam = session.beam()                                  # at first the last token alone
        while len(beam.tokens):
            beam = session.expand(drafter(beam.tokens, beam.parents))  # f32 [n, d], what the head would multiply
        draft = session.finish()
        verdict = session.accept(draft, target(draft.tokens, draft.masks, draft.depths))
        answer += verdict.tokens.tolist()                      # and keep verdict.nodes in your caches

The models are the caller's. Whatever the policy, tokens are those of plain decoding. A call that comes in the wrong order
raises OrderError, and a wrong argument SpecrtError; the session is then as before the call.
"""
from __future__ import annotations

import ctypes as C
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from ._lib import (CBeam, CBlock, CDraft, CHeadDesc, CMarkovDesc, CPolicyDesc, CRequest, CSampling, CSessionParams,
                   CStats, CStockParams, CStockStats, CTargetRows, CTreeParams, CVerdict, DTYPES, Exclusive, ITEM_BYTES,
                   Int64, MAX_NODES, Memory, Owner, Selector, SpecrtError, array_of, c_text, check_arguments, checked, ints,
                   library, numbers, pointer, size_of)
from .bundle import Bundle


class Tree(NamedTuple):
    """The shape of drafts: drafter passes, tokens a row proposes, nodes to verify (root included). A chain of n
    tokens is Tree(n, 1, n + 1). 0 takes EAGLE-2's 6, 10, 60."""
    num_steps: int = 0
    topk: int = 0
    num_draft_tokens: int = 0


class Sampling(NamedTuple):
    """How the target samples. All zeros: greedy. top_k, top_p and min_p: 0 is off; they apply in this order.

    The key of every random draw is (seed, session, generation) and the position. Two generations with the same three
    numbers draw the same random numbers. A temperature needs a session number of 1 or more, a different one for each
    Session; each begin() and turn() takes the next generation number.
    """
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 0.0
    min_p: float = 0.0
    seed: int = 0        # 64 bits, as the two others
    session: int = 0
    generation: int = 0  # of the next begin()


class Beam(NamedTuple):
    """The rows of the next pass, best first; none: go on with finish()."""
    tokens: np.ndarray    # int32 [n] target ids
    parents: np.ndarray   # int32 [n] rows of the pass before, whose states each row continues
    logprobs: np.ndarray  # float32 [n] of the path


class Draft(NamedTuple):
    """The tree to verify; node 0 is the last token emitted, which the target has not read yet."""
    tokens: np.ndarray   # int32 [n]
    parents: np.ndarray  # int32 [n] nodes; -1: the root
    depths: np.ndarray   # int32 [n] 0: the root
    masks: np.ndarray    # uint64 [n] bit j: node j is seen
    logprobs: np.ndarray  # float32 [n] of the path
    cycle: int = 0       # a number that the session checks; 0: a tree of your own


class End(IntEnum):
    """Why an answer ended; NONE, which is false: it goes on."""
    NONE = 0
    TERMINATOR = 1  # a terminator, which is the last token
    LENGTH = 2      # max_tokens
    CONTEXT = 3     # of specrt_generate(), which Python does not have
    STOPPED = 4     # the same


class Verdict(NamedTuple):
    """What a cycle emits: drafts that the target agreed to, then its own token."""
    tokens: np.ndarray  # int32 [n]
    nodes: np.ndarray   # int32 [n] to keep in caches: the root, then those agreed to
    end: End = End.NONE  # whether the answer ends with these tokens; of verify(): NONE
    cycle: int = 0       # a number that the session checks; 0: you decided


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
    held = m, pointer(bias, "float32", (n,), "bias"), pointer(ids, "int32", (n,), "ids")
    desc = CHeadDesc(m.address, dtype, n, m.shape[1], m.row_stride, *held[1:])
    desc.held = held
    return desc


@checked
class Head(Owner):
    """A draft head: the matrix that the drafter's logits come from.

    rows: [n_rows, d] of float32, float16 or bfloat16, on the CPU; rows may be apart. Held, never copied; keep
    it as it is. bias: float32 [n_rows]. ids: int32 [n_rows], the target id of each row; None: the row's number.
    markov: w1 [n_vocab, rank] and w2 [n_rows, rank] of a Markov head (DSpark), whose part sessions add to the logits.
    """

    _close = "head_close"
    rank = 0  # of the Markov head

    def __init__(self, rows: Any, bias: Any = None, ids: Any = None, bundle: Bundle | None = None,
                 markov: tuple[Any, Any] | None = None) -> None:
        self.desc = _matrix("rows", rows, bias, ids)
        if markov is not None:
            if len(markov) != 2:
                raise SpecrtError(f"markov: expected two matrices, w1 and w2, found {len(markov)}")
            held = _matrix("w1", markov[0]), _matrix("w2", markov[1])
            self._markov = held, CMarkovDesc(*held)
            self.desc.markov = C.addressof(self._markov[1])
            self.rank = held[0].n_cols
        self.n_rows, self.width = self.desc.n_rows, self.desc.n_cols
        self._own(library(), (bundle,), "head_bind", bundle.handle if bundle else None, C.byref(self.desc), None)


@checked
class Policy(Owner):
    """A policy, as "static:512+window+successor:256" (specrt.h has the grammar); shared by any number of sessions.

    n_vocab: tokens are below it; 0: the bundle's number of tokens, or the head's rows. terminators: token ids that end a
    text, beside those that the bundle knows. embedding: [n_vocab, d], where routers read it. target: the target's Head, where retrieval searches it. ids: distinct token ids, most frequent
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
        self.head, self.bundle, self.embedding = head, bundle, known
        self._own(head._lib, (head, bundle, target), "policy_create", bundle.handle if bundle else None, head.handle,
                  C.byref(desc))

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


def _verdict(v: CVerdict) -> Verdict:
    return Verdict(np.array(v.tokens[:v.n], np.int32), np.array(v.nodes[:v.n], np.int32), End(v.end), v.cycle)


def _c_verdict(verdict: Verdict) -> CVerdict:
    tokens, nodes, end, cycle = Verdict(*verdict)
    tokens, nodes = ints(tokens, "verdict.tokens"), ints(nodes, "verdict.nodes")
    n, end = len(tokens), End(end)
    if n != len(nodes) or n > MAX_NODES:
        raise SpecrtError(f"verdict: expected as many nodes as tokens, at most {MAX_NODES}, found {n} tokens and "
                          f"{len(nodes)} nodes")
    padding = [0] * (MAX_NODES - n)
    return CVerdict(n, (*tokens.tolist(), *padding), (*nodes.tolist(), *padding), end, cycle)


def _c_draft(draft: Draft) -> CDraft:
    """A draft for C, which holds the arrays that it points to."""
    d, out = Draft(*draft), CDraft()
    lists = [ints(d.tokens, "draft.tokens"), ints(d.parents, "draft.parents", -1), ints(d.depths, "draft.depths")]
    out.n = n = len(lists[0])
    for name, array in zip(Draft._fields, lists):
        if len(array) != n:
            raise SpecrtError(f"draft.{name}: expected {n} numbers, one for each token, found {len(array)}")
    addresses = [C.c_void_p(array.ctypes.data) for array in lists]
    addresses += [pointer(d.masks, "uint64", (n,), "draft.masks"), pointer(d.logprobs, "float32", (n,), "draft.logprobs")]
    for (field, kind), address in zip(CDraft._fields_[1:], addresses):
        setattr(out, field, C.cast(address, kind))
    out.cycle = d.cycle
    out.held = lists, addresses
    return out


@checked
class Session(Owner):
    """One sequence; one thread at a time. Sequences of a batch have a session each.

    n_logits: columns of the target's logits; tokens at or above the policy's vocabulary are padding and never emitted.
    sampling: the target's; None: greedy. sampled: chains sampled from the drafter's distribution, verified by rejection.
    stock: a Stock of the policy's head, which holds the rows that the session packs; None: it has its own.
    n_block: the most positions of a block (draft_block), up to the tree's num_steps; 0: no blocks.
    """

    _close = "session_close"

    def __init__(self, policy: Policy, n_logits: int, tree: Tree = Tree(), sampling: Sampling = Sampling(),
                 sampled: bool = False, draft_temperature: float = 0.0, stock: Stock | None = None,
                 n_block: int = 0) -> None:
        self.policy, self.stock, self.width, self.n_logits = policy, stock, policy.head.width, n_logits
        params = CSessionParams(numbers(CTreeParams, Tree(*tree), "tree"),
                                numbers(CSampling, Sampling(*sampling), "sampling"), n_logits, int(sampled),
                                draft_temperature, stock=stock.handle if stock else None, n_block=n_block)
        self._own(policy._lib, (policy, stock), "session_create", policy.handle, C.byref(params), None)
        self._busy = stock._busy if stock else self._busy  # a stock and its sessions are one thread's

    def _ask(self, name: str, *args: Any) -> Any:
        """Calls a function that cannot fail."""
        with self._exclusive():
            return getattr(self._lib, "session_" + name)(self.handle, *args)

    def _step(self, name: str, *args: Any) -> None:
        with self._exclusive():
            self._lib.step(self.handle, "session_" + name, self.handle, *args)

    def _begin(self, kind: int, position: int, max_tokens: int, sampling: Sampling | None) -> None:
        request = CRequest(kind, position, max_tokens)
        if sampling is not None:
            request.sampling = C.pointer(numbers(CSampling, Sampling(*sampling), "sampling"))
        self._step("begin", C.byref(request))

    def begin(self, position: Int64 = 0, max_tokens: Int64 = 0, sampling: Sampling | None = None) -> None:
        """A new sequence: everything is forgotten. prefill() follows.

        position: of the first token that prefill() passes, behind a prefix that the session never sees. max_tokens: where
        first() and accept() end the answer; 0: no limit. sampling: from now on; None: as before, with the next generation
        number.
        """
        self._begin(0, position, max_tokens, sampling)

    def turn(self, position: Int64, max_tokens: Int64 = 0, sampling: Sampling | None = None) -> None:
        """In place of begin(): the next turn of a conversation. position: the number of tokens that the target has read.
        It never read the last one that it emitted, which therefore leads the next prompt."""
        self._begin(1, position, max_tokens, sampling)

    def save(self) -> bytes:
        """All that drafts follow from: a session of the same policy that load()s it, in another process too, drafts
        what this one would. Between cycles; statistics and a draft that is under way are not in it."""
        n = C.c_size_t()
        self._step("save", None, C.c_size_t(0), C.byref(n))
        out = C.create_string_buffer(n.value)
        self._step("save", out, n, C.byref(n))
        return out.raw[:n.value]

    def load(self, saved: bytes) -> None:
        """In place of begin(): go on where a session was saved, with turn() before the next prompt. Bytes of another
        policy, vocabulary or origin are refused (SpecrtError), and the session then needs begin()."""
        self._step("load", saved, C.c_size_t(len(saved)))

    def _rows(self, n: int, logits: Any, ids: Any, hidden: Any = None) -> Any:
        """The target's results at n positions by reference; None: unknown."""
        if logits is None and ids is None and hidden is None:
            return None
        k, width = size_of(ids, 1, "ids"), size_of(hidden, 1, "hidden")
        held = (pointer(logits, "float32", (n, self.n_logits), "logits"), pointer(ids, "int32", (n, k), "ids"),
                pointer(hidden, "float32", (n, width), "hidden"))
        rows = CTargetRows(held[0], held[1], k, held[2], width)
        rows.held = held
        return C.byref(rows)

    def _logits(self, logits: Any) -> C.c_void_p | None:
        return pointer(logits, "float32", (self.n_logits,), "logits")

    def prefill(self, tokens: Any, logits: Any = None, ids: Any = None) -> None:
        """The next prompt tokens [n], and what the target said there: logits float32 [n, n_logits], or its best
        ids int32 [n, k]; neither where it did not compute them."""
        tokens = ints(tokens, "tokens")
        self._step("prefill", C.c_void_p(tokens.ctypes.data), len(tokens), self._rows(len(tokens), logits, ids))

    def first(self, logits: Any) -> Verdict:
        """The first token of the answer, which roots the first draft. logits: float32 [n_logits] of the target, after the
        last token of the prompt. NaN is refused."""
        out = CVerdict()
        self._step("first", self._logits(logits), C.byref(out))
        return _verdict(out)

    def draw(self, logits: Any) -> int:
        """The token that plain decoding emits next. logits: float32 [n_logits] of the target. NaN is refused."""
        out = C.c_int32()
        self._step("draw", self._logits(logits), C.byref(out))
        return out.value

    def start(self, token: int) -> None:
        """The first token after the prompt, the root of the first draft; or the last that observe_chain() lacked."""
        self._step("start", token)

    def beam(self) -> Beam:
        """The rows of the next drafter pass: at first the last emitted token."""
        out = CBeam()
        self._step("get_beam", C.byref(out))
        return _beam(out)

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

        draft_hidden: float32 [n, d] what the pass gave, one row for each of the beam. draft_input: the same of what it
        reads, for policies that route by it.
        """
        n, out = size_of(draft_hidden, 0, "draft_hidden"), CBeam()
        self._step("expand", pointer(draft_hidden, "float32", (n, self.width), "draft_hidden"),
                   pointer(draft_input, "float32", (n, self.width), "draft_input"), n, C.byref(out))
        return _beam(out)

    def _draft(self, name: str, *args: Any) -> Draft:
        d = CDraft()
        with self._exclusive():
            self._lib.step(self.handle, "session_" + name, self.handle, *args, C.byref(d))
            return Draft(array_of(d.tokens, d.n, np.int32).copy(), array_of(d.parents, d.n, np.int32).copy(),
                         array_of(d.depths, d.n, np.int32).copy(), array_of(d.masks, d.n, np.uint64).copy(),
                         array_of(d.logprobs, d.n, np.float32).copy(), d.cycle)

    def finish(self) -> Draft:
        """The tree to verify."""
        return self._draft("finish")

    def draft_block(self, hidden: Any, draft_input: Any = None, by_position: bool = False, p_min: float = 0.0,
                    confidence: Any = None, confidence_bias: float = 0.0, select: Callable[..., Any] | None = None,
                    k: int = 16) -> Draft:
        """The draft of a block drafter's states, in place of beam(), expand() and finish().

        hidden: float32 [n, d], row 0 for what follows the root; draft_input: the same of what the pass read. by_position: a
        list for each position in place of one union of rows. p_min: the draft ends before a position of less confidence, by
        weights float32 [d + rank] of the state and of w1 at the token before; without, by the path's probability.
        select(position, previous, ids, logits) changes the logits of the k best tokens in place, as DFlash 2's selector does.
        """
        n, failed = size_of(hidden, 0, "hidden"), []

        def chosen(_: Any, position: int, previous: int, ids: Any, n_ids: int, logits: Any) -> int:
            of_c = np.ctypeslib.as_array(logits, (n_ids,))
            judged = of_c.copy()  # what select keeps outlives this call
            try:
                select(position, previous, array_of(ids, n_ids, np.int32).copy(), judged)
                of_c[:] = judged
            except BaseException as error:  # it must not pass through C
                failed.append(error)
            return len(failed)

        held = (pointer(hidden, "float32", (n, self.width), "hidden"),
                pointer(draft_input, "float32", (n, self.width), "draft_input"),
                pointer(confidence, "float32", (self.width + self.policy.head.rank,), "confidence"))
        block = CBlock(n, held[0], held[1], int(by_position), p_min, held[2], confidence_bias,
                       Selector(chosen) if select else Selector(), None, k)
        try:
            return self._draft("draft_block", C.byref(block))
        except SpecrtError:
            if failed:
                raise failed[0]
            raise

    def block_topk(self, hidden: Any, draft_input: Any = None, k: int = 16) -> tuple[np.ndarray, np.ndarray]:
        """The k best token ids int32 [n, k] of every position, and their logits float32 [n, k], over the rows of the
        policy alone; -1 and -inf where there are fewer. A tree of your own may follow: finish() is not needed."""
        n = size_of(hidden, 0, "hidden")
        ids, logits = np.empty((n, max(k, 0)), np.int32), np.empty((n, max(k, 0)), np.float32)
        self._step("block_topk", pointer(hidden, "float32", (n, self.width), "hidden"),
                   pointer(draft_input, "float32", (n, self.width), "draft_input"), n, k, ids.ctypes.data_as(C.c_void_p),
                   logits.ctypes.data_as(C.c_void_p))
        return ids, logits

    def accept(self, draft: Draft, logits: Any, hidden: Any = None) -> Verdict:
        """Verifies a draft losslessly, ends the answer at a terminator or at max_tokens, and learns: verify() and
        observe() in one.

        draft: of finish(), or a tree of your own, whose root is the last emitted token. logits: float32 [n, n_logits] of
        the target at the draft's nodes. hidden: float32 [n, policy.hidden_width] there, where that is not 0.
        """
        d, out = _c_draft(draft), CVerdict()
        rows = self._rows(d.n, logits, None, hidden)
        self._step("accept", C.byref(d), rows, C.byref(out))
        return _verdict(out)

    def verify(self, draft: Draft, logits: Any) -> Verdict:
        """What the target makes of a draft, as accept(), but without an end. observe() follows."""
        d, out = _c_draft(draft), CVerdict()
        logits = pointer(logits, "float32", (d.n, self.n_logits), "logits")
        self._step("verify", C.byref(d), logits, C.byref(out))
        return _verdict(out)

    def observe(self, draft: Draft, verdict: Verdict, logits: Any = None, ids: Any = None, hidden: Any = None) -> None:
        """Learns from a cycle. verdict: of verify(), or cut, or your own. logits, ids and hidden: the target's at the
        draft's nodes, as for prefill() and accept()."""
        d = _c_draft(draft)
        rows = self._rows(d.n, logits, ids, hidden)
        self._step("observe", C.byref(d), C.byref(_c_verdict(verdict)), rows)

    def observe_chain(self, tokens: Any, n_accepted: int, last: int, logits: Any = None, ids: Any = None,
                      hidden: Any = None) -> None:
        """Learns from a chain that was verified elsewhere: tokens [n] the root and what was drafted, how many of these
        were accepted, and the target's own token after them. last: -1 if that is not drawn yet; start() then passes it."""
        tokens = ints(tokens, "tokens")
        rows = self._rows(len(tokens), logits, ids, hidden)
        self._step("observe_chain", C.c_void_p(tokens.ctypes.data), len(tokens), n_accepted, last, rows)

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
    n, first, beams = size_of(draft_hidden, 0, "draft_hidden"), sessions[0], (CBeam * len(sessions))()
    with Exclusive(list(sessions)):
        handles = (C.c_void_p * len(sessions))(*(s.handle.value for s in sessions))
        first._lib.step(first.handle, "session_expand_batch", handles, len(sessions),
                        pointer(draft_hidden, "float32", (n, first.width), "draft_hidden"),
                        pointer(draft_input, "float32", (n, first.width), "draft_input"), n, beams)
        return [_beam(b) for b in beams]
