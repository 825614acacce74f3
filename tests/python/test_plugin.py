"""test_plugin.py : the plug-in for vLLM, over stand-ins of vLLM's classes with real tensors."""
import os
import sys
import types
import unittest
import unittest.mock

import numpy as np

import specrt
from specrt import vllm as plugin
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
        model, ids = drafter(torch), np.array([3, 10, 7, 19], np.int32)
        hidden, target = torch.randn(6, 8), torch.nn.Module()
        full = model.compute_logits(hidden)
        Proposer = proposer_class(model)
        plugin.patch(Proposer, ids)
        plugin.patch(Proposer, ids)  # vLLM registers more than once
        proposer = Proposer()
        self.assertEqual(proposer.load_model(target), "loaded")
        found = model.compute_logits(hidden)
        self.assertEqual(found.shape, full.shape)
        self.assertTrue(torch.allclose(found[:, ids.tolist()], full[:, ids.tolist()], atol=1e-6))
        self.assertEqual(int((found == float("-inf")).sum()), 6 * (N_VOCAB - len(ids)))
        self.assertTrue(torch.equal(proposer._greedy_sample(hidden), found.argmax(-1)))

    def test_packed(self):
        """Of an emptied weight the target's head, else its tied embedding, is taken."""
        torch = torch_or_skip()
        empty = types.SimpleNamespace(weight=torch.empty(0))
        rows = torch.randn(N_VOCAB, 8)
        tied = types.SimpleNamespace(embed_tokens=types.SimpleNamespace(weight=rows))
        for target in types.SimpleNamespace(lm_head=types.SimpleNamespace(weight=rows)), \
                types.SimpleNamespace(lm_head=empty, model=tied):
            model = types.SimpleNamespace(lm_head=empty)
            self.assertIs(plugin.find_head(model, target, N_VOCAB), rows)
        self.says("has no head", plugin.find_head, types.SimpleNamespace(), types.SimpleNamespace(), N_VOCAB)

    def test_refuses(self):
        torch = torch_or_skip()
        ids = np.array([1, 2], np.int32)
        self.says("tensor parallel size 2: expected 1", plugin.check_drafter, drafter(torch), ids, N_VOCAB, 2)
        self.says("d2t of its own", plugin.check_drafter, drafter(torch, draft_id_to_target_id=torch.zeros(3)), ids,
                  N_VOCAB, 1)
        self.says("expected ids in [0, 20)", plugin.check_drafter, drafter(torch), np.array([20]), N_VOCAB, 1)
        self.says("found none", plugin.check_drafter, drafter(torch), np.array([], int), N_VOCAB, 1)
        capped = drafter(torch, logits_processor=types.SimpleNamespace(soft_cap=30.0))
        self.says("caps its logits", plugin.check_drafter, capped, ids, N_VOCAB, 1)
        biased = drafter(torch, lm_head=torch.nn.Linear(8, N_VOCAB))
        self.says("has a bias", plugin.find_head, biased, None, N_VOCAB)
        packed = types.SimpleNamespace(lm_head=types.SimpleNamespace(weight=torch.ones(N_VOCAB, 8, dtype=torch.int8)))
        self.says("quantised heads are not cut", plugin.find_head, packed, None, N_VOCAB)
        self.says("vLLM 0.11.0: expected 0.32", plugin.check_version, "0.11.0")
        plugin.check_version("0.32.1")

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

    def test_register(self):
        """What vLLM calls: nothing without the variable, the proposer's class with it."""
        Proposer = proposer_class(None)
        modules = {"vllm": types.ModuleType("vllm")}
        modules["vllm"].__version__ = "0.32.0"
        for name in "vllm.v1", "vllm.v1.spec_decode", "vllm.v1.spec_decode.llm_base_proposer":
            modules[name] = types.ModuleType(name)
        modules["vllm.v1.spec_decode.llm_base_proposer"].SpecDecodeBaseProposer = Proposer
        plugin.register()
        with unittest.mock.patch.dict(sys.modules, modules), \
                unittest.mock.patch.dict(os.environ, {"SPECRT_TOKEN_MAP": GOLDEN}):
            plugin.register()
        self.assertEqual(Proposer._specrt_list.tolist(), specrt.Bundle(GOLDEN).ids().tolist())
