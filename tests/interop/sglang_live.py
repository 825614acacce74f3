#!/usr/bin/env python3
"""Our sglang-pt in SGLang: load_token_map() reads the ids of the list, and its EAGLE worker's init_token_map() and
init_lm_head(), called on what they ask of a worker, give the drafter those rows of the target's head. What
docs/TOKEN_MAPS.md warns of is held to the same code: EAGLE-3 leaves the map out, STANDALONE takes ids and does not cut
the head. Decoding needs a GPU, and is not tried."""
import types

import live

SIZE, WIDTH = 8192, 64


class Worker:
    """The parts of a draft worker that its loaders read, on a target whose head is `head` [n_vocab, d]."""

    def __init__(self, head, eagle3=False):
        import torch
        self.speculative_algorithm = types.SimpleNamespace(is_eagle3=lambda: eagle3)
        self.shared = head, torch.nn.Parameter(head.clone(), requires_grad=False)
        self.target_worker = types.SimpleNamespace(
            model_runner=types.SimpleNamespace(model=types.SimpleNamespace(lm_head=None)))
        self.draft_runner = types.SimpleNamespace(model=types.SimpleNamespace(
            set_embed_and_head=self.take, set_embed=lambda embed: None, hot_token_id=None))
        self.drafts_with = None

    def _resolve_shared_embed_and_head(self):
        return self.shared

    def take(self, _, head):
        self.drafts_with = head.data


def main():
    import torch
    import sglang.srt.speculative.eagle_worker_v2 as eagle
    import sglang.srt.speculative.standalone_worker_v2 as standalone
    from sglang.srt.speculative.spec_utils import load_token_map
    path, ids = live.export("sglang-pt", SIZE, "freq.pt"), torch.tensor(live.ranked(SIZE))
    loaded = load_token_map(str(path))
    live.check(loaded.dtype == torch.int64 and torch.equal(loaded, ids), f"load_token_map: {SIZE} ids, those of the list")

    head = torch.randn(live.N_VOCAB, WIDTH, generator=torch.Generator().manual_seed(1))
    eagle.get_spec = lambda: types.SimpleNamespace(speculative_token_map=str(path))
    worker = Worker(head)
    eagle.EagleDraftWorker.init_token_map(worker)
    eagle.EagleDraftWorker.init_lm_head(worker)
    live.check(torch.equal(worker.drafts_with, head[ids]) and torch.equal(worker.hot_token_id, ids),
               "EAGLE: the drafter's head has the listed rows of the target's, in the list's order")
    best = (worker.drafts_with @ head[ids[5]]).argmax()
    live.check(worker.hot_token_id[best] == ids[5], "EAGLE: a row of the cut head goes back to its token")

    worker = Worker(head, eagle3=True)
    eagle.EagleDraftWorker.init_token_map(worker)
    live.check(worker.hot_token_id is None, "EAGLE-3: the map is left out, as the page says")
    worker = Worker(head)
    standalone.StandaloneDraftWorker.init_token_map(worker)
    standalone.StandaloneDraftWorker.init_lm_head(worker)
    live.check(torch.equal(worker.hot_token_id, ids) and worker.drafts_with is None,
               "STANDALONE: takes the ids and does not cut the head, as the page warns")


if __name__ == "__main__":
    live.run(main, "sglang", "torch")
