#!/usr/bin/env python3
"""Our sglang-pt in SGLang: load_token_map() reads the ids of the list, and its EAGLE worker's init_token_map() and
init_lm_head(), called on what they ask of a worker, give the drafter those rows of the target's head. What
docs/TOKEN_MAPS.md warns of is held to the same code: EAGLE-3 leaves the map out, STANDALONE takes ids and does not cut
the head. SGLang's EAGLE-3 model loads the folder that `specrt prepare` writes. Decoding needs a GPU, and is not tried."""
import os
import sys
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


def eagle3_model(folder):
    """SGLang's model of the folder's configuration, in a group of one process on the CPU."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
    set_global_server_args_for_scheduler(ServerArgs(model_path=str(folder), device="cpu", skip_tokenizer_init=True,
                                                    attention_backend="torch_native"))
    from sglang.srt.distributed import init_distributed_environment, initialize_model_parallel
    from sglang.srt.runtime_context import get_parallel
    init_distributed_environment(1, 0, local_rank=0, backend="gloo")
    initialize_model_parallel()
    get_parallel().override_permanently(tp_rank=0, tp_size=1, attn_tp_rank=0, attn_tp_size=1)
    kernels = types.ModuleType("vllm._custom_ops")  # the rotary embedding imports this kernel, which loading never calls
    kernels.rotary_embedding = None
    sys.modules.update({"vllm": types.ModuleType("vllm"), "vllm._custom_ops": kernels})
    from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3
    from transformers import AutoConfig
    return LlamaForCausalLMEagle3(AutoConfig.from_pretrained(folder))


def prepared():
    """Rows and ids that the model has are those of the drafter before the cut."""
    import torch
    from safetensors.torch import load_file
    before, folder = live.random_eagle3("sglang", SIZE)
    whole, cut = load_file(before / "model.safetensors"), load_file(folder / "model.safetensors")
    model = eagle3_model(folder)
    model.load_weights(cut.items())
    ids = model.get_hot_token_id()
    places = {int(token): i for i, token in enumerate(whole["d2t"] + torch.arange(len(whole["d2t"])))}
    rows = whole["lm_head.weight"][[places[int(token)] for token in ids]]
    live.check(len(ids) == SIZE and torch.equal(model.lm_head.weight[:SIZE].half(), rows),
               f"prepare: EAGLE-3 loads {SIZE} rows, each of the token that hot_token_id names")
    qkv = torch.cat([whole[f"midlayer.self_attn.{name}_proj.weight"] for name in "qkv"])
    live.check(torch.equal(model.model.layers[0].self_attn.qkv_proj.weight.half(), qkv)
               and torch.equal(model.model.fc.weight.half(), whole["fc.weight"]),
               "prepare: the layer and fc are the drafter's")


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
    prepared()


if __name__ == "__main__":
    live.run(main, "sglang", "torch")
