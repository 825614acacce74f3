"""test_plugin.py : the plug-in for vLLM, over stand-ins of vLLM's classes with real tensors."""
import atexit
import json
import os
import sys
import types
import unittest
import unittest.mock

import numpy as np

import specrt
from specrt import vllm as plugin
from specrt.metrics import SUMS
from test_specrt import GOLDEN, Folder, torch_or_skip

N_VOCAB = 20


def drafter(torch, **more):
    """What vLLM's EAGLE and draft models have: a config, a head and logits from it."""
    model = torch.nn.Module()
    model.config = types.SimpleNamespace(vocab_size=N_VOCAB)
    model.lm_head = torch.nn.Linear(8, N_VOCAB + 4, bias=False)  # padded, as vLLM pads
    model.compute_logits = lambda hidden: model.lm_head(hidden)[..., :N_VOCAB]
    for name, value in more.items():
        setattr(model, name, value)
    return model


def proposer_class(model):
    """A proposer as vLLM's: it loads, and takes the best token of what its model gives."""
    class Proposer:
        vllm_config = types.SimpleNamespace(parallel_config=types.SimpleNamespace(tensor_parallel_size=1))

        def load_model(self, target_model):
            self.model = model
            return "loaded"

        def _greedy_sample(self, hidden):
            return self.model.compute_logits(hidden).argmax(-1)
    return Proposer


