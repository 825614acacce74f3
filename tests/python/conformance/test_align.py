"""test_align.py : EvoSpec (arXiv 2605.27390v2), path B: which positions are learnt from (Algorithm 1, lines 22 to 26), the
curriculum's weights (Eq. 4), and the distillation loss over the retained tokens (Eq. 5) with its gradient, which the reference
takes by finite differences. Points that the paper leaves open follow docs/methods/align.md."""
import ctypes as C
import unittest
from typing import NamedTuple

import numpy as np

import specrt
from conformance.cycles import best, random_logits, random_states, seeds
from specrt._lib import array_of


class CParams(C.Structure):
    _fields_ = [("n_batch", C.c_int32), ("n_steps", C.c_int32), ("n_top", C.c_int32), ("temperature", C.c_float),
                ("beta", C.c_float), ("epsilon", C.c_float)]


class CPosition(C.Structure):
    _fields_ = [("context", C.c_uint64), ("step", C.c_int32), ("token", C.c_int32), ("covered", C.c_int32),
                ("rejected", C.c_int32), ("logits", C.c_void_p), ("hidden", C.c_void_p), ("drafted", C.c_int32),
                ("drafted_logprob", C.c_float)]


class CBatch(C.Structure):
    _fields_ = [("n", C.c_int32)] + [(name, C.c_void_p) for name in "contexts steps weights n_top ids probs".split()]


class Position(NamedTuple):
    """A position of an accepted path."""
    step: int                 # j
    token: int                # x_i, which the target emitted
    covered: bool             # whether it is in V_t
    rejected: bool            # whether the target refused the drafted token
    z: np.ndarray             # the target's logits, float32 [n_vocab]
    hidden: np.ndarray        # what the drafter's head multiplies, float32 [d]
    shortlist: list           # V_t; empty: not known


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


class Alignment:
    """In double precision. rows, bias: the drafter's head; at: the row of each token that has one. Decided: the retained tokens
    are the target's best among these."""

    def __init__(self, rows, bias, at, n_batch, gamma, k_logit, t_kd, beta, epsilon):
        self.rows, self.bias, self.at = rows.astype(float), bias.astype(float), at
        self.n_batch, self.gamma, self.k_logit, self.t_kd, self.beta, self.epsilon = n_batch, gamma, k_logit, t_kd, beta, epsilon
        self.buffer = []

    def z_q(self, hidden, tokens):
        r = [self.at[token] for token in tokens]
        return self.rows[r] @ hidden.astype(float) + self.bias[r]

    def divergence(self, support, log_p, hidden):
        """D_KL(p || q) of temperature-scaled distributions on the same support."""
        return float(np.exp(log_p) @ (log_p - log_softmax(self.z_q(hidden, support) / self.t_kd)))

    def l_base(self, p, support):
        """Cross-entropy of the first step against the verified token. Decided: over V_t as drafted; over the support and that
        token where V_t is not known; at temperature 1."""
        tokens = p.shortlist or list(dict.fromkeys(support + [p.token]))
        return -float(log_softmax(self.z_q(p.hidden, tokens))[tokens.index(p.token)])

    def observe(self, cycle, contexts):
        n = len(self.buffer)
        for p, context in zip(cycle, contexts):
            if p.step > self.gamma or not p.covered:
                continue
            support = [token for token in best(p.z, len(p.z)) if token in self.at][:self.k_logit]
            if p.step == 1:
                l_base = self.l_base(p, support)
            log_p = log_softmax(p.z[support].astype(float) / self.t_kd)
            if self.divergence(support, log_p, p.hidden) > self.epsilon or p.rejected:
                weight = np.exp(-self.beta * l_base * (p.step - 1))  # Eq. 4
                self.buffer.append((context, p.step, weight, support, log_p))
        return len(self.buffer) - n

    def loss(self, sample, hidden):
        """One term of Eq. 5."""
        _, _, weight, support, log_p = sample
        return weight * self.t_kd ** 2 * self.divergence(support, log_p, hidden)

    def gradient(self, sample, hidden, h=1e-4):
        steps = h * np.eye(len(hidden))
        return np.array([self.loss(sample, hidden + e) - self.loss(sample, hidden - e) for e in steps]) / (2 * h)


