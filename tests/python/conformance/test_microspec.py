"""test_microspec.py : MicroSpec (arXiv 2605.26444v1, section 3.2): the stream of candidates, Eq. 2 to 4, and Algorithm 1,
lines 6, 7 and 26 to 29. The paper's settings are K_pre = K_ver = 3 and W_max = 3072."""
import unittest

import numpy as np

import specrt
from conformance.cycles import best, decode, members, random_states, seeds

NOISY = specrt.Sampling(temperature=1.0, seed=3, session=1)


class Stream:
    """The whole stream S as a list. The papers' unions are sets, whose order the paper does not give: specrt's is by last
    occurrence, then by rank (docs/methods/window.md, M2)."""

    def __init__(self, w_max, k_pre, k_ver, only="both"):
        self.w_max, self.k_pre, self.k_ver, self.only = w_max, k_pre, k_ver, only

    def begin(self, prompt, logits):
        last = {}  # of each token of the union, where it occurs last
        for i, z in enumerate(logits):
            last.update((token, (i, rank)) for rank, token in enumerate(best(z, self.k_pre)))
        self.stream = prompt + sorted(last, key=last.get)  # Eq. 2
        if self.only == "ext":  # M6: without S_init; its first candidates are those of the last prompt position
            self.stream = best(logits[-1], self.k_pre)

    def observe(self, cycle):
        if self.only == "ctx":  # section 4.5: no new candidates while decoding
            return
        last = {int(token): i for i, token in enumerate(cycle.draft.tokens) if i > 0}  # M5: without the root
        z_verify = cycle.logits[cycle.verdict.nodes[-1]]  # M3: the final logits of the validated branch
        self.stream += sorted(last, key=last.get) + best(z_verify, self.k_ver)  # Eq. 3

    def members(self):
        return set(self.stream[-self.w_max:])  # Eq. 4


class MicroSpec(unittest.TestCase):
    def check(self, rng, text, reference, tree, n_vocab, n_cycles, sampling):
        policy = specrt.Policy(text, specrt.Head(random_states(rng, n_vocab, 8)))
        session = specrt.Session(policy, n_vocab, tree, sampling)
        for _ in range(2):  # a second sequence knows nothing of the first
            for i, _ in enumerate(decode(rng, session, reference, n_cycles, lambda: np.arange(n_vocab))):
                self.assertEqual(members(session), reference.members(), (str(policy), i))

    def test_paper(self):
        """The preset, on the paper's tree, until the window is full and long after."""
        for seed in seeds(1):
            with self.subTest(seed=seed):
                self.check(np.random.default_rng(seed), "microspec-paper", Stream(3072, 3, 3), specrt.Tree(6, 10, 60), 3000,
                           130, specrt.Sampling())

    def test_windows(self):
        """Windows so small that they end within a cycle's candidates; K_pre and K_ver of all sizes; sampled tokens."""
        for seed in seeds(12):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                k_pre, k_ver = (int(k) for k in rng.integers(1, 9, 2))
                w_max = int(rng.integers(8, 120))
                topk = int(rng.integers(1, min(k_pre, k_ver) + 1))  # of fewer rows the session would fill up
                tree = specrt.Tree(int(rng.integers(1, 5)), topk, int(rng.integers(2, 30)) if topk > 1 else 0)
                self.check(rng, f"window:{w_max}@mode=stream@kpre={k_pre}@kver={k_ver}@positions=last@emitted=off@min=0",
                           Stream(w_max, k_pre, k_ver), tree, 300, 40, NOISY if seed % 2 else specrt.Sampling())

    def test_ablations(self):
        """Table 3: context only, and external only."""
        for seed in seeds(2):
            for only in "ctx", "ext":
                with self.subTest(seed=seed, only=only):
                    text = f"window:60@mode=stream@kpre=3@positions=last@emitted=off@min=0@only={only}"
                    self.check(np.random.default_rng(seed), text, Stream(60, 3, 3, only), specrt.Tree(3, 3, 20), 300, 40,
                               specrt.Sampling())


if __name__ == "__main__":
    unittest.main()
