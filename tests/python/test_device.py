"""test_device.py : device.py over the CUDA kernels, which build/libspecrt_harness.so runs on a CPU, beside sequences.py:
both are shown the same steps of vLLM's and must draft the same tokens."""
import json
import os
import types
import unittest

import numpy as np

from specrt import OrderError, SpecrtError, _lib
from specrt import vllm as plugin
from test_specrt import GOLDEN, ROOT, torch_or_skip

HARNESS = os.path.join(ROOT, "build", "libspecrt_harness.so")
N_VOCAB, WIDTH, N_SLOTS, N_DRAFT, LONGEST = 20, 4, 3, 3, 90  # the golden bundle's vocabulary


class Vllm:
    """What vLLM shows of a runner and its drafter, of random texts: steps with prompts in parts, drafts of which some are
    accepted, none or all, sequences that end, are left out of a step, or are preempted and read again."""

    def __init__(self, torch, seed, n_live=N_SLOTS):
        self.n_live, self.torch, self.text = n_live, torch, {}
        self.random = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.rows, self.n_named = torch.randn(N_VOCAB, WIDTH), 0
        batch = types.SimpleNamespace(req_ids=[], num_computed_tokens_cpu=None, token_ids_cpu=None)
        self.runner = types.SimpleNamespace(
            input_batch=batch, requests=self.text, query_start_loc=types.SimpleNamespace(),
            input_ids=types.SimpleNamespace(), discard_request_mask=types.SimpleNamespace(),
            model=types.SimpleNamespace(compute_logits=lambda hidden: hidden @ self.rows.T))
        self.drafts, self.computed, self.n_prompt = {}, {}, {}

    def proposer(self):
        scheduler = types.SimpleNamespace(max_num_seqs=N_SLOTS)
        return types.SimpleNamespace(
            num_speculative_tokens=N_DRAFT, method="eagle", propose=lambda **_: None, _greedy_sample=lambda _: None,
            model=types.SimpleNamespace(config=types.SimpleNamespace(vocab_size=N_VOCAB)),
            vllm_config=types.SimpleNamespace(scheduler_config=scheduler))

    def plan(self):
        """How many tokens each sequence of a step reads, drafts included."""
        r, out = self.random, {}
        for name in [name for name, text in self.text.items() if len(text) > LONGEST - 10 or r.random() < 0.04]:
            del self.text[name], self.computed[name], self.drafts[name]
        while len(self.text) < self.n_live:
            self.n_named += 1
            name, n = f"r{self.n_named}", int(r.integers(1, 30))
            self.text[name], self.n_prompt[name] = r.integers(0, N_VOCAB, n).tolist(), n
            self.computed[name], self.drafts[name] = 0, []
        for name in r.permutation(list(self.text))[:int(r.integers(1, N_SLOTS + 1))].tolist():
            if r.random() < 0.1:  # preempted: all is read again, but for a prefix that a cache has
                n = len(self.text[name])
                self.computed[name], self.drafts[name] = int(r.integers(max(0, n - int(r.choice([5, n]))), n)), []
            drafts = self.drafts[name][:int(r.integers(0, N_DRAFT + 2))]  # vLLM may cut them
            if drafts and r.random() < 0.2:
                drafts[-1] = int(r.integers(0, N_VOCAB))  # a grammar's, in place of the drafter's
            left = len(self.text[name]) - self.computed[name]
            out[name] = (left, drafts) if left == 1 else (int(r.integers(max(1, left // 2), left + 1)), [])
        return out

    def show(self, plan):
        """@return what _sample() gets and gives: logits, metadata, sampled; and the target's states."""
        torch, r, runner, batch = self.torch, self.random, self.runner, self.runner.input_batch
        batch.req_ids = list(plan)
        batch.num_computed_tokens_cpu = np.array([self.computed[name] for name in plan])
        batch.token_ids_cpu = np.zeros((len(plan), LONGEST), np.int32)
        read, logits, sampled, discard = [], [], [], []
        drafted = [len(drafts) for _, drafts in plan.values()]
        for i, (name, (n, drafts)) in enumerate(plan.items()):
            text, at = self.text[name], self.computed[name]
            batch.token_ids_cpu[i, :len(text)] = text
            read += [text[at:at + n] + drafts]
            discard += [at + n < len(text)]
            n_accepted = int(r.integers(0, len(drafts) + 1))
            emitted = drafts[:n_accepted] + [int(r.integers(0, N_VOCAB))]
            logits += [torch.randn(len(drafts) + 1, N_VOCAB)]
            sampled += [emitted + [-1] * (max(drafted) + 1 - len(emitted))]
            self.computed[name] = at + n + n_accepted
            self.drafts[name] = []
            if not discard[-1]:
                self.text[name] = text + emitted
        runner.query_start_loc.np = np.cumsum([0] + [len(part) for part in read])
        runner.input_ids.gpu = torch.tensor(sum(read, []) + [0] * 5, dtype=torch.int32)  # vLLM's buffer is longer
        runner.discard_request_mask.np = np.array(discard)
        metadata = types.SimpleNamespace(num_draft_tokens=drafted) if max(drafted) else None
        states = torch.randn(runner.query_start_loc.np[-1], WIDTH)
        return torch.cat(logits), metadata, torch.tensor(sampled, dtype=torch.int32), states

    def step(self, watches):
        """@return the drafts of each watch [n_levels, n_sequences]."""
        plan = self.plan()
        logits, metadata, sampled, states = self.show(plan)
        passes, out = self.torch.randn(N_DRAFT, len(plan), WIDTH), []
        for watch, proposer in watches:
            watch.verified(self.runner, logits, metadata, sampled)
            proposer.propose(target_hidden_states=states)
            out.append(self.torch.stack([proposer._greedy_sample(hidden) for hidden in passes]))
        for i, name in enumerate(plan):
            if not self.runner.discard_request_mask.np[i]:
                self.drafts[name] = out[0][:, i].tolist()
        return out


class Device(unittest.TestCase):
    def setUp(self):
        self.torch = torch_or_skip()
        if not os.path.exists(HARNESS):
            self.skipTest("no build/libspecrt_harness.so (CUDA's headers)")
        os.environ["SPECRT_HARNESS_EAGER"] = "1"
        before = _lib._loaded
        self.addCleanup(setattr, _lib, "_loaded", before)

    def watches(self, vllm, text, stock=False):
        """Sequences and DeviceSequences, as follow() makes them, and their proposers."""
        out = []
        for library in "", HARNESS:
            proposer = vllm.proposer()
            plugin.follow(proposer, vllm.rows, plugin.Settings(GOLDEN, 0, text, stock, "", library))
            out.append((proposer._specrt_watch, proposer))
        return out

    def test_drafts(self):
        for text, stock in ("static:2+window:12@kpre=0@kver=0@min=0", False), \
                ("static:4+window:8@kpre=2@kver=2@min=4", True):
            with self.subTest(text=text, stock=stock):
                vllm = Vllm(self.torch, 1)
                watches = self.watches(vllm, text, stock)
                self.assertEqual([type(watch).__name__ for watch, _ in watches], ["Sequences", "DeviceSequences"])
                for _ in range(40):
                    host, device = vllm.step(watches)
                    self.assertTrue(self.torch.equal(host, device), (host, device))
                self.compare_metrics(watches)

    def test_preempted(self):
        """vLLM's host knows more sequences than there are slots."""
        vllm = Vllm(self.torch, 2, N_SLOTS + 2)
        watches = self.watches(vllm, "full")
        for _ in range(40):
            host, device = vllm.step(watches)
            self.assertTrue(self.torch.equal(host, device), (host, device))
        self.assertGreater(len(watches[0][0].known), N_SLOTS)

    def test_refuses(self):
        from specrt.device import cuda_library
        with self.assertRaisesRegex(SpecrtError, "expected libspecrt_cuda.so"):
            cuda_library(_lib.library().path)
        vllm = Vllm(self.torch, 3)
        (_, _), (watch, proposer) = self.watches(vllm, "full")
        with self.assertRaisesRegex(OrderError, r"specrt_cuda_session_expand: expected begin\(\) before it"):
            watch.session.call("expand", watch.hidden, None)
        watch.session.call("begin", -1)
        for _ in range(N_DRAFT + 1):
            watch.session.call("expand", watch.hidden, None)
        with self.assertRaisesRegex(OrderError, r"specrt_cuda_session_expand: expected finish\(\) in its place"):
            watch.session.call("expand", watch.hidden, None)
        with self.assertRaisesRegex(SpecrtError, "specrt_cuda_session_begin: i: expected a sequence of -1 to 2, found 3"):
            watch.session.call("begin", N_SLOTS)
        with self.assertRaisesRegex(SpecrtError, "specrt_cuda_session_verify: logits: expected a pointer, found NULL"):
            watch.session.call("verify", None)

    def compare_metrics(self, watches):
        host, device = ([*json.loads(watch.collect().json())["policies"].values()][0] for watch, _ in watches)
        for name in "cycles", "plain_cycles", "emitted_tokens", "covered_tokens", "drafted_tokens", "scored_rows":
            self.assertEqual(host[name], device[name], name)
        self.assertGreater(host["plain_cycles"], 5)
        self.assertGreater(host["emitted_tokens"], host["cycles"])


if __name__ == "__main__":
    unittest.main()
