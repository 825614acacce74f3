#!/usr/bin/env python3
"""What a window gains at equal rows from the requests before: rows that were learnt, or counts.

usage: memory.py BUILD BUNDLE TRACE...
BUNDLE has the counts of a text ("ranks"). TRACEs are of greedy chains under the whole vocabulary, a
domain each or more, requests in their order. A window of W tokens by recency (what the target
emitted, its 8 best there and at the prompt, what was drafted) is filled up to W rows by frequency in
the text. Beside it, all of W rows: the window goes on from request to request (`keeps`), or it is
filled up by what was emitted most before, then by the text (`counts`: by the domain's requests;
`all`: by those of all domains, which come in turns). Accept lengths follow the rules of bench/results/rank.md, which are
replay's; intervals are 95% by requests, in pairs. SIZES in the environment (512 1024 3072)."""
import collections
import ctypes as C
import os
import sys

import rank


def read(lib, path):
    """-> [request]: domain, prompt, target's best there; emitted rows with the target's best."""
    handle, error, record, found = C.c_void_p(), rank.Error(), rank.Record(), []
    lib.specrt_trace_get_info.restype = C.POINTER(rank.Info)
    if lib.specrt_trace_open(path.encode(), None, C.byref(handle), C.byref(error)):
        sys.exit(error.msg.decode())
    width = lib.specrt_trace_get_info(handle).contents.n_top
    lib.specrt_trace_skip_hidden(handle)
    while True:
        if lib.specrt_trace_read(handle, C.byref(record), C.byref(error)):
            sys.exit(error.msg.decode())
        if record.kind == 0:
            return lib.specrt_trace_close(handle) or found
        tokens = rank.ints(record.tokens, record.n)
        best = rank.ints(record.top_ids, record.n * width) or []
        places = [(t, best[i * width:i * width + 8]) for i, t in enumerate(tokens)]
        if record.kind == 1:
            found.append({"prompt": places, "emitted": [], "drafted": []})
            continue
        found[-1]["emitted"] += places
        found[-1]["drafted"] += [rank.ints(record.tree_tokens, record.n_nodes)[1:]] + [[]] * (record.n - 1)


class Window:
    def __init__(self, size):
        self.size, self.tokens = size, collections.OrderedDict()

    def push(self, tokens):
        for t in tokens:
            if t >= 0:
                self.tokens[t] = None
                self.tokens.move_to_end(t)
                if len(self.tokens) > self.size:
                    self.tokens.popitem(last=False)

    def members(self, fill):
        found = set(self.tokens)
        for t in fill:
            if len(found) >= self.size:
                break
            found.add(t)
        return found


def serve(request, rows, window, fill, steps, by_level):
    """-> covered tokens, tokens; emitted tokens, cycles. The window learns at the end of a cycle."""
    for token, best in request["prompt"]:
        window.push([token, *best])
    members, waiting = window.members(fill), []
    level = n = n_cycles = n_emitted = covered = 0
    carry = 0.0
    for (token, best), drafted, row in zip(request["emitted"], request["drafted"], rows):
        covered += token in members
        n += 1
        chance = rank.chance(row, level, members, by_level) if level < steps else 0
        if 0 < chance < 1:
            carry += chance
            chance = carry >= 1
            carry -= chance
        waiting += drafted + best + [token]
        if chance >= 1:
            level += 1
            continue
        n_emitted, n_cycles, level, n = n_emitted + n, n_cycles + 1, 0, 0
        window.push(waiting)
        members, waiting = window.members(fill), []
    return covered, len(rows), n_emitted, n_cycles


def by_count(counts, general):
    return sorted(counts, key=lambda t: (-counts[t], t)) + general


def replay(requests, size, general, steps, by_level):
    """requests: [(domain, request, rows)], domains in turns -> {way: [sums]}."""
    found = collections.defaultdict(list)
    kept = collections.defaultdict(lambda: Window(size))
    counts, everywhere = collections.defaultdict(collections.Counter), collections.Counter()
    for domain, request, rows in requests:
        go = lambda window, fill: serve(request, rows, window, fill, steps, by_level)
        found["forgets"].append(go(Window(size), general))
        found["keeps"].append(go(kept[domain], general))
        found["counts"].append(go(Window(size), by_count(counts[domain], general)))
        found["all"].append(go(Window(size), by_count(everywhere, general)))
        for token, _ in request["emitted"]:
            counts[domain][token] += 1
            everywhere[token] += 1
    return found


def in_turns(domains):
    return [x for turn in range(max(map(len, domains.values()))) for d in domains.values() for x in d[turn:turn + 1]]


def main(build, bundle, traces):
    lib = C.CDLL(os.environ.get("SPECRT_LIBRARY", f"{build}/libspecrt.so"))
    lib.specrt_trace_open.argtypes = [C.c_char_p, C.c_void_p, C.c_void_p, C.c_void_p]
    text = rank.Text(build, bundle)
    general = text.forced + sorted(text.normal, key=lambda t: (-text.counts[t], t))
    domains, everything, steps = collections.OrderedDict(), [], 0
    for path in traces:
        _, steps, rows = rank.read_trace(lib, path)
        everything += rows
        for request, (domain, mine) in zip(read(lib, path), rows):
            domains.setdefault(domain, []).append((domain, request, mine))
    by_level = rank.rates(everything, steps)
    requests = in_turns(domains)
    print(f"{len(requests)} requests, {sum(len(rows) for _, _, rows in requests):,} tokens\n")
    lines = []
    for size in map(int, os.environ.get("SIZES", "512 1024 3072").split()):
        found = replay(requests, size, general, steps, by_level)
        accept = {way: [(s[2], s[3]) for s in sums] for way, sums in found.items()}
        cover = {way: [(s[0], s[1]) for s in sums] for way, sums in found.items()}
        for part, sums in (("accept length", accept), ("covered", cover)):
            base = rank.accept(sums["forgets"])
            cells = [rank.cell(sums[way], sums["forgets"]) for way in ("keeps", "counts", "all")]
            lines.append((f"{size:,} rows, {part}", f"{base:.3f}", *cells))
    rank.table(["", "forgets", "keeps", "counts", "all"], lines)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
