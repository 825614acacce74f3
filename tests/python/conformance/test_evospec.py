"""test_evospec.py : EvoSpec (arXiv 2605.27390v2), path A: events (Algorithm 1, lines 12 to 20), candidates and their graph
neighbours (Eq. 3; A.3, "Runtime candidate formation"), and the cache (A.3, "ARC-based dynamic vocabulary maintenance" and
"Additional safeguards"; Table 5). Points that the paper leaves open follow docs/methods/retrieve.md and say so."""
import ctypes as C
import unittest

import numpy as np

import specrt
from conformance.cycles import best, decode, members, random_states, seeds, write_weights
from conformance.test_graph import build, count, prune, random_documents
from specrt import _tool
from test_specrt import Folder

MAX_INSERTIONS, MIN_RESIDENCY, WARM_UP = 32, 8, 50  # Table 5
TOP, PER_SEED = 10, 8


class Evolving:
    """V_t = V_static and V_dyn. Lists of the cache go from least to most recently used."""

    def __init__(self, static, capacity, graph, search=None):
        self.static, self.capacity, self.search = set(static), capacity, search
        self.graph = {u: prune(followers, 64, 5, 1e-4)[:PER_SEED] for u, followers in graph.items()}

    def begin(self, prompt, logits):
        self.t1, self.t2, self.b1, self.b2 = [], [], [], []
        self.p, self.n_events, self.now, self.since = self.capacity / 2, 0, 0, {}  # "p = 128" of 256

    def members(self):
        return self.static | set(self.t1) | set(self.t2)

    def observe(self, cycle):
        self.now += 1
        x, node, active = int(cycle.verdict.tokens[-1]), cycle.verdict.nodes[-1], self.members()
        for token in cycle.verdict.tokens.tolist():  # decided: an emitted token that is resident counts as a hit
            self.hit(token)
        if x not in active:  # accepted tokens were drafted, and so are in V_t: x alone may be missing
            self.n_events += 1
            self.update(self.candidates(x, cycle.logits[node], cycle.hidden[node] if self.search else None))

    def candidates(self, x, z, h):
        """The initial set is the target's top-10 and the index's; then up to 8 neighbours of each; deduplicated. Decided: x is
        the first candidate, and a seed behind the others (a greedy target's x is its best); every seed's first neighbour comes
        before any seed's second."""
        initial = best(z, TOP) + (self.search(h) if self.search else [])
        seeds = list(dict.fromkeys(initial + [x]))
        neighbours = [self.graph.get(u, [])[i:i + 1] for i in range(PER_SEED) for u in seeds]
        return list(dict.fromkeys([x] + initial + sum(neighbours, [])))

    def hit(self, token):
        """A second hit promotes to T2; one in T2 makes it the most recent."""
        for resident in self.t1, self.t2:
            if token in resident:
                resident.remove(token)
                self.t2.append(token)
                return True
        return False

    def update(self, tokens):
        n = 0
        for token in tokens:
            if token in self.static or self.hit(token) or n == MAX_INSERTIONS:
                continue
            returns = [ghosts for ghosts in (self.b1, self.b2) if token in ghosts]  # the case, as ARC decides it: at first
            if returns and self.n_events > WARM_UP:
                self.adapt(token)
            if len(self.t1) + len(self.t2) == self.capacity and not self.evict():
                continue  # decided: all are too young, and the candidate is dropped
            n += 1
            self.since[token] = self.now
            for ghosts in returns:
                if token in ghosts:  # else evict() has just dropped it
                    ghosts.remove(token)
            (self.t2 if returns else self.t1).append(token)

    def adapt(self, token):
        """As in ARC, by the ratio of the ghosts' sizes, 1 at least; p stays in [0, 256]."""
        b1, b2 = len(self.b1), len(self.b2)
        if token in self.b1:
            self.p = min(self.capacity, self.p + max(1, b2 / b1))
        else:
            self.p = max(0, self.p - max(1, b1 / b2))

    def evict(self):
        """From T1 if |T1| > p, otherwise from T2. Decided: from the other list if this one has none of 8 cycles or more."""
        lists = [(self.t1, self.b1), (self.t2, self.b2)]
        for resident, ghosts in lists if len(self.t1) > self.p else lists[::-1]:
            for token in resident:
                if self.now - self.since[token] >= MIN_RESIDENCY:
                    resident.remove(token)
                    ghosts.append(token)
                    del ghosts[:-self.capacity]
                    return True
        return False