class Plugin(Folder):
    def test_trims(self):
        torch = torch_or_skip()
        model, ids = drafter(torch), np.array([19, 18, 3, 7], np.int32)
        specrt.write_map(ids, self.path("list.pt"), "sglang-pt")
        wanted = plugin.Settings(self.path("list.pt"), 0)
        hidden, target = torch.randn(6, 8), torch.nn.Module()
        full = model.compute_logits(hidden)
        Proposer = proposer_class(model)
        plugin.patch(Proposer, wanted)
        plugin.patch(Proposer, wanted)  # vLLM registers more than once
        proposer = Proposer()
        self.assertEqual(proposer.load_model(target), "loaded")
        found = model.compute_logits(hidden)
        self.assertEqual(found.shape, full.shape)
        self.assertTrue(torch.allclose(found[:, ids.tolist()], full[:, ids.tolist()], atol=1e-6))
        self.assertEqual(int((found == float("-inf")).sum()), 6 * (N_VOCAB - len(ids)))
        self.assertTrue(torch.equal(proposer._greedy_sample(hidden), found.argmax(-1)))

    def test_packed(self):
        """Of an emptied weight the one that the drafter shares is taken: never the target's for a head of its own."""
        torch = torch_or_skip()
        empty, rows = types.SimpleNamespace(weight=torch.empty(0)), torch.randn(N_VOCAB, 8)
        full = types.SimpleNamespace(weight=rows)
        inner = types.SimpleNamespace(embed_tokens=full)
        shared = types.SimpleNamespace(lm_head=empty, model=inner)
        self.assertIs(plugin.find_head(types.SimpleNamespace(lm_head=empty), shared, N_VOCAB), rows)
        self.assertIs(plugin.find_head(types.SimpleNamespace(), types.SimpleNamespace(lm_head=full), N_VOCAB), rows)
        own = types.SimpleNamespace(weight=torch.empty(0))
        tied = types.SimpleNamespace(lm_head=own, model=inner, config=types.SimpleNamespace(tie_word_embeddings=True))
        self.assertIs(plugin.find_head(tied, types.SimpleNamespace(), N_VOCAB), rows)
        self.says("shows no head", plugin.find_head, types.SimpleNamespace(lm_head=own), shared, N_VOCAB)
        self.says("shows no head", plugin.find_head, types.SimpleNamespace(), types.SimpleNamespace(), N_VOCAB)

    def test_refuses(self):
        torch = torch_or_skip()

        def proposer(model=None, **more):
            return types.SimpleNamespace(model=model or drafter(torch), **more)
        self.says("tensor parallel size 2: expected 1", plugin.check_drafter, proposer(), 2)
        self.says("d2t of its own", plugin.check_drafter,
                  proposer(drafter(torch, draft_id_to_target_id=torch.zeros(3))), 1)
        capped = drafter(torch, logits_processor=types.SimpleNamespace(soft_cap=30.0))
        self.says("caps its logits", plugin.check_drafter, proposer(capped), 1)
        self.says("use_heterogeneous_vocab", plugin.check_drafter, proposer(use_heterogeneous_vocab=True), 1)
        self.says("expected some in [0, 20)", plugin.check_ids, np.array([20]), N_VOCAB)
        self.says("found none", plugin.check_ids, np.array([], int), N_VOCAB)
        biased = drafter(torch, lm_head=torch.nn.Linear(8, N_VOCAB))
        self.says("has a bias", plugin.find_head, biased, None, N_VOCAB)
        packed = types.SimpleNamespace(lm_head=types.SimpleNamespace(weight=torch.ones(N_VOCAB, 8, dtype=torch.int8)))
        self.says("quantised heads are not cut", plugin.find_head, packed, None, N_VOCAB)
        self.says("vLLM 0.11.0: expected 0.32", plugin.check_version, "0.11.0")
        plugin.check_version("0.32.1")

    def test_refuses_to_follow(self):
        torch = torch_or_skip()
        weight = torch.zeros(N_VOCAB, 8)
        for name, words in ("_enable_probabilistic_draft_probs", "found probabilistic"), \
                ("parallel_drafting", "token by token"):
            self.says(words, plugin.check_following, types.SimpleNamespace(**{name: True}), weight)
        loose = types.SimpleNamespace(speculative_config=types.SimpleNamespace(disable_padded_drafter_batch=True))
        self.says("padded batches", plugin.check_following, loose, weight)
        self.says("expected a drafter on a CPU", plugin.check_following, None, weight.to("meta"))

    def test_lists(self):
        bundle = specrt.Bundle(GOLDEN)
        for size in 0, 5:
            found = plugin.read_ids(plugin.Settings(GOLDEN, size))
            self.assertEqual(found.tolist(), bundle.ids(size).tolist())
        specrt.write_map([9, 8, 2], self.path("list.pt"), "sglang-pt")
        self.assertEqual(plugin.read_ids(plugin.Settings(self.path("list.pt"), 2)).tolist(), [9, 8])
        self.says("SPECRT_SIZE 4: expected at most 3", plugin.read_ids, plugin.Settings(self.path("list.pt"), 4))

    def test_environment(self):
        self.assertIsNone(plugin.settings({}))
        self.assertEqual(plugin.settings({"SPECRT_TOKEN_MAP": "a", "SPECRT_SIZE": "7"}), plugin.Settings("a", 7))
        self.says("SPECRT_SIZE: expected a whole number", plugin.settings,
                  {"SPECRT_TOKEN_MAP": "a", "SPECRT_SIZE": "many"})
        self.assertEqual(plugin.settings({"SPECRT_POLICY": "microspec"}), plugin.Settings("", 0, "microspec"))
        self.says("expected none beside SPECRT_POLICY", plugin.settings,
                  {"SPECRT_POLICY": "microspec", "SPECRT_SIZE": "7"})
        for text, stock in ("", None), ("0", False), ("1", True):
            found = plugin.settings({"SPECRT_POLICY": "microspec", "SPECRT_STOCK": text})
            self.assertEqual(found, plugin.Settings("", 0, "microspec", stock))
        self.says("SPECRT_STOCK: expected 0 or 1, found 'yes'", plugin.settings,
                  {"SPECRT_POLICY": "microspec", "SPECRT_STOCK": "yes"})
        self.says("SPECRT_STOCK: expected SPECRT_POLICY", plugin.settings,
                  {"SPECRT_TOKEN_MAP": "a", "SPECRT_STOCK": "1"})

    def test_stock(self):
        """Sessions hold rows together where vLLM may batch, unless the environment says otherwise."""
        torch = torch_or_skip()
        for n_sequences, stock, expected in (1, None, False), (8, None, True), (1, True, True), (8, False, False):
            scheduler = types.SimpleNamespace(max_num_seqs=n_sequences)
            proposer = types.SimpleNamespace(
                model=drafter(torch), num_speculative_tokens=2, method="eagle", propose=None, _greedy_sample=None,
                vllm_config=types.SimpleNamespace(scheduler_config=scheduler))
            plugin.follow(proposer, torch.randn(N_VOCAB, 8), plugin.Settings("", 0, "window:12@min=0", stock))
            self.assertIs(proposer._specrt_watch.stock is not None, expected)
            self.assertEqual(proposer._specrt_watch.crowd, 1 if stock else 2)

    def stand_ins(self):
        """Modules of vLLM, with what the plug-in asks of them."""
        names = ("vllm", "vllm.triton_utils", "vllm.v1", "vllm.v1.sample", "vllm.v1.sample.rejection_sampler",
                 "vllm.v1.spec_decode", "vllm.v1.spec_decode.llm_base_proposer")
        modules = {name: types.ModuleType(name) for name in names}
        for name, module in modules.items():
            if "." in name:
                setattr(modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
        modules["vllm"].__version__, modules["vllm.triton_utils"].HAS_TRITON = "0.32.0", False
        sampler = modules["vllm.v1.sample.rejection_sampler"]
        sampler.expand_batch_to_tokens, sampler.apply_sampling_constraints = "vLLM's", lambda logits, *_: logits * 2
        return modules

    def test_sampling(self):
        """Without Triton each draft has its sequence's temperature, and no draft needs none."""
        torch = torch_or_skip()
        temperatures, ends = torch.tensor([0.0, 0.7, 1.5]), torch.tensor([2, 2, 5], dtype=torch.int32)
        spread = plugin.spread(temperatures, ends, 5, replace_from=0, replace_to=1)
        self.assertTrue(torch.equal(spread, torch.tensor([1.0, 1.0, 1.5, 1.5, 1.5])))
        top_k = plugin.spread(torch.tensor([4, 5, 6], dtype=torch.int32), ends, 5)
        self.assertEqual((top_k.tolist(), top_k.dtype), ([4, 4, 6, 6, 6], torch.int32))
        for has_triton in True, False:
            modules = self.stand_ins()
            modules["vllm.triton_utils"].HAS_TRITON = has_triton
            sampler = modules["vllm.v1.sample.rejection_sampler"]
            with unittest.mock.patch.dict(sys.modules, modules):
                plugin.mend_sampling()
                mended = sampler.apply_sampling_constraints
                plugin.mend_sampling()
            self.assertIs(sampler.apply_sampling_constraints, mended)
            self.assertIs(sampler.expand_batch_to_tokens, "vLLM's" if has_triton else plugin.spread)
            self.assertEqual(mended(torch.ones(2, 3), None).sum(), 12)
            self.assertEqual(mended(torch.ones(0, 3), None).shape, (0, 3))

    def test_register(self):
        """What vLLM calls: nothing without the variable, the proposer's class with it."""
        Proposer = proposer_class(None)
        modules = self.stand_ins()
        modules["vllm.v1.spec_decode.llm_base_proposer"].SpecDecodeBaseProposer = Proposer
        plugin.register()
        with unittest.mock.patch.dict(sys.modules, modules), \
                unittest.mock.patch.dict(os.environ, {"SPECRT_TOKEN_MAP": GOLDEN}):
            plugin.register()
        self.assertEqual(Proposer._specrt, plugin.Settings(GOLDEN, 0))


class Batches(Folder):
    """Sessions beside a runner that shows what vLLM's does: two sequences, the second's prompt in two parts."""

    def setUp(self):
        super().setUp()
        self.torch = torch_or_skip()
        torch = self.torch
        torch.manual_seed(1)
        self.rows = torch.randn(N_VOCAB, 8)
        batch = types.SimpleNamespace(num_computed_tokens_cpu=np.zeros(2, np.int32),
                                      token_ids_cpu=np.zeros((2, 16), np.int32))
        self.runner = types.SimpleNamespace(input_batch=batch, model=types.SimpleNamespace(
            compute_logits=lambda hidden: torch.nn.functional.one_hot(hidden[:, 0].long(), N_VOCAB) * 9.0))
        self.proposer = types.SimpleNamespace(num_speculative_tokens=2, method="eagle",
                                              propose=lambda **_: None, _greedy_sample=lambda _: "whole")

    def follow(self, text, with_stock=False):
        from specrt.sequences import Sequences
        head = specrt.Head(self.rows)
        return Sequences(specrt.Policy(text, head), self.proposer, specrt.Stock(head) if with_stock else None)

    def step(self, sequences, names, parts, logits, sampled, unfinished=(), drafted=None, states=None):
        """A step of vLLM's: what each sequence read, the target's logits, what it sampled."""
        torch, runner = self.torch, self.runner
        runner.input_batch.req_ids, runner.requests = names, dict.fromkeys(names)
        runner.query_start_loc = types.SimpleNamespace(np=np.cumsum([0] + [len(p) for p in parts]))
        runner.input_ids = types.SimpleNamespace(gpu=torch.tensor(sum(parts, []), dtype=torch.int32))
        runner.discard_request_mask = types.SimpleNamespace(np=np.array([n in unfinished for n in names]))
        metadata = types.SimpleNamespace(num_draft_tokens=drafted) if drafted else None
        sequences.verified(runner, logits, metadata, torch.tensor(sampled))
        if states is None:
            states = torch.zeros(sum(map(len, parts)), 8)
        self.proposer.propose(target_hidden_states=states)

    def best(self, sequence, state):
        ids = sequence.session.shortlist()
        return int(ids[(self.rows[ids.astype(np.int64)] @ state).argmax()])

    def test_batch(self):
        for with_stock in False, True:
            with self.subTest(with_stock=with_stock):
                self.setUp()
                self.batch(self.follow("window:12@kpre=0@kver=1@min=0", with_stock))

    def batch(self, sequences):
        torch = self.torch
        self.step(sequences, ["a", "b"], [[1, 2, 3], [4, 5]], torch.zeros(2, N_VOCAB), [[7], [9]], unfinished=["b"])
        a, b = (sequences.known[name] for name in "ab")
        self.assertEqual(set(a.session.shortlist()) & {1, 2, 3, 7}, {1, 2, 3, 7})
        state, expected = torch.randn(2, 8), []
        for _ in range(2):
            expected.append(self.best(a, state[0]))
            self.assertEqual(self.proposer._greedy_sample(state).tolist(), [expected[-1], 0])
        logits = torch.zeros(4, N_VOCAB)
        for row, token in enumerate((expected[0], 15, 16, 17)):
            logits[row, token] = 5
        self.runner.input_batch.num_computed_tokens_cpu[:] = 4, 2
        self.step(sequences, ["a", "b"], [[7, *expected], [6]], logits, [[expected[0], 15, -1], [17, -1, -1]],
                  drafted=[2, 0])
        self.assertEqual((a.last, b.last, a.session.stats().n_emitted), (15, 17, 2))
        self.assertTrue(a.session.member(15))    # emitted
        self.assertFalse(a.session.member(17))   # the other sequence's
        self.assertEqual(set(b.session.shortlist()) & {4, 5, 6, 17}, {4, 5, 6, 17})
        self.assertEqual(self.proposer._greedy_sample(state).tolist(), [self.best(a, state[0]), self.best(b, state[1])])
        self.assertEqual(self.proposer._greedy_sample(torch.zeros(3, 8)), "whole")
        if sequences.stock:
            stats = sequences.stock.stats()
            self.assertEqual(stats.n_sessions, 2)
            self.assertGreater(stats.n_holds, 0)

    def test_lone(self):
        """A sequence that starts alone has rows of its own, unless a stock is asked for; those of a batch share."""
        for crowd, held in (2, [0, 1]), (1, [1, 2]):
            self.setUp()
            sequences = self.follow("window:12@kpre=0@kver=1@min=0", with_stock=True)
            sequences.crowd = crowd
            self.step(sequences, ["a"], [[1, 2]], self.torch.zeros(1, N_VOCAB), [[7]])
            self.assertEqual(sequences.stock.stats().n_sessions, held[0])
            self.runner.input_batch.num_computed_tokens_cpu[0] = 2
            self.step(sequences, ["a", "b"], [[7], [3, 4]], self.torch.zeros(2, N_VOCAB), [[8], [9]])
            self.assertEqual(sequences.stock.stats().n_sessions, held[1])

    def test_resumes(self):
        """A sequence that goes on elsewhere than its session is read again; one that is gone is forgotten."""
        torch = self.torch
        sequences = self.follow("window:12@kpre=0@kver=1@min=0")
        self.step(sequences, ["a", "b"], [[1, 2], [3, 4]], torch.zeros(2, N_VOCAB), [[7], [8]])
        self.runner.input_batch.token_ids_cpu[0, :2] = 10, 11
        self.runner.input_batch.num_computed_tokens_cpu[0] = 2
        self.step(sequences, ["a"], [[12, 13]], torch.zeros(1, N_VOCAB), [[14]])
        found = set(sequences.known["a"].session.shortlist())
        self.assertEqual((found & {1, 2, 7}, found & {10, 11, 12, 13, 14}), (set(), {10, 11, 12, 13, 14}))
        self.assertEqual(list(sequences.known), ["a"])

    def test_prompt_logits(self):
        """Policies that learn at the prompt are given the target's logits there."""
        torch = self.torch
        sequences = self.follow("window:12@kpre=1@kver=1@min=0")
        states = torch.zeros(2, 8)
        states[:, 0] = torch.tensor([16.0, 18.0])  # what the target likes best there
        self.step(sequences, ["a"], [[1, 2]], torch.zeros(1, N_VOCAB), [[7]], states=states)
        self.assertLessEqual({16, 18}, set(sequences.known["a"].session.shortlist()))

    def test_metrics(self):
        """Sums of a batch, of sequences that are gone, too."""
        sequences = self.follow("window:12@kpre=0@kver=1@min=0")
        self.batch(sequences)
        [(policy, found)] = json.loads(sequences.collect().json())["policies"].items()
        self.assertEqual(policy, str(sequences.policy))
        self.assertEqual([found[name] for name in ("cycles", "plain_cycles", "emitted_tokens", "drafted_tokens")],
                         [1, 0, 2, 2])
        self.assertEqual(json.loads(sequences.collect().json())["policies"][policy], found)  # nothing twice
        a = sequences.known["a"]
        self.runner.input_batch.num_computed_tokens_cpu[:] = 6, 0
        self.step(sequences, ["a"], [[15]], self.torch.zeros(1, N_VOCAB), [[3]])
        self.assertEqual(a.n_plain, 1)
        self.step(sequences, ["c"], [[1]], self.torch.zeros(1, N_VOCAB), [[3]])  # a is gone, its sums stay
        found = json.loads(sequences.collect().json())["policies"][policy]
        self.assertEqual([found[name] for name in ("cycles", "plain_cycles", "emitted_tokens")], [2, 1, 3])

    def test_list_metrics(self):
        """Of a list: what passes with drafts emit, and how much of it the list has."""
        torch = torch_or_skip()
        watch = plugin.ListCount("static:3", torch.tensor([2, 5, 7]), N_VOCAB, 4)

        class Runner:
            drafter = types.SimpleNamespace(_specrt_watch=watch)

            def _sample(self, logits, metadata):
                return types.SimpleNamespace(sampled_token_ids=logits)
        plugin.patch_runner(Runner)
        plugin.export(watch, self.path("m.json"))
        self.addCleanup(atexit.unregister, watch.exporter.write)
        watch.exporter.seconds = 0
        drafts = types.SimpleNamespace(num_draft_tokens=[2, 0, 2])
        Runner()._sample(torch.tensor([[2, 9, -1], [5, -1, -1], [7, 5, 2]], dtype=torch.int32), drafts)
        Runner()._sample(torch.tensor([[4]]), None)
        with open(self.path("m.json")) as file:
            found = json.load(file)["policies"]["static:3"]
        self.assertEqual([found[name] for name in SUMS], [2, 0, 5, 4, 4, 6, 48, 0])
