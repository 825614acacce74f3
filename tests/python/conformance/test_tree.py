"""test_tree.py : EAGLE-2's draft tree (Li et al. 2024, arXiv 2406.16858, section 4): expansion by the product of the drafter's
probabilities along a path (4.1), reranking of all drafted tokens (4.2), the attention mask of ancestors (4.3)."""
import ctypes as C
import unittest

import numpy as np

import specrt
from conformance.cycles import seeds
from specrt._lib import CBeam, CDraft, CTreeParams, array_of

ROOT = -1


class Eagle2:
    """All drafted tokens in the order of their proposal, each with its parent and its value V, the log of its path's
    probability. At equal values the earlier proposal is chosen: a parent before its child, as EAGLE's code needs."""

    def __init__(self, root, num_steps, topk, num_draft_tokens):
        self.root, self.num_steps, self.topk, self.n_nodes = root, num_steps, topk, num_draft_tokens
        self.drafted, self.beam, self.n_passes = [], [ROOT], 0

    def value(self, i):
        return np.float32(0) if i == ROOT else self.drafted[i][2]

    def best(self, drafted, n):
        possible = [i for i in drafted if self.value(i) > -np.inf]
        return sorted(possible, key=lambda i: (-self.value(i), i))[:n]

    def expand(self, ids, logprobs):
        """A pass over the beam: each of its rows proposes tokens; the best of them all are the next beam."""
        first, rows = len(self.drafted), self.beam
        for parent, tokens, values in zip(rows, ids.tolist(), logprobs):
            self.drafted += [(token, parent, self.value(parent) + x) for token, x in zip(tokens, values)]
        self.n_passes += 1
        self.beam = self.best(range(first, len(self.drafted)), self.topk) if self.n_passes < self.num_steps else []
        return ([self.drafted[i][0] for i in self.beam], [rows.index(self.drafted[i][1]) for i in self.beam],
                [self.value(i) for i in self.beam])

    def finish(self):
        """The tokens of greatest value, in the order of their proposal, behind the root."""
        chosen = [ROOT] + sorted(self.best(range(len(self.drafted)), self.n_nodes - 1))
        parents = [-1] + [chosen.index(self.drafted[i][1]) for i in chosen[1:]]
        depths, masks = [0], [1]
        for node, parent in enumerate(parents[1:], 1):
            depths.append(depths[parent] + 1)
            masks.append(masks[parent] | 1 << node)
        tokens = [self.root] + [self.drafted[i][0] for i in chosen[1:]]
        return tokens, parents, depths, masks, [self.value(i) for i in chosen]


class Tree:
    """specrt_tree."""

    def __init__(self, root, *params):
        self.lib = specrt.library()
        self.lib.lib.specrt_tree_begin.restype = self.lib.lib.specrt_tree_finish.restype = None
        self.lib.lib.specrt_tree_close.restype = None
        self.handle = self.lib.open("tree_create", C.byref(CTreeParams(*params)), None)
        self.lib.tree_begin(self.handle, root)

    def expand(self, ids, logprobs):
        b = CBeam()
        status = self.lib.tree_expand(self.handle, C.c_void_p(ids.ctypes.data), C.c_void_p(logprobs.ctypes.data), *ids.shape,
                                      C.byref(b))
        assert status == 0, status
        return tuple(array_of(x, b.n, t).tolist() for x, t in ((b.tokens, "i4"), (b.parents, "i4"), (b.logprobs, "f4")))

    def finish(self):
        d = CDraft()
        self.lib.tree_finish(self.handle, C.byref(d))
        out = tuple(array_of(x, d.n, t).tolist() for x, t in ((d.tokens, "i4"), (d.parents, "i4"), (d.depths, "i4"),
                                                             (d.masks, "u8"), (d.logprobs, "f4")))
        self.lib.tree_close(self.handle)
        return out


def random_proposals(rng, n, k):
    """Distinct tokens of each row with their log-probabilities, best first: zeros, -inf and equal ones among them."""
    ids = np.array([rng.permutation(200)[:k] for _ in range(n)], np.int32).reshape(n, k)
    logprobs = -np.sort(rng.exponential(1.5, (n, k)).astype(np.float32), axis=1)
    if rng.random() < 0.5:
        logprobs = np.ceil(logprobs * 4) / 4
    logprobs[logprobs < -6] = -np.inf
    return ids, np.ascontiguousarray(logprobs + np.float32(0))


class Trees(unittest.TestCase):
    def check(self, rng, num_steps, topk, num_draft_tokens):
        root = int(rng.integers(200))
        reference = Eagle2(root, num_steps, topk, num_draft_tokens)
        tree, n = Tree(root, num_steps, topk, num_draft_tokens), 1
        while n:
            k = topk if rng.random() < 0.9 else int(rng.integers(topk))  # a short list proposes fewer
            proposals = random_proposals(rng, n, k)
            beam, expected = tree.expand(*proposals), reference.expand(*proposals)
            self.assertEqual(beam, expected)
            n = len(beam[0])
        self.assertEqual(tree.finish(), reference.finish())

    def test_published(self):
        """Depth 5, ten tokens, 60 nodes."""
        for seed in seeds(20):
            with self.subTest(seed=seed):
                self.check(np.random.default_rng(seed), 6, 10, 60)

    def test_shapes(self):
        for seed in seeds(60):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                topk, steps = int(rng.integers(1, 16)), int(rng.integers(1, 10))
                self.check(rng, steps, topk, int(rng.integers(2, 65)))


if __name__ == "__main__":
    unittest.main()
