#!/usr/bin/env python3
"""Lists whose tokens are ranked by what their absence costs, beside lists by frequency.

usage: rank.py BUILD BUNDLE TRACE...
BUNDLE has the counts of a text ("ranks"), and of its pairs ("cograph"). TRACEs are of greedy chains
under the whole vocabulary. Half of each domain's prompts choose lists that the other half tests, and
the other way round: no list is tested on what it was made of. Accept lengths are what `specrt-eval
replay` estimates (checked for the text's own list), intervals 95% by prompts, of the paired
difference to frequency. In the environment: SIZES ("512 2048 8192 32768"), SHARES of the recording
in the counts ("0.1 0.5"). BUILD needs `make lib` and the tools. docs/METHODS.md, "What a missing
token costs", has the reasons; Python's standard library is enough."""
import array
import collections
import ctypes as C
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

ORDERS = ["cut", "draftable", "cycles", "exact"]  # and frequency, with which each is compared
TEXT_ORDERS = ["follows", "leads"]
ROUNDS = 2  # of "exact", which values a token beside the list that it had before
CHANCE = 0.8  # that a drafter is right where the recording does not know


class Error(C.Structure):
    _fields_ = [("status", C.c_int), ("msg", C.c_char * 512)]


class Info(C.Structure):
    _fields_ = [("sha256", C.c_uint8 * 32)]
    _fields_ += [(n, C.c_int32) for n in "n_vocab d_target d_draft n_top n_draft_top n_tree_top".split()]
    _fields_ += [("policy", C.c_char_p)]
    _fields_ += [(n, C.c_int32) for n in "num_steps topk num_draft_tokens draft".split()]


class Record(C.Structure):
    _fields_ = [(n, C.c_int32) for n in "kind n n_nodes".split()] + [("domain", C.c_char * 32)]
    _fields_ += [(n, C.c_void_p) for n in
                 "tokens nodes tree_tokens tree_parents tree_logprobs target_hidden top_ids top_logits "
                 "top_logsumexp draft_hidden draft_ids draft_logits draft_logsumexp tree_top_ids "
                 "prompt_hidden".split()]


class Row:
    """An emitted token: the level it was drawn at, of how many in its cycle; whether the drafter made
    a pass there, and which tokens it liked better (None: more than were recorded)."""

    def __init__(self, token, level, n, best):
        self.token, self.level, self.n, self.known = token, level, n, best is not None
        self.rivals = tuple(best[:best.index(token)]) if best and token in best else None


def ints(address, n):
    return list((C.c_int32 * n).from_address(address)) if address else None


def read_trace(lib, path):
    """-> levels of its chains, [(domain, [Row])]."""
    handle, error, record, found = C.c_void_p(), Error(), Record(), []
    lib.specrt_trace_get_info.restype = C.POINTER(Info)
    if lib.specrt_trace_open(path.encode(), None, C.byref(handle), C.byref(error)):
        sys.exit(error.msg.decode())
    info = lib.specrt_trace_get_info(handle).contents
    if info.policy != b"full" or info.topk != 1 or info.n_draft_top == 0:
        sys.exit(f"{path}: expected chains under 'full' with the drafter's best tokens")
    steps, width = info.num_steps, info.n_draft_top
    lib.specrt_trace_skip_hidden(handle)
    while True:
        if lib.specrt_trace_read(handle, C.byref(record), C.byref(error)):
            sys.exit(error.msg.decode())
        if record.kind == 0:
            return lib.specrt_trace_close(handle), steps, found
        if record.kind == 1:
            found.append((record.domain.decode(), []))
            continue
        tokens, best = ints(record.tokens, record.n), ints(record.draft_ids, record.n * width)
        for i, token in enumerate(tokens):
            mine = best[i * width:(i + 1) * width] if best and best[i * width] >= 0 else None
            found[-1][1].append(Row(token, i, record.n, mine))


