#!/usr/bin/env python3
"""Our sglang-pt in SGLang: load_token_map() reads the ids of the list, and its EAGLE worker's init_token_map() and
init_lm_head(), called on what they ask of a worker, give the drafter those rows of the target's head. What
docs/TOKEN_MAPS.md warns of is held to the same code: EAGLE-3 leaves the map out, STANDALONE takes ids and does not cut
the head. SGLang's EAGLE-3 model loads the folder that `specrt prepare` writes. With our patch its DSpark model loads a cut folder and
drafts, by its own code for CPUs, what the whole folder drafts from the listed tokens. Decoding needs a GPU, and is not tried."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import types

import live

SIZE, WIDTH = 8192, 64
PATCH = pathlib.Path("docs/integrations/sglang-dspark-d2t.patch")


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


def start(folder):
    """A group of one process on the CPU, for the models of a folder."""
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


def eagle3_model(folder):
    """SGLang's model of the folder's configuration."""
    start(folder)
    from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3
    from transformers import AutoConfig
    return LlamaForCausalLMEagle3(AutoConfig.from_pretrained(folder))


def patched():
    """SGLang's module of DSpark models, patched in a copy."""
    import sglang
    name = "srt/models/dspark.py"
    copy = live.work / "python/sglang" / name
    copy.parent.mkdir(parents=True)
    copy.write_text((pathlib.Path(sglang.__file__).parent / name).read_text())
    subprocess.run(["patch", "-s", "-p2", "-d", live.work / "python", "-i", PATCH.resolve()], check=True)
    spec = importlib.util.spec_from_file_location("sglang.srt.models.dspark", copy)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dspark():
    """The sample's block drafter, whole and cut, in the patched model: drafts of random states, greedy and sampled."""
    import torch
    from safetensors.torch import load_file
    from sglang.srt.speculative.dspark_components import dspark_draft
    from transformers import AutoConfig
    module, size, n = patched(), 2048, 6
    target, cut = live.target_folder(), live.work / "dspark-cut"
    live.tool("specrt-bundle", "export", live.bundle(), "--drafter", "data/sample/block", "--target", target, "--for", "vllm",
              "--size", size, "-q", "-o", cut)
    head = load_file(target / "model.safetensors")["model.embed_tokens.weight"].half()
    shared = types.SimpleNamespace(weight=head, org_vocab_size=len(head), quant_method=None, tp_size=1)
    rows = torch.full((len(head),), float("-inf")).index_fill(0, torch.tensor(live.ranked(size)), 0)
    hidden = torch.randn(n * 7, head.shape[1], generator=torch.Generator().manual_seed(2)).half()
    module.gather_and_crop_vocab = lambda logits, _: logits  # of one rank
    found = {}
    for name, folder in ("whole", pathlib.Path("data/sample/block")), ("cut", cut):
        model = module.Qwen3DSparkModel(AutoConfig.from_pretrained(folder)).half()
        model.load_weights(load_file(folder / "model.safetensors").items())
        model.attach_shared_modules(embed_tokens=None, lm_head=shared)
        base = model.compute_base_logits(hidden)[0].view(n, 7, -1)
        for heat in 0.0, 1.0:
            found[name, heat] = dspark_draft.draft_markov_block(
                markov_head=model.markov_head, base_logits=base if name == "cut" else (base + rows).half(),
                anchor_tokens=torch.arange(n) * 5, draft_hidden=None, step_temperatures=torch.full((n,), heat),
                noise=dspark_draft.DraftNoise(key=1, offset=torch.zeros(1, dtype=torch.int64)),
                tp_sync=types.SimpleNamespace(sync=lambda _, tokens: tokens), greedy_draft=not heat)[0]
    live.check(tuple(model.markov_head.markov_w2.weight.shape) == (size, 16) and len(model.draft_head) == size,
               f"DSpark, patched: the model has {size} rows of head and markov_w2")
    for heat in 0.0, 1.0:
        ids = found["cut", heat]
        live.check(torch.equal(ids, found["whole", heat]) and len(set(ids.flatten().tolist())) > 9,
                   f"DSpark, patched, temperature {heat}: {ids.numel()} drafts are those of the whole drafter's listed tokens")


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
    dspark()


if __name__ == "__main__":
    live.run(main, "sglang", "torch")