class Index:
    """The bundle's HNSW index, asked as a session asks it."""

    def __init__(self, bundle, head):
        self.lib, self.bundle, self.head = specrt.library(), bundle, head
        self.view = C.create_string_buffer(512)  # struct specrt_hnsw
        self.lib.call("bundle_hnsw", bundle.handle, head.handle, self.view)
        self.lib.hnsw_scratch_bytes.restype = C.c_size_t
        self.scratch = C.create_string_buffer(self.lib.hnsw_scratch_bytes(self.view, 0))

    def search(self, query):
        ids, scores = np.empty(TOP, np.int32), np.empty(TOP, np.float32)
        query, *out = (C.c_void_p(x.ctypes.data) for x in (query, ids, scores))
        n = self.lib.hnsw_search(self.view, query, TOP, 0, *out, self.scratch)
        return ids[:n].tolist()


class EvoSpec(Folder):
    def check(self, rng, text, reference, n_cycles, n_vocab, sampling=specrt.Sampling(), states=None, **more):
        head = specrt.Head(random_states(rng, n_vocab, 8))
        policy = specrt.Policy(text, head, n_vocab=n_vocab, ids=sorted(reference.static), **more)
        session = specrt.Session(policy, n_vocab, specrt.Tree(3, 2, 8), sampling)
        for _ in range(2):  # a second sequence knows nothing of the first
            cycles = decode(rng, session, reference, n_cycles, lambda: session.shortlist(), states)
            for i, _ in enumerate(cycles):
                self.assertEqual(members(session), reference.members(), (str(policy), i))
                self.assertEqual(session.stats().n_events, reference.n_events, (str(policy), i))
        self.assertGreater(reference.n_events, WARM_UP)

    def graph(self, rng, name, n_vocab):
        """A bundle with a graph, and what was counted for it."""
        documents = random_documents(rng, n_vocab, 40, n_vocab * 3)
        build(self.path(name), documents, n_vocab, self.path(name + ".specb"))
        return self.path(name + ".specb"), count(documents)

    def test_logits(self):
        """Seeds are x and the target's ten best. Caches of all sizes, of the published one too."""
        for seed in seeds(8):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                n_vocab, capacity = ((400, int(rng.integers(8, 120))), (1500, 256))[seed % 4 == 0]
                static = rng.permutation(n_vocab)[:n_vocab // 5].tolist()
                noisy = specrt.Sampling(temperature=1.0, seed=seed, session=1)
                path, graph = self.graph(rng, f"logits{seed}", n_vocab)
                self.check(rng, f"static:{len(static)}+retrieve:{capacity}", Evolving(static, capacity, graph), 150, n_vocab,
                           (specrt.Sampling(), noisy)[seed % 2], bundle=specrt.Bundle(path))

    def test_no_graph(self):
        """Without neighbours, and so without a bundle."""
        for seed in seeds(3):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                static, capacity = rng.permutation(300)[:50].tolist(), int(rng.integers(4, 64))
                self.check(rng, f"static:50+retrieve:{capacity}@graph=off", Evolving(static, capacity, {}), 200, 300)

    def test_index(self):
        """Seeds are also the ten rows of the target's head with the greatest products, which the index finds. A state for
        which it does not find them is drawn again: that is recall, which hnsw-build measures."""
        for seed in seeds(2):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                n_vocab, rows = 400, rng.standard_normal((400, 16)).astype(np.float16)
                static = rng.permutation(n_vocab)[:80].tolist()
                path, graph = self.graph(rng, f"index{seed}", n_vocab)
                write_weights(self.path("head.safetensors"), lm_head__weight=rows)
                _tool.run("--model", self.path("head.safetensors"), "--min-recall", 0.99, "-o", path, "-q", tool="hnsw-build")
                bundle, target = specrt.Bundle(path), specrt.Head(rows)
                index, n_drawn, n_missed = Index(bundle, target), 0, 0

                def exact(h):
                    return best(rows.astype(np.float64) @ h, TOP)

                def states(n):
                    nonlocal n_drawn, n_missed
                    out, n_drawn = random_states(rng, n, 16), n_drawn + n
                    for h in out:
                        while index.search(h) != exact(h):
                            n_missed += 1
                            h[:] = random_states(rng, 1, 16)[0]
                    return out
                reference = Evolving(static, 64, graph, exact)
                noisy = specrt.Sampling(temperature=1.0, seed=seed, session=1)
                self.check(rng, "static:80+retrieve:64@sem=hnsw_h", reference, 100, n_vocab,
                           (specrt.Sampling(), noisy)[seed % 2], states, bundle=bundle, target=target)
                self.assertLess(n_missed, 0.1 * n_drawn)


if __name__ == "__main__":
    unittest.main()
