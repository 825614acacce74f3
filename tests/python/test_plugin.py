"""test_plugin.py : the plug-in for vLLM, over stand-ins of vLLM's classes with real tensors. tests/interop/plugin_interop.py
does the same over vLLM's own."""
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

N_VOCAB, WIDTH = 20, 8
IDS = [19, 18, 3, 7]


def classes(torch):
    """What vLLM's heads and its processor of logits are, for one rank."""
    class VocabParallelEmbedding(torch.nn.Module):
        def __init__(self, n_rows, width, params_dtype=torch.float32, disable_tp=False):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(-(-n_rows // 64) * 64, width), requires_grad=False)  # padded
            self.embedding_dim, self.params_dtype, self.org_vocab_size, self.tp_size = width, params_dtype, n_rows, 1
            self.shard_indices = types.SimpleNamespace(org_vocab_start_index=0, org_vocab_end_index=n_rows)
            self.quant_method = types.SimpleNamespace(apply=lambda head, x: x @ head.weight.T,
                                                      process_weights_after_loading=lambda head: None)

    class ParallelLMHead(VocabParallelEmbedding):
        pass

    class LogitsProcessor(torch.nn.Module):
        org_vocab_size = N_VOCAB

        def forward(self, lm_head, hidden):
            return lm_head.quant_method.apply(lm_head, hidden)[..., :self.org_vocab_size]

        def get_top_tokens(self, lm_head, hidden):
            return lm_head.quant_method.apply(lm_head, hidden)[..., :lm_head.org_vocab_size].argmax(-1)

        def get_top_k_tokens(self, lm_head, hidden, k):
            values, ids = lm_head.quant_method.apply(lm_head, hidden)[..., :lm_head.org_vocab_size].topk(k)
            return ids, values
    return VocabParallelEmbedding, ParallelLMHead, LogitsProcessor


def stand_ins(torch):
    """Modules of vLLM, with what the plug-in asks of them."""
    owners = [*plugin.DRAFTERS.values(), *plugin.RUNNERS.values(), *plugin.WALK]
    modules = {}
    for name in ["vllm.distributed", "vllm.triton_utils", "vllm.v1.sample.rejection_sampler",
                 *(module for module, *_ in [*plugin.HEADS, *owners])]:
        parts = name.split(".")
        for n in range(1, len(parts) + 1):
            modules.setdefault(".".join(parts[:n]), types.ModuleType(".".join(parts[:n])))
    for name, module in modules.items():
        if "." in name:
            setattr(modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    embedding, head, processor = classes(torch)
    heads = modules["vllm.model_executor.layers.vocab_parallel_embedding"]
    heads.VocabParallelEmbedding, heads.ParallelLMHead = embedding, head
    modules["vllm.model_executor.layers.logits_processor"].LogitsProcessor = processor
    modules["vllm.distributed"].get_tensor_model_parallel_rank = lambda: 0
    modules["vllm.distributed"].tensor_model_parallel_all_reduce = None
    modules["vllm"].__version__, modules["vllm.triton_utils"].HAS_TRITON = "0.33.0", False
    sampler = modules["vllm.v1.sample.rejection_sampler"]
    sampler.expand_batch_to_tokens, sampler.apply_sampling_constraints = "vLLM's", lambda logits, *_: logits * 2
    for module, name, methods in owners:
        setattr(modules[module], name, type(name, (Drafter,), dict(zip(methods, [load_model, choose] if len(methods) == 2 else [sample]))))
    return modules


def load_model(self, model):
    self.model = model
    return "loaded"


def choose(self, hidden, *_):
    """The best token, as vLLM's drafters take it; of sampled drafts the logits."""
    if self.use_local_argmax_reduction:
        return self.model.processor.get_top_tokens(self.model.lm_head, hidden)
    logits = self.model.compute_logits(hidden)
    return logits.argmax(-1) if self.draft_logits is None else logits


def sample(self, out, metadata):
    return out


class Drafter:
    draft_logits, use_local_argmax_reduction = None, False
    speculative_config = types.SimpleNamespace(use_heterogeneous_vocab=False)


class WithVllm(Folder):
    """The stand-ins in vLLM's place, and a list in the environment."""

    def setUp(self):
        super().setUp()
        self.torch = torch = torch_or_skip()
        torch.manual_seed(1)
        self.modules, self.hidden = stand_ins(torch), torch.randn(6, WIDTH)
        specrt.write_map(IDS, self.path("list.pt"), "sglang-pt")
        self.enter(unittest.mock.patch.dict(sys.modules, self.modules))
        self.enter(unittest.mock.patch.dict(os.environ, {"SPECRT_TOKEN_MAP": self.path("list.pt")}))

    def enter(self, context):
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def drafter(self, runner="V2"):
        module, name, _ = plugin.DRAFTERS[runner]
        return getattr(self.modules[module], name)()

    def model(self, **more):
        heads = self.modules["vllm.model_executor.layers.vocab_parallel_embedding"]
        model = self.torch.nn.Module()
        model.lm_head = heads.ParallelLMHead(N_VOCAB, WIDTH)
        model.processor = self.modules["vllm.model_executor.layers.logits_processor"].LogitsProcessor()
        model.compute_logits = lambda hidden: model.processor(model.lm_head, hidden)
        for name, value in more.items():
            setattr(model, name, value)
        return model


class Trimmed(WithVllm):
    """Drafters that a registered plug-in loads."""

    def test_trims(self):
        torch, whole = self.torch, self.model()
        full = whole.compute_logits(self.hidden)
        best = torch.full_like(full, float("-inf"))
        best[:, IDS] = full[:, IDS]
        plugin.register()
        plugin.register()  # vLLM registers more than once
        for runner, method in ("V2", "sample_draft"), ("V1", "_greedy_sample"):
            drafter, model = self.drafter(runner), self.model(lm_head=whole.lm_head)
            self.assertEqual(drafter.load_model(model), "loaded")
            self.assertTrue(torch.allclose(model.compute_logits(self.hidden), best, atol=1e-6))
            for local in False, True:
                drafter.use_local_argmax_reduction = local
                self.assertTrue(torch.equal(getattr(drafter, method)(self.hidden), best.argmax(-1)))
            ids, values = model.processor.get_top_k_tokens(model.lm_head, self.hidden, 2)
            self.assertTrue(torch.equal(ids, best.topk(2)[1]) and torch.allclose(values, best.topk(2)[0], atol=1e-6))
            self.assertEqual(model.lm_head.weight[len(IDS):].abs().sum(), 0)  # padding

    def test_whole_head(self):
        """Heads of other models, the target's among them, keep all rows; a head of several places is cut once."""
        plugin.register()
        model, other = self.model(), self.model()
        model.layer = self.torch.nn.Module()
        model.layer.head = model.lm_head
        self.drafter().load_model(model)
        self.assertIs(model.layer.head, model.lm_head)
        self.assertEqual(int((other.compute_logits(self.hidden) == float("-inf")).sum()), 0)

    def test_d2t(self):
        """A drafter's own vocabulary is cut to the tokens of it that the list has."""
        plugin.register()
        d2t = self.torch.tensor([3, 5, 5, 16])  # tokens 3, 6, 7, 19
        model = self.model(draft_id_to_target_id=d2t)
        heads = self.modules["vllm.model_executor.layers.vocab_parallel_embedding"]
        model.lm_head = heads.ParallelLMHead(4, WIDTH)
        drafter = self.drafter()
        drafter.load_model(model)
        self.assertEqual(drafter._specrt_columns.ids.tolist(), [0, 2, 3])
        self.assertEqual(plugin.Count(model, drafter._specrt_columns).ids.tolist(), [3, 7, 19])

    def test_refuses(self):
        plugin.register()

        def refused(words, model, **more):
            drafter = self.drafter()
            vars(drafter).update(more)
            self.says(words, drafter.load_model, model)
        refused("ordered embeddings", self.model(masked_embedding=object()))
        refused("kernels of its own", self.model(sample_sequential=None))
        refused("found none", self.torch.nn.Module())
        different = types.SimpleNamespace(use_heterogeneous_vocab=True)
        refused("use_heterogeneous_vocab", self.model(), speculative_config=different)
        biased = self.model()
        biased.lm_head.bias = self.torch.nn.Parameter(self.torch.zeros(N_VOCAB))
        refused("has a bias", biased)
        drafter = self.drafter()
        drafter.load_model(self.model(compute_logits=lambda hidden: hidden))
        self.says("code of its own", drafter.sample_draft, self.hidden)
        specrt.write_map([N_VOCAB], self.path("list.pt"), "sglang-pt", force=True)
        refused("expected some in [0, 20)", self.model())

    def test_hooks(self):
        """A release without one of the hooks is refused by its name; without runner V1 it is not."""
        module, name, _ = plugin.DRAFTERS["V2"]
        with unittest.mock.patch.dict(sys.modules, {plugin.DRAFTERS["V1"][0]: None}):
            plugin.register()
        with unittest.mock.patch.dict(sys.modules, {module: None}):
            self.says(f"expected {module}.{name}", plugin.register)
        del getattr(self.modules[module], name).sample_draft
        self.says("vLLM 0.33.0: expected DraftModelSpeculator.sample_draft", plugin.register)

    def test_metrics(self):
        """What passes with drafts emit, and how much of it the list has, from both runners."""
        torch = self.torch
        for runner, attribute in ("V2", "speculator"), ("V1", "drafter"):
            path, self.modules = self.path(f"{runner}.json"), stand_ins(torch)
            with unittest.mock.patch.dict(os.environ, {"SPECRT_METRICS": path}), \
                    unittest.mock.patch.dict(sys.modules, self.modules):
                plugin.register()
                drafter = self.drafter(runner)
                drafter.load_model(self.model())
            exporter = drafter._specrt_count.exporter
            self.addCleanup(atexit.unregister, exporter.write)
            exporter.seconds = 0
            module, name, _ = plugin.RUNNERS[runner]
            sampler = getattr(self.modules[module], name)()
            setattr(sampler, attribute, drafter)
            sampled = torch.tensor([[3, 9, -1], [5, -1, -1], [7, 18, 2]], dtype=torch.int32)
            output = types.SimpleNamespace(sampled_token_ids=sampled)
            if runner == "V2":
                found = output, torch.tensor([2, 1, 3]), torch.tensor([1, 0, 0])
                self.assertIs(sampler.sample(found, None), found)
            else:
                ends = torch.tensor([2, 2, 4], dtype=torch.int32)
                sampler._sample(output, types.SimpleNamespace(cu_num_draft_tokens=ends))
                sampler._sample(output, None)
            with open(path) as file:
                [(policy, found)] = json.load(file)["policies"].items()
            self.assertEqual((policy, [found[name] for name in SUMS]), ("static:4", [2, 0, 5, 3, 4, 8, 512, 0]))
        self.modules = stand_ins(torch)
        with unittest.mock.patch.dict(os.environ, {"SPECRT_METRICS": self.path("no/folder")}), \
                unittest.mock.patch.dict(sys.modules, self.modules):
            plugin.register()
            self.says("expected a file in a folder", self.drafter().load_model, self.model())


class Settings(Folder):
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
        self.assertIsNone(plugin.settings({"SPECRT_SIZE": "7"}))
        self.says("SPECRT_POLICY: expected a list", plugin.settings, {"SPECRT_POLICY": "hybrid"})
        self.assertEqual(plugin.settings({"SPECRT_TOKEN_MAP": "a", "SPECRT_SIZE": "7"}), plugin.Settings("a", 7))
        self.assertEqual(plugin.settings({"SPECRT_TOKEN_MAP": "a", "SPECRT_WINDOW": "9"}), plugin.Settings("a", 0, "", 9))
        for name in "SPECRT_SIZE", "SPECRT_WINDOW":
            self.says(f"{name}: expected a whole number, found 'many'", plugin.settings,
                      {"SPECRT_TOKEN_MAP": "a", name: "many"})

    def test_sampling(self):
        """Without Triton each draft has its sequence's temperature, and no draft needs none."""
        torch = torch_or_skip()
        temperatures, ends = torch.tensor([0.0, 0.7, 1.5]), torch.tensor([2, 2, 5], dtype=torch.int32)
        spread = plugin.spread(temperatures, ends, 5, replace_from=0, replace_to=1)
        self.assertTrue(torch.equal(spread, torch.tensor([1.0, 1.0, 1.5, 1.5, 1.5])))
        top_k = plugin.spread(torch.tensor([4, 5, 6], dtype=torch.int32), ends, 5)
        self.assertEqual((top_k.tolist(), top_k.dtype), ([4, 4, 6, 6, 6], torch.int32))
        for has_triton in True, False:
            modules = stand_ins(torch)
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
