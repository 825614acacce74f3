"""test_distribution.py : sampled drafts and trees of sessions in a batch emit the target's distribution, which a chi-square tells from
plain sampling's and from the drafter's: over 20,000 tokens of a vocabulary of 20, whose next token follows from the
last, so that every pair of neighbours is a draw. TEST_QUICK takes half of them."""
import os
import unittest

import numpy as np

import chi_square
import specrt
from test_specrt import GOLDEN, Folder

N_VOCAB, WIDTH, N_BATCH, N_EACH = 20, 8, 8, 1300 if os.environ.get("TEST_QUICK") else 2600


class Distribution(Folder):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(4)
        self.rows = rng.standard_normal((N_VOCAB, WIDTH)).astype(np.float32)
        self.states = rng.standard_normal((N_VOCAB, WIDTH)).astype(np.float32) * 0.6
        drafts = self.states @ self.rows.T  # the drafter is often right, and never the target
        self.logits = drafts + rng.standard_normal((N_VOCAB, N_VOCAB)).astype(np.float32)
        self.distribution, self.drafter = chi_square.softmax(self.logits), chi_square.softmax(drafts)

    def sessions(self, text, tree, **more):
        policy = specrt.Policy(text, specrt.Head(self.rows), specrt.Bundle(GOLDEN))
        out = []
        for i in range(N_BATCH):
            noisy = specrt.Sampling(temperature=1.0, seed=11, session=i + 1)
            session = specrt.Session(policy, N_VOCAB, tree, noisy, **more)
            session.begin()
            session.prefill([i])
            session.start(i)
            out.append(session)
        return out

    def cycle(self, sessions, texts):
        """A tree of each, drafted together, verified and observed."""
        last, drafting = [np.array(text[-1:]) for text in texts], list(range(N_BATCH))
        while drafting:
            draft_input = np.concatenate([last[i] for i in drafting])
            beams = specrt.expand_batch([sessions[i] for i in drafting], self.states[draft_input])
            for i, beam in zip(drafting, beams):
                last[i] = beam.tokens
            drafting = [i for i in drafting if len(last[i])]
        for session, text in zip(sessions, texts):
            draft = session.finish()
            logits = self.logits[draft.tokens]
            verdict = session.verify(draft, logits)  # not accept(), which would end at a terminator
            session.observe(draft, verdict, logits)
            text += verdict.tokens.tolist()

    def check(self, sessions):
        texts = [[i] for i in range(N_BATCH)]
        while min(map(len, texts)) <= N_EACH:
            self.cycle(sessions, texts)
        found = chi_square.count([text[:N_EACH + 1] for text in texts], N_VOCAB)
        self.assertEqual(found.sum(), N_BATCH * N_EACH)
        self.assertGreater(sessions[0].stats().accept_length, 1.3)
        plain = chi_square.count([chi_square.draw(self.distribution, 20001, 6)], N_VOCAB)
        for value, freedom in chi_square.fit(found, self.distribution), chi_square.compare(found, plain):
            self.assertGreater(freedom, 150)
            self.assertLess(value, chi_square.bound(freedom))
        value, freedom = chi_square.fit(found, self.drafter)
        self.assertGreater(value, 5 * chi_square.bound(freedom))

    def test_plain(self):
        """What the test takes for plain sampling is; the drafter's tokens are not."""
        for distribution, holds in (self.distribution, True), (self.drafter, False):
            found = chi_square.count([chi_square.draw(distribution, 20001, 7)], N_VOCAB)
            value, freedom = chi_square.fit(found, self.distribution)
            self.assertEqual(value < chi_square.bound(freedom), holds)

    @unittest.skipIf(os.environ.get("TEST_QUICK"), "takes its time: make test-all")
    def test_trees(self):
        self.check(self.sessions("static:8+window:6@min=0", specrt.Tree(2, 2, 5)))

    def test_sampled(self):
        self.check(self.sessions("static:8+window:6@min=0", specrt.Tree(3, 1, 4), sampled=True))


if __name__ == "__main__":
    unittest.main()
