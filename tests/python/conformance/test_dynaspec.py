"""test_dynaspec.py : DynaSpec (arXiv 2510.13847v1, as its German summary gives it, "Modellarchitektur" 2 and 3): a router's
scores s = r([E(x_t); H_t-1]), and the union of the k_c(t) best clusters at draft position t."""
import ctypes as C
import unittest

import numpy as np

import specrt
from conformance.cycles import members, random_logits, random_states, seeds, write_weights
from specrt import _tool
from test_specrt import Folder

N_VOCAB, WIDTH, N_CLUSTERS = 1536, 16, 24  # clusters of 64 rows: of smaller ones specrt takes more than k_c(t)


def k_c(k_max, t):
    """"Positionsabhängige Clusterauswahl". The formula gives 0 for small k_max: specrt takes one cluster."""
    return k_max if t < 2 else max(1, k_max // ((t + 1) * 2))


def rms(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True))


class Router:
    """Section "cluster" (docs/FORMAT.md): clusters, and a network of two layers."""

    def __init__(self, bundle):
        n = C.c_size_t()
        data = C.string_at(bundle._lib.bundle_data(bundle.handle, b"cluster", C.byref(n)), n.value)
        (_, _, n_clusters, n_members, _, _, n_embed, n_state, n_hidden, n_schedule) = np.frombuffer(data, "<i4", 10)
        at, arrays = 48, []
        for dtype, *shape in (("<u4", n_clusters + 1), ("<i4", n_members), ("<i4", n_schedule),
                              ("<f2", n_hidden, n_embed + n_state), ("<f2", n_hidden), ("<f2", n_clusters, n_hidden),
                              ("<f2", n_clusters)):
            arrays.append(np.frombuffer(data, dtype, int(np.prod(shape)), at).reshape(shape))
            at += arrays[-1].nbytes
        offsets, ids, _, *weights = arrays
        self.clusters = [set(ids[a:b].tolist()) for a, b in zip(offsets, offsets[1:])]
        self.w1, self.b1, self.w2, self.b2 = (x.astype(float) for x in weights)

    def choose(self, embedding, state, k):
        """The tokens of the k best clusters for one context."""
        x = self.w1 @ np.concatenate([rms(embedding.astype(float)), rms(state.astype(float))]) + self.b1
        scores = self.w2 @ (x / (1 + np.exp(-x))) + self.b2
        return set().union(*(self.clusters[m] for m in np.argsort(-scores)[:k]))


class DynaSpec(Folder):
    def train(self, rng, name):
        """A bundle with a router, trained on random cycles: it knows nothing, and any will do."""
        self.rows, self.embedding = (rng.standard_normal((N_VOCAB, WIDTH)).astype(np.float16) for _ in range(2))
        write_weights(self.path(name + ".safetensors"), lm_head__weight=self.rows, model__embed_tokens__weight=self.embedding)
        with specrt.TraceWriter(self.path(name + ".trace"), N_VOCAB, d_target=WIDTH, d_draft=WIDTH) as trace:
            for i in range(10):
                trace.sequence(rng.integers(N_VOCAB, size=5), prompt_hidden=random_states(rng, 1, WIDTH)[0])
                for _ in range(10):
                    tokens = rng.integers(N_VOCAB, size=3)
                    trace.cycle(tokens, nodes=[0, 1, 2], tree_tokens=[1, tokens[0], tokens[1], 2], tree_parents=[-1, 0, 1, 2],
                                top_ids=[rng.permutation(N_VOCAB)[:10] for _ in tokens],
                                draft_hidden=random_states(rng, 3, WIDTH), target_hidden=random_states(rng, 3, WIDTH))
        _tool.run("--model", self.path(name + ".safetensors"), "--clusters", N_CLUSTERS, "--balanced", "--router", "dynaspec",
                  "--trace", self.path(name + ".trace"), "--hidden", 12, "--epochs", 2, "-o", self.path(name + ".specb"), "-q",
                  tool="cluster-build")
        return specrt.Bundle(self.path(name + ".specb"))

    def check(self, rng, bundle, router, k_max, tree):
        policy = specrt.Policy(f"cluster:{k_max}@schedule=harmonic@beam=per_row@always=0",
                               specrt.Head(self.rows), bundle, n_vocab=N_VOCAB, embedding=self.embedding)
        session = specrt.Session(policy, N_VOCAB, tree)
        session.begin()
        session.prefill([1, 2, 3])
        session.start(4)
        for _ in range(4):
            beam, t = session.beam(), 0
            while len(beam.tokens):
                state = random_states(rng, len(beam.tokens), WIDTH)
                chosen = [router.choose(self.embedding[x], h, k_c(k_max, t)) for x, h in zip(beam.tokens, state)]
                beam = session.expand(random_states(rng, len(beam.tokens), WIDTH), state)
                self.assertEqual(members(session), set().union(*chosen), (k_max, t))
                for token, row in zip(beam.tokens.tolist(), beam.parents):
                    self.assertIn(token, chosen[row], (k_max, t))
                t += 1
            self.assertEqual(t, tree.num_steps)
            draft = session.finish()
            session.accept(draft, random_logits(rng, len(draft.tokens), N_VOCAB))

    def test_schedule(self):
        """Every k_max, on chains and on trees, whose contexts of a level choose for themselves."""
        for seed in seeds(1):
            rng = np.random.default_rng(seed)
            bundle = self.train(rng, f"seed{seed}")
            router = Router(bundle)
            self.assertEqual({len(c) for c in router.clusters}, {N_VOCAB // N_CLUSTERS})
            for k_max in range(1, N_CLUSTERS + 1):
                with self.subTest(seed=seed, k_max=k_max):
                    self.check(rng, bundle, router, k_max, specrt.Tree(8, 1, 9))
                    self.check(rng, bundle, router, k_max, specrt.Tree(6, 4, 30))


if __name__ == "__main__":
    unittest.main()