def section(build, bundle, tag):
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run([f"{build}/bin/specrt-bundle", "extract", bundle, tag, "-o", f"{work}/x"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return open(f"{work}/x", "rb").read() if done.returncode == 0 else None


def column(data, kind, n, at):
    x = array.array(kind)
    x.frombytes(data[at:at + n * x.itemsize])
    return x, at + n * x.itemsize


class Text:
    """What a bundle counted: tokens, and what follows them."""

    def __init__(self, build, bundle):
        data = section(build, bundle, "ranks")
        _, n, n_forced, _, n_valid, _ = struct.unpack("<6i", data[:24])
        counts, at = column(data, "Q", n, 32)
        ids, _ = column(data, "i", n, at)
        self.forced, self.normal = list(ids[:n_forced]), list(ids[n_forced:n_valid])
        self.counts, self.n_valid = dict(zip(ids, counts)), n_valid
        self.n_tokens = sum(counts)
        self.pairs = section(build, bundle, "cograph")

    def list_of(self, weights, size):
        """The first `size`: forced ids, then by weight, ties by id, as vocabtrim-calibrate ranks."""
        ranked = sorted(self.normal, key=lambda t: (-weights.get(t, 0), t))
        return set(self.forced + ranked[:size - len(self.forced)])

    def by_pairs(self):
        """Tokens' counts times the chance that a drafter of pairs is right: "follows", at the token
        itself (the root of p(token | the one before), from .7 to 1, as rates were measured);
        "leads", and 1 more, at the one after it, so that tokens which begin runs count double."""
        n, _, n_edges = struct.unpack("<iiQ", self.pairs[:16])
        totals, at = column(self.pairs, "Q", n, 56)
        offsets, at = column(self.pairs, "I", n + 1, at)
        ids, at = column(self.pairs, "i", n_edges, at + 4 * n)
        counts, _ = column(self.pairs, "f", n_edges, at)
        likely, leads = collections.Counter(), {}
        for u in range(n):
            edges = range(offsets[u], offsets[u + 1])
            for e in edges:
                likely[ids[e]] += counts[e] * math.sqrt(counts[e] / totals[u])
            leads[u] = self.counts.get(u, 0) * (1 + (counts[edges[0]] / totals[u] if edges else 0))
        follows = {t: 0.7 * self.counts[t] + 0.3 * likely[t] for t in self.normal}
        return {"follows": follows, "leads": leads}


# What replay does with a fixed list, in chains (docs/METHODS.md, "Replay").

def rates(sequences, steps):
    """Acceptance of the whole vocabulary by level."""
    reached, accepted = [0] * (steps + 1), [0] * (steps + 1)
    for _, rows in sequences:
        alive = True
        for r in rows:
            alive = alive or r.level == 0
            if not alive or not r.known or r.level >= steps:
                continue
            alive = r.level + 1 < r.n or r.rivals == ()
            reached[r.level] += 1
            accepted[r.level] += alive
    found = []
    for level in range(steps + 1):
        found.append(accepted[level] / reached[level] if reached[level] else found[-1] if found else 0)
    return found


def chance(row, level, members, by_level):
    if row.token not in members:
        return 0
    if not row.known:
        return by_level[level]
    if row.rivals is not None and not any(t in members for t in row.rivals):
        return 1
    here, there = by_level[level], by_level[row.level]
    return (here - there) / (1 - there) if level < row.level and here > there else 0


def walk(rows, members, steps, by_level):
    """-> tokens and cycles."""
    level = n = n_cycles = n_emitted = 0
    carry = 0.0
    for row in rows:
        n += 1
        drafted = chance(row, level, members, by_level) if level < steps else 0
        if 0 < drafted < 1:
            carry += drafted
            drafted = carry >= 1
            carry -= drafted
        if drafted >= 1:
            level += 1
        else:
            n_emitted, n_cycles = n_emitted + n, n_cycles + 1
            level = n = 0
    return n_emitted, n_cycles


# What an occurrence of a token weighs.

def right(row, steps):
    """Whether the whole vocabulary drafted the token: 1, 0, or a chance where no pass was made."""
    return 1.0 if row.level + 1 < row.n else 0.0 if row.n <= steps else CHANCE


def run_lengths(bits):
    """Rights in a row before each place, and after it."""
    before, after = [0] * len(bits), [0] * len(bits)
    for i in range(1, len(bits)):
        before[i] = before[i - 1] + 1 if bits[i - 1] else 0
        after[-1 - i] = after[-i] + 1 if bits[-i] else 0
    return before, after


def by_occurrence(order, sequences, steps):
    weights = collections.Counter()
    for _, rows in sequences:
        bits = [right(r, steps) for r in rows]
        before, after = run_lengths(bits)
        for i, row in enumerate(rows):
            a, b, m = before[i], after[i], steps + 1
            weights[row.token] += {
                "frequency": 1,
                "cut": max(0, row.n - 1 - row.level),  # what the recorded cycle would have lost
                "draftable": bits[i],
                "cycles": bits[i] * (1 + a // m + b // m - (a + b + 1) // m)}[order]
    return weights


def by_walks(sequences, members, steps, by_level):
    """Cycles more without a token than with it, beside a list, of tokens that occur; not below 0, so
    that no few prompts take from the list what the text brought."""
    touched = collections.defaultdict(set)
    for i, (_, rows) in enumerate(sequences):
        for row in rows:
            for t in (row.token, *(row.rivals or ())):
                touched[t].add(i)
    weights = {}
    for t in {row.token for _, rows in sequences for row in rows}:
        without, with_it = members - {t}, members | {t}
        more = sum(walk(sequences[i][1], without, steps, by_level)[1]
                   - walk(sequences[i][1], with_it, steps, by_level)[1] for i in touched[t])
        weights[t] = max(0, more)
    return weights


# Lists of text and recording.

class Trial:
    def __init__(self, text, sequences, steps):
        self.text, self.sequences, self.steps = text, sequences, steps
        self.by_level = rates(sequences, steps)
        seen, self.halves = collections.Counter(), ([], [])
        for i, (domain, _) in enumerate(sequences):
            self.halves[seen[domain] % 2].append(i)
            seen[domain] += 1

    def weights(self, order, chosen, share, size):
        """Counts of the text and, as `share` of all, what the chosen sequences weigh."""
        plain = by_occurrence("frequency", chosen, self.steps)
        members = self.text.list_of(self.mixed(plain, share), size)
        if order != "exact":
            return self.mixed(by_occurrence(order, chosen, self.steps), share)
        for _ in range(ROUNDS):
            mixed = self.mixed(by_walks(chosen, members, self.steps, self.by_level), share)
            members = self.text.list_of(mixed, size)
        return mixed

    def mixed(self, weights, share):
        scale = share / (1 - share) * self.text.n_tokens / sum(weights.values())
        mixed = collections.Counter(self.text.counts)
        for t, w in weights.items():
            mixed[t] += scale * w
        return mixed

    def test(self, members, which):
        return {i: walk(self.sequences[i][1], members, self.steps, self.by_level) for i in which}

    def crossed(self, order, share, size):
        """[(tokens, cycles)] of all sequences, each under the list of the other half."""
        found = {}
        for test, choose in (self.halves, self.halves[::-1]):
            chosen = [self.sequences[i] for i in choose]
            found |= self.test(self.text.list_of(self.weights(order, chosen, share, size), size), test)
        return [found[i] for i in range(len(self.sequences))]

    def everywhere(self, weights, size):
        found = self.test(self.text.list_of(weights, size), range(len(self.sequences)))
        return [found[i] for i in range(len(self.sequences))]


def rights_by_rank(trial):
    """How often the whole vocabulary drafted a token, by its rank in the text's list."""
    ids = trial.text.forced + sorted(trial.text.normal, key=lambda t: (-trial.text.counts[t], t))
    rank, bands = {t: i for i, t in enumerate(ids)}, [128, 512, 2048, 8192, 32768, len(ids)]
    sums = [[0, 0] for _ in bands]
    for _, rows in trial.sequences:
        for row in rows:
            band = next((i for i, end in enumerate(bands) if rank.get(row.token, end) < end), -1)
            if right(row, trial.steps) != CHANCE:
                sums[band][0] += right(row, trial.steps)
                sums[band][1] += 1
    return [f"{100 * a / n:.0f}% of {n:,}" if n else "-" for a, n in sums]


def accept(pairs):
    return sum(y for y, _ in pairs) / sum(x for _, x in pairs)


def gain(pairs, base):
    """The accept length in % of the base's, less 100, and half of its 95% interval (linearised)."""
    n, relative = len(pairs), []
    for side in (pairs, base):
        ratio, cycles = accept(side), sum(x for _, x in side)
        relative.append([(y - ratio * x) / (cycles * ratio) for y, x in side])
    spread = sum((p - q) ** 2 for p, q in zip(*relative)) * n / (n - 1)
    student = 1.96 + 2.37 / (n - 1)  # its quantile, for so many sequences
    return 100 * (accept(pairs) / accept(base) - 1), 100 * student * math.sqrt(spread)


def check(build, bundle, traces, size, pairs):
    said = subprocess.run([f"{build}/bin/specrt-eval", "replay", "--bundle", bundle, "--policy",
                           f"static:{size}", "--json", "-q", *(a for t in traces for a in ("--trace", t))],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    wanted = {"policy": f"static:{size}", "domain": "all"}
    row = next(r for r in json.loads(said)["rows"] if wanted.items() <= r.items())
    if abs(row["accept_length"] - accept(pairs)) > 1e-6:
        sys.exit(f"static:{size}: replay says {row['accept_length']}, this program {accept(pairs)}")


def table(names, rows):
    print("| " + " | ".join(names) + " |")
    print("|---|" + "--:|" * (len(names) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def cell(pairs, base):
    middle, half = gain(pairs, base)
    return f"{middle:+.2f}% (± {half:.2f})"


def main():
    build, bundle, *traces = sys.argv[1:]
    lib = C.CDLL(os.environ.get("SPECRT_LIBRARY", f"{build}/libspecrt.so"))
    text, read = Text(build, bundle), [read_trace(lib, t) for t in traces]
    trial = Trial(text, [s for _, _, found in read for s in found], read[0][1])
    sizes = [int(n) for n in os.environ.get("SIZES", "512 2048 8192 32768").split()]
    sizes = [n for n in sizes if n < text.n_valid]
    print(f"{len(trial.sequences)} sequences, {sum(len(r) for _, r in trial.sequences):,} tokens; "
          f"{text.n_tokens:,} tokens of text; chains of {trial.steps}\n")
    base = {n: trial.everywhere(text.counts, n) for n in sizes}
    for n in sizes:
        check(build, bundle, traces, n, base[n])
    names = ["", *(f"{n:,} rows" for n in sizes)]
    rows = [["frequency, accept length", *(f"{accept(base[n]):.3f}" for n in sizes)]]
    for order, weights in (text.by_pairs() if text.pairs else {}).items():
        rows.append([order, *(cell(trial.everywhere(weights, n), base[n]) for n in sizes)])
    print("Tokens that the whole vocabulary drafted, by rank in the text:\n")
    table(["below 128", "512", "2,048", "8,192", "32,768", "beyond"], [rights_by_rank(trial)])
    print("Text alone:\n")
    table(names, rows)
    for share in map(float, os.environ.get("SHARES", "0.1 0.5").split()):
        own = {n: trial.crossed("frequency", share, n) for n in sizes}
        rows = [["frequency, accept length", *(f"{accept(own[n]):.3f}" for n in sizes)]]
        for order in ORDERS:
            rows.append([order, *(cell(trial.crossed(order, share, n), own[n]) for n in sizes)])
        print(f"Text, and the other half of the recording as {100 * share:.0f}% of all counts:\n")
        table(names, rows)


if __name__ == "__main__":
    main()
