"""test_vllm_window.py : windows of the plug-in for vLLM, over the stand-ins of test_plugin.py. tests/interop/plugin_interop.py
drafts with windows over vLLM's own classes."""
import os
import random
import types
import unittest.mock

import numpy as np

from specrt import vllm as plugin
from specrt.vllm_window import BEST, PROMPT, Window
from test_plugin import IDS, N_VOCAB, WIDTH, WithVllm, sample
from test_specrt import Folder, torch_or_skip


class Reference:
    """A window by the definition, of one request."""

    def __init__(self, width):
        self.ids, self.seen = [None] * width, [0] * width

    def add(self, tokens, now):
        tokens = list(dict.fromkeys(tokens))
        missing = [token for token in tokens if token not in self.ids]
        self.seen = [now if token in tokens else seen for token, seen in zip(self.ids, self.seen)]
        oldest = sorted(range(len(self.ids)), key=lambda place: (self.seen[place], place))
        for token, place in zip(missing, oldest):
            self.ids[place], self.seen[place] = token, now


class Definition(Folder):
    def test_add(self):
        """Passes of some of the requests, in any order, with different numbers of positions."""
        torch = torch_or_skip()
        n_requests, n_verified, n_rows, n_vocab = 4, 3, 50, 60
        chance = random.Random(3)
        torch.manual_seed(3)
        for width in 5, 30, 47:
            window = Window(n_requests, width, n_verified, torch.tensor([7, 9]), n_rows)
            expected = [Reference(width) for _ in range(n_requests)]
            address = window.ids.data_ptr(), window.seen.data_ptr()
            for now in range(1, 40):
                requests = chance.sample(range(n_requests), chance.randint(1, n_requests))
                counts = [chance.randint(1, n_verified) for _ in requests]
                reads = [chance.choice((1, 2, 9, PROMPT + 5)) for _ in requests]
                logits, tokens = torch.randn(sum(counts), n_vocab), torch.randint(n_vocab, (sum(reads) + 2,)).int()
                ends, begins = (torch.tensor([0, *n]).cumsum(0).int() for n in (counts, reads))
                window.read(logits, types.SimpleNamespace(
                    cu_num_logits=ends, idx_mapping=torch.tensor(requests, dtype=torch.int32), input_ids=tokens,
                    query_start_loc=torch.cat([begins, begins[-1:]]), num_scheduled_tokens=np.array(reads)))
                for i, request in enumerate(requests):
                    said = logits[ends[i]:ends[i + 1]].topk(BEST).indices.flatten().tolist()
                    if max(reads) > n_verified:
                        said += tokens[begins[i]:begins[i + 1]].tolist()[:-PROMPT - 1:-1]
                    expected[request].add([token for token in said if token < n_rows and token not in (7, 9)], now)
                found = window.tokens(torch.arange(n_requests))
                self.assertEqual(found.tolist(), [[7 if token is None else token for token in reference.ids]
                                                  for reference in expected])
            self.assertEqual(address, (window.ids.data_ptr(), window.seen.data_ptr()))


class Drafts(WithVllm):
    """Of a plug-in that is registered with windows."""

    def setUp(self):
        super().setUp()
        self.enter(unittest.mock.patch.dict(os.environ, {"SPECRT_WINDOW": "6"}))
        module, name, _ = plugin.RUNNERS["V2"]
        self.runner = getattr(self.modules[module], name)
        self.runner.sample = lambda runner, hidden, batch: runner.model.compute_logits(hidden)
        plugin.register()

    def loaded(self, model, runner="V2"):
        drafter = self.drafter(runner)
        drafter.max_num_reqs, drafter.num_speculative_steps, drafter.use_local_argmax_reduction = 3, 2, True
        drafter.load_model(model)
        return drafter

    def test_drafts(self):
        """A request's drafts are the best of the list and of what its target said."""
        torch, whole = self.torch, self.model()
        full = whole.compute_logits(self.hidden)
        drafter = self.loaded(self.model(lm_head=whole.lm_head))
        target = types.SimpleNamespace(compute_logits=lambda logits: logits)
        runner = self.runner()
        runner.model, runner.speculator = target, drafter
        logits = torch.randn(4, N_VOCAB)
        batch = types.SimpleNamespace(cu_num_logits=torch.tensor([0, 1, 4]), idx_mapping=torch.tensor([2, 0]),
                                      num_scheduled_tokens=np.array([1, 3]))
        self.assertTrue(torch.equal(runner.sample(logits, batch), logits))
        best = torch.full_like(full, float("-inf"))
        requests = torch.tensor([2, 0, 1, 2, 0, -1])
        for i, request in enumerate(requests.tolist()):
            said = {2: logits[:1], 0: logits[1:]}.get(request, logits[:0]).topk(BEST).indices.flatten().tolist()
            drawn = set(drafter._specrt_columns.window.tokens(requests)[i].tolist()) - {3}  # of empty places
            self.assertTrue(drawn <= set(said) - set(IDS) and len(drawn) == min(6, len({*said} - {*IDS})))
            best[i, [*IDS, *drawn]] = full[i, [*IDS, *drawn]]
        self.assertFalse(torch.isin(best.argmax(-1), torch.tensor(IDS)).all())  # some come from windows
        self.assertFalse(drafter.use_local_argmax_reduction)  # which it was loaded with
        self.assertTrue(torch.equal(drafter.sample_draft(self.hidden, None, requests), best.argmax(-1)))
        drafter.draft_logits = 0
        self.assertTrue(torch.allclose(drafter.sample_draft(self.hidden, None, requests), best, atol=1e-6))
        self.assertEqual(target.compute_logits(5), 5)

    def test_packed(self):
        """Rows of a head whose weight is not the rows are copied."""
        model = self.model()
        full = model.compute_logits(self.hidden)
        whole, model.lm_head.weight = model.lm_head.weight, self.torch.nn.Parameter(self.torch.empty(0))
        model.lm_head.quant_method.apply = lambda head, hidden: hidden @ whole.T
        self.loaded(model)
        rows = model.lm_head.quant_method.rows
        tokens = self.torch.arange(6).expand(6, -1)
        self.assertTrue(self.torch.allclose(rows.score(self.hidden, tokens), full[:, :6], atol=1e-6))
        self.assertEqual(tuple(rows.weight.shape), (N_VOCAB, WIDTH))

    def test_refuses(self):
        self.says("runner V2 whose drafts name their requests", self.loaded, self.model(), "V1")
        self.says("runner V2 whose drafts name their requests", self.loaded, self.model(compute_candidates=None))
        d2t = self.torch.zeros(N_VOCAB, dtype=self.torch.int64)
        self.says("expected a drafter of the target's vocabulary", self.loaded, self.model(draft_id_to_target_id=d2t))
        with unittest.mock.patch.dict(os.environ, {"SPECRT_WINDOW": "17"}):
            drafter = plugin.loads(plugin.settings())(lambda drafter, model: setattr(drafter, "model", model))
            self.says("SPECRT_WINDOW: expected at most 16, the rows beside the list, found 17", drafter, self.drafter(), self.model())


class WithoutWindows(WithVllm):
    def test_sample(self):
        """A runner whose drafter has no windows samples as before."""
        module, name, _ = plugin.RUNNERS["V2"]
        self.assertIs(getattr(self.modules[module], name).sample, sample)
        plugin.register()
        self.assertIs(getattr(self.modules[module], name).sample, sample)
