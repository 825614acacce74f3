"""test_graph.py : EvoSpec's co-occurrence graph (arXiv 2605.27390v2, section 3.3, A.3 and Table 5), as cograph-build writes it
from a stream of tokens: an edge u -> v wherever v follows u, weights p(v | u), at least 5 pairs, at least tau = 1e-4 of u's
pairs, at most 64 edges of u."""
import ctypes as C
import os
import unittest
from collections import Counter

import numpy as np

import specrt
from conformance.cycles import seeds, write_ids
from specrt import _tool
from test_specrt import Folder


def random_documents(rng, n_vocab, n, length, n_next=12):
    """Walks over a random graph, whose steps to a token's successors are more or less frequent."""
    successors = rng.integers(n_vocab, size=(n_vocab, n_next))
    at, out = rng.integers(n_vocab, size=n), np.empty((length, n), np.int64)
    for row in out:
        row[:] = at
        at = successors[at, np.minimum(rng.geometric(0.3, n) - 1, n_next - 1)]
    return list(out.T)


def hub(rng, token, n, p):
    """n pairs of a token and what follows it, ever rarer: of 60,000 pairs, 5 are too few for tau and 6 are not."""
    out = np.full(2 * n, token)
    out[1::2] = 20 + np.minimum(rng.geometric(p, n), 400)
    return out


def count(documents, breaks=()):
    """c(u, v) within documents, as {u: {v: pairs}}."""
    pairs = Counter()
    for tokens in documents:
        pairs.update((int(u), int(v)) for u, v in zip(tokens, tokens[1:]) if u not in breaks and v not in breaks)
    graph = {}
    for (u, v), n in pairs.items():
        graph.setdefault(u, {})[v] = n
    return graph


def prune(followers, max_degree, min_count, tau):
    """The successors of one token that stay, heaviest first; equal ones by id, as specrt decides."""
    total = sum(followers.values())
    kept = [v for v, n in followers.items() if n >= min_count and n / total >= tau]
    return sorted(kept, key=lambda v: (-followers[v], v))[:max_degree]


def build(folder, documents, n_vocab, output, *more):
    """cograph-build over documents, a file each."""
    os.makedirs(folder)
    for i, tokens in enumerate(documents):
        write_ids(os.path.join(folder, f"{i:03}.bin"), tokens)
    _tool.run("--tokenizer", "none", "--id-bytes", 2, "--n-vocab", n_vocab, "--corpus", folder, "-o", output, "-q", *more,
              tool="cograph-build")


def read(path):
    """Of section "cograph" (docs/FORMAT.md) by token: its pairs, its successors, their counts, how many the rule keeps."""
    with specrt.Bundle(path) as bundle:
        n = C.c_size_t()
        data = C.string_at(bundle._lib.bundle_data(bundle.handle, b"cograph", C.byref(n)), n.value)
    n_vocab, n_edges = np.frombuffer(data, "<i4", 1)[0], int(np.frombuffer(data, "<u8", 1, 8)[0])
    at, arrays = 56, []
    for dtype, size in ("<u8", n_vocab), ("<u4", n_vocab + 1), ("<u4", n_vocab), ("<i4", n_edges), ("<f4", n_edges):
        arrays.append(np.frombuffer(data, dtype, size, at))
        at += arrays[-1].nbytes
    totals, offsets, n_rule, ids, counts = arrays
    edges = [slice(int(a), int(b)) for a, b in zip(offsets, offsets[1:])]
    return [(int(totals[u]), ids[e].tolist(), counts[e].tolist(), int(n_rule[u])) for u, e in enumerate(edges)]


class Graph(Folder):
    def check(self, name, documents, n_vocab, breaks, rule, kept, *more):
        build(self.path(name), documents, n_vocab, self.path(name + ".specb"), *more)
        graph = count(documents, breaks)
        for u, (total, ids, counts, n_rule) in enumerate(read(self.path(name + ".specb"))):
            followers = graph.get(u, {})
            self.assertEqual(total, sum(followers.values()), u)
            self.assertEqual(ids, prune(followers, *kept), u)
            self.assertEqual(counts, [followers[v] for v in ids], u)
            self.assertEqual(ids[:n_rule], prune(followers, *rule), u)

    def test_published(self):
        """The published rule is the default: 5 pairs, 1e-4, 64 edges."""
        for seed in seeds(1):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                documents = random_documents(rng, 500, 20, 3000) + [hub(rng, 500, 60000, 0.15), hub(rng, 501, 20000, 0.01)]
                self.check(f"published{seed}", documents, 502, (), (64, 5, 1e-4), (1024, 1, 0))

    def test_rules(self):
        """Other rules, tokens that break pairs, and limits of what is kept for the source `successor`."""
        for seed in seeds(6):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                n_vocab = int(rng.integers(10, 200))
                documents = random_documents(rng, n_vocab, int(rng.integers(1, 6)), int(rng.integers(500, 4000)))
                breaks = {int(n_vocab - 1), int(rng.integers(n_vocab))}
                rule = int(rng.integers(1, 9)), int(rng.integers(2, 30)), 2.0 ** -int(rng.integers(2, 8))
                kept = int(rng.integers(8, 14)), int(rng.integers(1, 3)), 0
                self.check(f"rules{seed}", documents, n_vocab, breaks, rule, kept, "--breaks", ",".join(map(str, breaks)),
                           "--max-degree", rule[0], "--min-count", rule[1], "--tau", rule[2], "--successors", kept[0],
                           "--successor-count", kept[1])


if __name__ == "__main__":
    unittest.main()
