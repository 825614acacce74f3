#!/usr/bin/env python3
"""Sessions of Python side by side: rows of their own beside one Stock, by what they take of the processor.

usage: many.py MODEL BUNDLE TRACE...    # MODEL: a GGUF whose head drafts (f16); SEQUENCES="1 2 4 16"
They learn from recorded cycles as these were, and score the drafter's recorded states, as those of
bench_many.c do; all ways must draft the same with the same probabilities. The ways take turns,
medians of cycles. `make benchmarks NAMES=many-python` records answers and runs it; needs numpy and
gguf."""
import ctypes as C
import os
import statistics
import sys
import time

import gguf
import numpy as np

import specrt
from specrt import _lib

POLICIES = ["microspec", "static:512+window", "static:2048+retrieve"]
WAYS = ["one by one", "batch", "stock"]
N_LEVELS, N_TOP, WARM, N_CYCLES = 4, 8, 12, 40


class Cycle:
    """What a record says of one: its drafts, what came of them, and the drafter's states."""

    def __init__(self, r, info):
        self.tokens = view(r.tree_tokens, np.int32, r.n_nodes)
        self.best = view(r.tree_top_ids, np.int32, r.n_nodes, info.n_tree_top)[:, :N_TOP].copy()
        self.n_accepted, self.last = r.n - 1, int(view(r.tokens, np.int32, r.n)[-1])
        states = view(r.draft_hidden, np.float16, r.n, info.d_draft).astype(np.float32)
        self.states = states[~np.isnan(states[:, 0])]


def view(address, dtype, *shape):
    n = int(np.prod(shape))
    return _lib.array_of(address, n, dtype).reshape(shape).copy()


def read(path):
    """-> answers of a trace: (prompt, the target's best there, cycles)."""
    lib, handle, record, out = _lib.library(), C.c_void_p(), _lib.CTraceRecord(), []
    lib.trace_get_info.restype = C.POINTER(_lib.CTraceInfo)
    lib.call("trace_open", path.encode(), None, C.byref(handle))
    info = lib.trace_get_info(handle).contents
    while True:
        lib.call("trace_read", handle, C.byref(record))
        if record.kind == 0:
            break
        if record.kind == 1:
            best = view(record.top_ids, np.int32, record.n, info.n_top)[:, :N_TOP].copy()
            out.append((view(record.tokens, np.int32, record.n), best, []))
        elif record.n_nodes:
            out[-1][2].append(Cycle(record, info))
    lib.trace_close(handle)
    return [answer for answer in out if sum(len(c.states) > 0 for c in answer[2]) > 1]


class Player:
    """A conversation: answers one after another, those of no other player as long as they last."""

    def __init__(self, policy, stock, answers, at, step):
        self.session = specrt.Session(policy, specrt.Tree(N_LEVELS, 1, N_LEVELS + 1), stock=stock)
        self.answers, self.at, self.step = answers, at, step
        self.begin()
        for _ in range(WARM):
            self.observe()

    def begin(self):
        prompt, best, self.cycles = self.answers[self.at % len(self.answers)]
        self.session.prefill(prompt, ids=best)
        self.session.start(self.cycles[0].tokens[0])
        self.i = 0

    def state(self, level):
        states = self.cycles[self.i].states
        return states[min(level, len(states) - 1)] if len(states) else np.zeros(self.session.width)

    def observe(self):
        c = self.cycles[self.i]
        self.session.observe_chain(c.tokens, c.n_accepted, c.last, ids=c.best)
        self.i += 1
        if self.i == len(self.cycles):
            self.at += self.step
            self.session.turn(0)
            self.begin()


def level(way, players, i):
    """Scores a level. @return seconds of the processor."""
    hidden = np.array([p.state(i) for p in players], np.float32)
    start = time.process_time()
    if way == "one by one":
        for k, p in enumerate(players):
            p.session.expand(hidden[k:k + 1])
    else:
        specrt.expand_batch([p.session for p in players], hidden)
    return time.process_time() - start


def race(policy, head, answers, n):
    """-> by way, milliseconds of a level and of learning, medians; statistics of the stock."""
    stock = specrt.Stock(head)
    sides = {way: [Player(policy, stock if way == "stock" else None, answers, i, n) for i in range(n)]
             for way in WAYS}
    spent, learnt = {way: [] for way in WAYS}, {way: [] for way in WAYS}
    for turn in range(N_CYCLES):
        order = WAYS[turn % 3:] + WAYS[:turn % 3]
        sums = dict.fromkeys(WAYS, 0)
        for i in range(N_LEVELS):
            for way in order:
                sums[way] += level(way, sides[way], i)
        drafts = [[d for p in sides[way] for x in (p.session.finish(),)
                   for d in (x.tokens.tolist(), x.logprobs.tolist())] for way in WAYS]
        if drafts[1:] != drafts[:-1]:
            sys.exit(f"{policy}: {n} sequences: the ways drafted differently")
        for way in order:
            start = time.process_time()
            for p in sides[way]:
                p.observe()
            learnt[way].append(time.process_time() - start)
            spent[way].append(sums[way] / N_LEVELS)
    return {way: [1e3 * statistics.median(x[way]) for x in (spent, learnt)] for way in WAYS}, stock.stats()


def main():
    tensors = {t.name: t for t in gguf.GGUFReader(sys.argv[1]).tensors}
    t = tensors.get("output.weight", tensors["token_embd.weight"])
    head = specrt.Head(gguf.dequantize(t.data, t.tensor_type).astype(np.float16))
    traces = [read(path) for path in sys.argv[3:]]
    answers = [trace[i] for i in range(max(map(len, traces))) for trace in traces if i < len(trace)]
    print(f"{len(answers)} recorded answers; head f16 [{head.n_rows}, {head.width}]; milliseconds of the "
          f"processor, medians of {N_CYCLES} cycles; x batch: how many times as fast, learning included\n")
    print("| policy | sequences | way | a level | learning a cycle | x batch | rows held, different, shared |")
    print("|---|--:|---|--:|--:|--:|--:|")
    with specrt.Bundle(sys.argv[2]) as bundle:
        for text in POLICIES:
            policy = specrt.Policy(text, head, bundle)
            for n in map(int, os.environ.get("SEQUENCES", "1 2 4 16").split()):
                found, s = race(policy, head, answers, n)
                cycle = {way: N_LEVELS * a + b for way, (a, b) in found.items()}
                for way, (a, b) in found.items():
                    rows = f"{s.n_holds:,}, {s.n_held:,}, {s.n_shared:,}" if way == "stock" else ""
                    print(f"| `{text}` | {n} | {way} | {a:.3f} | {b:.3f} | {cycle['batch'] / cycle[way]:.2f} "
                          f"| {rows} |", flush=True)
            del policy


main()
