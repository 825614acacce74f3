"""test_vocabtrim.py : VocabTrim (arXiv 2506.22694): the counts of Algorithm 1, the list of Eq. 1, and MBSU = tau / (c gamma + 1)
of section 4.1, beside what vocabtrim-calibrate writes and prints, and beside every figure of the paper's Tables 1 and 4."""
import unittest
from collections import Counter

import numpy as np

import specrt
from conformance.cycles import seeds, write_ids
from specrt import _tool
from test_specrt import Folder

# Llama-3.2-3B-Instruct, from its shapes: 28 layers, a tied embedding. The paper's drafters: an EAGLE layer, and 314M.
N_VOCAB, WIDTH = 128256, 3072
LAYER = 2 * WIDTH * WIDTH + 2 * WIDTH * 1024 + 3 * WIDTH * 8192
TARGET = N_VOCAB * WIDTH + 28 * (LAYER + 2 * WIDTH) + WIDTH
EAGLE = 2 * N_VOCAB * WIDTH + LAYER + 2 * WIDTH * WIDTH, WIDTH  # parameters, width; the embedding counts (decided)
INDEPENDENT = 314_000_000, 1024
TRIMMED = 32975  # rows of 101.3M

# Block efficiency and MBSU, in the paper's order.
TABLE_1 = [(EAGLE, N_VOCAB, """3.141 1.475 3.092 1.451 3.494 1.64 3.638 1.708 3.693 1.734 3.3 1.549 3.098 1.454 3.214 1.509
                               3.23 1.516"""),
           (EAGLE, TRIMMED, """2.974 1.685 3.062 1.735 3.421 1.938 3.294 1.866 3.405 1.928 3.14 1.778 2.996 1.697 3.098 1.755
                               3.131 1.774"""),
           (EAGLE, TRIMMED, """3.081 1.745 3.038 1.721 3.443 1.950 3.434 1.945 3.588 2.032 3.241 1.836 2.993 1.695 3.165 1.793
                               3.133 1.775"""),
           (EAGLE, TRIMMED, """3.057 1.732 3.016 1.708 3.43 1.943 3.379 1.914 3.518 1.993 3.229 1.829 2.98 1.688 3.148 1.783
                               3.073 1.741"""),
           (INDEPENDENT, N_VOCAB, """3.846 2.765 3.864 2.778 4.434 3.187 3.999 2.875 4.780 3.436 4.221 3.035 3.239 2.328
                                     4.160 2.991 3.943 2.835 3.948 2.838"""),  # the last stands in the row of a trimmed head
           (INDEPENDENT, TRIMMED, """3.682 2.900 3.551 2.797 4.224 3.327 3.592 2.829 4.332 3.412 3.975 3.131 3.097 2.439
                                     3.883 3.059 3.737 2.944"""),
           (INDEPENDENT, TRIMMED, """3.941 3.104 3.781 2.978 4.379 3.449 3.707 2.920 4.704 3.705 4.147 3.267 3.086 2.431
                                     4.078 3.212 3.769 2.969"""),
           (INDEPENDENT, TRIMMED, """3.905 3.076 3.738 2.944 3.534 2.783 4.636 3.652 4.117 3.243 3.037 2.392 4.068 3.204
                                     3.685 2.902""")]
# By depth: full and trimmed.
TABLE_4 = {5: "3.551 1.318 3.504 1.631", 6: "3.578 1.202 3.510 1.500", 7: "3.567 1.094 3.510 1.387"}


class VocabTrim(Folder):
    def calibrate(self, corpus, n_vocab, size, *more):
        return _tool.report("--tokenizer", "none", "--id-bytes", 4, "--n-vocab", n_vocab, "--keep", 7, "--holdout", 0,
                            "--corpus", corpus, "--size", size, "-o", self.path("v.specb"), "-f", *more,
                            tool="vocabtrim-calibrate")

    def test_list(self):
        """The K most frequent tokens, equal ones by id; terminators are in every list (decided)."""
        for seed in seeds(4):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                tokens, n_vocab = rng.zipf(1.2, 5000) % 900, 1000
                write_ids(self.path("t.bin"), tokens, 4)
                counts, size = Counter(tokens.tolist()), int(rng.integers(10, 1000))
                self.calibrate(self.path("t.bin"), n_vocab, size)
                order = sorted((i for i in range(n_vocab) if i != 7), key=lambda i: (-counts[i], i))
                with specrt.Bundle(self.path("v.specb")) as bundle:
                    self.assertEqual(bundle.ids().tolist(), [7] + order[:size - 1])
                    self.assertEqual(bundle.counts().tolist(), [counts[i] for i in bundle.ids()])

    def test_mbsu(self):
        """What is printed for random models: of tau, c and gamma as printed, and c of the trimmed head."""
        for seed in seeds(4):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                n_vocab, width, rates = 5000, int(rng.integers(100, 4000)), rng.uniform(0.2, 0.9, int(rng.integers(1, 9)))
                draft = n_vocab * width + int(rng.integers(1, 1 << 30))
                target = draft * int(rng.integers(1, 40))
                write_ids(self.path("t.bin"), rng.zipf(1.2, 5000) % n_vocab, 4)
                said = self.calibrate(self.path("t.bin"), n_vocab, int(rng.integers(10, 4000)), "--target-params", target,
                                      "--draft-params", draft, "--d-draft", width, "--accept-rate",
                                      ",".join(f"{a:.6f}" for a in rates))
                for row in said["sweep"]:
                    c = (draft - (n_vocab - row["size"]) * width) / target
                    mbsu = row["tau"] / (c * len(rates) + 1)
                    np.testing.assert_allclose([row["c"], row["mbsu"]], [c, mbsu], rtol=1e-4)

    def test_tables(self):
        """The paper's MBSU follow from its block efficiencies by the tool's c and gamma, to a unit of the third decimal, which
        both are rounded to. gamma is the depth plus one (decided): the passes of the drafter."""
        write_ids(self.path("t.bin"), range(100), 4)

        def check(depth, drafter, size, figures):
            said = self.calibrate(self.path("t.bin"), N_VOCAB, TRIMMED, "--target-params", TARGET, "--draft-params", drafter[0],
                                  "--d-draft", drafter[1], "--accept-rate", ",".join(["0.5"] * (depth + 1)))
            c = next(row["c"] for row in said["sweep"] if row["size"] == size)
            numbers = np.array(figures.split(), float).reshape(-1, 2)
            np.testing.assert_allclose(numbers[:, 0] / (c * said["speed"]["gamma"] + 1), numbers[:, 1], rtol=0, atol=0.001)
        for drafter, size, figures in TABLE_1:
            check(3, drafter, size, figures)
        for depth, figures in TABLE_4.items():
            check(depth, EAGLE, N_VOCAB, " ".join(figures.split()[:2]))
            check(depth, EAGLE, TRIMMED, " ".join(figures.split()[2:]))


if __name__ == "__main__":
    unittest.main()