class Align(unittest.TestCase):
    def setUp(self):
        self.lib = specrt.library()
        for name, result in {"acquire": C.POINTER(CBatch), "release": None, "close": None}.items():
            getattr(self.lib, "align_" + name).restype = result

    def random_cycle(self, rng, n_vocab, reference):
        """The positions of one accepted path; what ends it is out of the vocabulary, refused, or was not drafted."""
        out, tokens = [], sorted(reference.at)
        n, known = int(rng.integers(1, 9)), rng.random() < 0.7
        for step in range(1, n + 1):
            shortlist = rng.permutation(tokens)[:int(rng.integers(4, len(tokens)))].tolist()
            covered = step < n or rng.random() < 0.7
            outside = sorted(set(range(n_vocab)) - set(shortlist))
            token = int(rng.choice(shortlist if covered else outside))
            hidden = random_states(rng, 1, reference.rows.shape[1])[0] * np.float32(rng.choice([0.05, 1]))
            z = random_logits(rng, 1, n_vocab)[0]
            if rng.random() < 0.5:  # a drafter that agrees
                z[tokens] = reference.z_q(hidden, tokens) + rng.standard_normal(len(tokens)) * 0.2
            rejected = covered and step == n and rng.random() < 0.5
            out.append(Position(step, token, covered, rejected, z, hidden, shortlist if known else []))
        return out

    def given(self, rng, p, context, reference):
        """The position for C, which is told of V_t by one proposed token and its probability."""
        drafted, logprob = -1, 0.0
        if p.shortlist:
            i = int(rng.integers(len(p.shortlist)))
            drafted, logprob = p.shortlist[i], log_softmax(reference.z_q(p.hidden, p.shortlist))[i]
        return CPosition(context, p.step, p.token, p.covered, p.rejected, p.z.ctypes.data, p.hidden.ctypes.data, drafted, logprob)

    def check_batch(self, handle, batch, rng, reference):
        b, samples = batch.contents, reference.buffer
        self.assertEqual(b.n, len(samples))
        contexts, steps, weights, n_top = (array_of(x, b.n, t) for x, t in (
            (b.contexts, "u8"), (b.steps, "i4"), (b.weights, "f4"), (b.n_top, "i4")))
        ids = array_of(b.ids, b.n * reference.k_logit, "i4").reshape(b.n, -1)
        probs = array_of(b.probs, b.n * reference.k_logit, "f4").reshape(b.n, -1)
        self.assertEqual(contexts.tolist(), [s[0] for s in samples])
        self.assertEqual(steps.tolist(), [s[1] for s in samples])
        np.testing.assert_allclose(weights, [s[2] for s in samples], rtol=1e-4)
        for i, (_, _, _, support, log_p) in enumerate(samples):
            self.assertEqual(ids[i, :n_top[i]].tolist(), support)
            np.testing.assert_allclose(probs[i, :n_top[i]], np.exp(log_p), rtol=1e-4, atol=1e-7)
        hidden = random_states(rng, b.n, reference.rows.shape[1])  # the drafter has changed since
        dh, loss = np.empty_like(hidden), C.c_double()
        status = self.lib.align_gradient(handle, batch, C.c_void_p(hidden.ctypes.data), C.c_void_p(dh.ctypes.data), C.byref(loss))
        self.assertEqual(status, 0)
        j = sum(reference.loss(s, h) for s, h in zip(samples, hidden.astype(float)))
        self.assertAlmostEqual(loss.value / j, 1, 4)
        expected = np.array([reference.gradient(s, h) for s, h in zip(samples, hidden.astype(float))])
        np.testing.assert_allclose(dh, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())

    def check(self, rng, n_vocab, n_rows, params):
        ids = np.sort(rng.permutation(n_vocab)[:n_rows]).astype(np.int32)
        rows, bias = random_states(rng, n_rows, 12), random_states(rng, 1, n_rows)[0]
        head = specrt.Head(rows, bias=bias, ids=ids)
        reference = Alignment(rows, bias, {int(token): i for i, token in enumerate(ids)}, *params)
        handle = self.lib.open("align_create", head.handle, n_vocab, C.byref(CParams(*params)), None)
        context, n_batches = 0, 0
        while n_batches < 3:
            cycle = self.random_cycle(rng, n_vocab, reference)
            contexts = range(context, context + len(cycle))
            context += len(cycle)
            given = (CPosition * len(cycle))(*(self.given(rng, p, i, reference) for p, i in zip(cycle, contexts)))
            self.assertEqual(self.lib.align_observe(handle, given, len(cycle)), reference.observe(cycle, contexts))
            batch = self.lib.align_acquire(handle)
            self.assertEqual(bool(batch), len(reference.buffer) >= reference.n_batch)
            if batch:
                self.check_batch(handle, batch, rng, reference)
                self.lib.align_release(handle, batch)
                reference.buffer = []
                n_batches += 1
        self.lib.align_close(handle)

    def test_published(self):
        """Table 5: B = 32, horizon 6, T_KD = 1, beta = 0.3. The paper has no K_logit and no epsilon."""
        for seed in seeds(3):
            with self.subTest(seed=seed):
                self.check(np.random.default_rng(seed), 300, 300, (32, 6, 64, 1.0, 0.3, 0.1))

    def test_parameters(self):
        """Other parameters, and a drafter that has rows for some tokens only."""
        for seed in seeds(8):
            with self.subTest(seed=seed):
                rng = np.random.default_rng(seed)
                params = (int(rng.integers(1, 40)), int(rng.integers(1, 9)), int(rng.integers(10, 100)),
                          float(np.float32(rng.uniform(0.3, 4))), float(np.float32(rng.uniform(0, 1))),
                          float(np.float32(rng.uniform(0, 0.5))))
                self.check(rng, 150, int(rng.integers(100, 151)), params)


if __name__ == "__main__":
    unittest.main()
