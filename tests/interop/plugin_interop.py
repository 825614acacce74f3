#!/usr/bin/env python3
"""The plug-in over vLLM's own drafter classes on a CPU, no engine: for each kind of drafter its model's code for logits,
its head modules and its speculator's code for drafts, without a backbone. With a list of all rows drafts must be those
without the plug-in; with a short list the best of it, and of a request's window. Two ranks over gloo must draft as one. Runs in the vLLM of its
interpreter: requirements/plugin.txt has 0.33; vllm_live runs it in 0.32."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import numpy as np

import live
import newest
from live import check

N_VOCAB, WIDTH, N_STATES, N_STEPS, RANK, N_WINDOW = 250, 24, 96, 4, 6, 20
SHORT = list(range(3, N_VOCAB, 7))


class Kinds:
    """Drafters of each kind. A model is vLLM's class with the parts that logits need; weights are random."""

    def __init__(self):
        import torch
        from vllm.model_executor.layers.logits_processor import LogitsProcessor
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
        self.torch, self.processor = torch, LogitsProcessor
        self.parallel_head, self.embedding = ParallelLMHead, VocabParallelEmbedding

    def load(self, module, n_rows=N_VOCAB):
        """Random weights, the same on one rank as on several."""
        torch = self.torch
        generator = torch.Generator().manual_seed(n_rows + module.embedding_dim)
        rows = torch.randn(n_rows, module.embedding_dim, generator=generator)
        module.weight_loader(module.weight, rows)
        module.quant_method.process_weights_after_loading(module)
        return module

    def head(self, n_rows=N_VOCAB, width=WIDTH, **more):
        return self.load(self.parallel_head(n_rows, width, **more), n_rows)

    def bare(self, path, **parts):
        """An instance of a class of vLLM's models with these parts alone."""
        module, _, name = path.rpartition(".")
        cls = getattr(__import__(f"vllm.model_executor.models.{module}", fromlist=[name]), name)
        model = cls.__new__(cls)
        self.torch.nn.Module.__init__(model)
        for key, part in parts.items():
            setattr(model, key, part)
        return model

    def plain(self, path, **parts):
        config = types.SimpleNamespace(vocab_size=N_VOCAB, draft_vocab_size=N_VOCAB)
        parts = {"config": config, "draft_id_to_target_id": None, "lm_head": self.head(),
                 "logits_processor": self.processor(N_VOCAB), **parts}
        return self.bare(path, **parts)

    def eagle3_cut(self):
        """A head of its own of half the rows, with a d2t."""
        n, torch = N_VOCAB // 2, self.torch
        d2t = torch.nn.Parameter(torch.arange(n), requires_grad=False)  # every second token
        return self.plain("llama_eagle3.Eagle3LlamaForCausalLM", lm_head=self.head(n), draft_id_to_target_id=d2t,
                          logits_processor=self.processor(n),
                          config=types.SimpleNamespace(vocab_size=N_VOCAB, draft_vocab_size=n))

    def tied(self):
        embedding = self.load(self.embedding(N_VOCAB, WIDTH))
        inner = self.torch.nn.Module()
        inner.embed_tokens = embedding
        return self.plain("llama.LlamaForCausalLM", model=inner, lm_head=embedding,
                          logits_processor=self.processor(N_VOCAB, scale=0.5))

    def layers(self, path, inner):
        """MTP layers that score a norm of the state by a head of their own: DeepSeek, GLM and others."""
        torch, head, layers = self.torch, self.head(), {}
        for i in "23":
            shared = self.bare(f"{path}.SharedHead", head=head, norm=torch.nn.Tanh())
            layers[i] = torch.nn.Module()
            layers[i].shared_head = shared
        predictor = self.bare(f"{path}.{inner}", layers=torch.nn.ModuleDict(layers), mtp_start_layer_idx=2,
                              num_mtp_layers=2, logits_processor=self.processor(N_VOCAB))
        return predictor, head

    def deepseek(self):
        predictor, _ = self.layers("deepseek_mtp", "DeepSeekMultiTokenPredictor")
        return self.bare("deepseek_mtp.DeepSeekMTP", model=predictor)

    def glm(self):
        predictor, head = self.layers("glm4_moe_mtp", "Glm4MoeMultiTokenPredictor")
        return self.bare("glm4_moe_mtp.Glm4MoeMTP", model=predictor, lm_head=head)

    def modules(self):
        """A model whose inner module gets the head by argument."""
        inner = self.bare("mimo_v2_mtp.MiMoV2MultiTokenPredictor", logits_processor=self.processor(N_VOCAB))
        return self.bare("mimo_v2_mtp.MiMoV2MTP", model=inner, lm_head=self.head())

    def gemma4(self, suppressed=None):
        return self.plain("gemma4_mtp.Gemma4MTP", masked_embedding=None, _suppress_idx=suppressed,
                          logits_processor=self.processor(N_VOCAB, soft_cap=30.0))

    def dspark(self):
        torch = self.torch
        markov = self.bare("qwen3_dspark.DSparkMarkovHead", markov_w1=torch.nn.Embedding(N_VOCAB, RANK),
                           markov_w2=self.head(N_VOCAB, RANK, disable_tp=True))
        generator = torch.Generator().manual_seed(5)
        markov.markov_w1.weight.data = torch.randn(N_VOCAB, RANK, generator=generator)
        inner = torch.nn.Module()
        inner.markov_head = markov
        return self.plain("qwen3_dspark.Qwen3DSparkForCausalLM", model=inner)

    def dflash2(self):
        inner = self.torch.nn.Module()
        inner.candidate_selector = types.SimpleNamespace(top_k=8)
        return self.plain("qwen3_dflash2.DFlash2Qwen3ForCausalLM", model=inner,
                          candidate_logits_processor=self.processor(N_VOCAB, scale=2.0, soft_cap=20.0))

    def all(self):
        """Name, model, how it drafts, and which speculator of runner V2 drives it."""
        yield "EAGLE-1/2", self.plain("llama_eagle.EagleLlamaForCausalLM"), chosen, "eagle.speculator.EagleSpeculator"
        yield "EAGLE-3", self.plain("llama_eagle3.Eagle3LlamaForCausalLM"), chosen, "eagle.speculator.EagleSpeculator"
        yield "EAGLE-3, d2t", self.eagle3_cut(), chosen, "eagle.speculator.EagleSpeculator"
        draft_model = "standalone_ar.speculator.StandaloneARSpeculator"
        yield "draft model", self.plain("llama.LlamaForCausalLM"), chosen, draft_model
        yield "draft model, tied", self.tied(), chosen, draft_model
        yield "MTP, DeepSeek", self.deepseek(), chosen, "mtp.speculator.MTPSpeculator"
        yield "MTP, GLM", self.glm(), chosen, "mtp.speculator.MTPSpeculator"
        yield "MTP, modules", self.modules(), chosen, "multi_module_mtp.speculator.MultiModuleMTPSpeculator"
        yield "Gemma 4", self.gemma4(), chosen, "gemma4.speculator.Gemma4Speculator"
        suppressed = self.gemma4(self.torch.tensor([3, 10]))
        yield "Gemma 4, suppressed", suppressed, chosen, "gemma4.speculator.Gemma4Speculator"
        yield "DFlash", self.plain("qwen3_dflash.DFlashQwen3ForCausalLM"), chosen, "dflash.speculator.DFlashSpeculator"
        yield "DSpark", self.dspark(), walked, "dspark.speculator.DSparkSpeculator"
        yield "DFlash 2", self.dflash2(), candidates, "dflash2.speculator.DFlash2Speculator"


def speculator(path, model, loads):
    """A speculator of runner V2 that has loaded a model, as far as choosing drafts needs it."""
    import torch
    module, _, name = path.rpartition(".")
    cls = getattr(__import__(f"vllm.v1.worker.gpu.spec_decode.{module}", fromlist=[name]), name)
    out = cls.__new__(cls)
    n_requests = N_STATES // N_STEPS
    vars(out).update(
        model=model, draft_logits=None, use_local_argmax_reduction=False, acceptance_estimator=None,
        draft_watermarker=None, use_fp64_gumbel=False, num_speculative_steps=N_STEPS, use_confidence_head=False,
        _draft_topk=None, _d2t_scatter_index=None, _step_cols=torch.arange(N_STEPS),
        speculative_config=types.SimpleNamespace(use_heterogeneous_vocab=False),
        sample_indices=torch.arange(N_STATES), sample_idx_mapping=torch.arange(N_STATES) // N_STEPS,
        sample_pos=torch.arange(N_STATES), draft_tokens=torch.zeros(n_requests, N_STEPS, dtype=torch.int64),
        max_num_reqs=n_requests, input_buffers=types.SimpleNamespace(input_ids=torch.arange(n_requests) * 5 % N_VOCAB),
        _anchor_idx=torch.arange(n_requests))
    for load in loads:
        load(lambda self: None)(out)
    return out


def chosen(drafter, hidden, requests=None):
    """Greedy drafts of sample_draft() [N_STATES], and the logits that sampled drafts are drawn from. requests: of windows."""
    more = {"spec_step_idx": 1} if "MultiModule" in type(drafter).__name__ else {}
    ids = drafter.sample_draft(hidden, None, requests, None, None, None, None, **more)
    if requests is None:
        return ids, drafter.compute_draft_logits(hidden, 1)
    columns = drafter._specrt_columns
    columns.widen(requests)
    logits = drafter.compute_draft_logits(hidden, 1)
    columns.table = columns.ids
    return ids, logits


def walked(drafter, hidden):
    """DSpark's walk along a block, and its base logits."""
    drafter._sample_sequential(N_STATES // N_STEPS, hidden)
    return drafter.draft_tokens.flatten().clone(), drafter.model.compute_draft_logits(hidden)


def candidates(drafter, hidden):
    """DFlash 2's candidates: ids and logits [N_STATES, top_k]."""
    return drafter.model.compute_candidates(hidden)


def v1(model, loads):
    """A proposer of runner V1 in the place of a speculator."""
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
    out = SpecDecodeBaseProposer.__new__(SpecDecodeBaseProposer)
    vars(out).update(model=model, use_local_argmax_reduction=False, use_heterogeneous_vocab=False,
                     speculative_config=types.SimpleNamespace(use_heterogeneous_vocab=False))
    for load in loads:
        load(lambda self: None)(out)
    return out


def windowed(drafter, hidden):
    """Greedy drafts [N_STATES] and logits of states of N_STATES / N_STEPS requests, whose windows have seen a prompt and
    drafts, and the windows."""
    import torch
    n_requests, window = N_STATES // N_STEPS, drafter._specrt_columns.window
    generator = torch.Generator().manual_seed(9)
    ends = torch.arange(n_requests + 1) * (N_STEPS + 1)
    for n_read in N_STEPS + 9, N_STEPS + 1:  # of prompts, of drafts
        window.read(torch.randn(n_requests * (N_STEPS + 1), N_VOCAB, generator=generator), types.SimpleNamespace(
            cu_num_logits=ends, idx_mapping=torch.arange(n_requests).flip(0), num_scheduled_tokens=np.array([n_read]),
            query_start_loc=torch.arange(n_requests + 1) * n_read, input_ids=torch.arange(n_requests * n_read) % N_VOCAB))
    requests = torch.arange(N_STATES) // N_STEPS
    return *chosen(drafter, hidden, requests), window.tokens(requests)


def has_windows(name, draft):
    return draft is chosen and "d2t" not in name


def drafts_of(ids):
    """Every kind's drafts with a list of ids (None: without the plug-in): by name, of V2 and, where V1 has the kind, of V1."""
    import torch
    from specrt import vllm as plugin
    generator = torch.Generator().manual_seed(7)
    hidden = torch.randn(N_STATES, WIDTH, generator=generator)
    out, loads = {}, []
    if ids is not None:
        import numpy as np
        plugin.read_ids = lambda _: np.array(ids[::-1], np.int32)
        loads = [plugin.loads(plugin.Settings("list", 0))]
    kinds = Kinds()
    for name, model, draft, path in kinds.all():
        out[name] = draft(speculator(path, model, loads), hidden)
    for name, model, draft, path in kinds.all() if ids is SHORT else ():
        if has_windows(name, draft):
            with_windows = plugin.loads(plugin.Settings("list", 0, "", N_WINDOW))
            out[f"{name}, windows"] = windowed(speculator(path, model, [with_windows]), hidden)
    for name, model, draft, _ in kinds.all():
        if draft is chosen:
            proposer = v1(model, loads)
            out[f"{name}, V1"] = proposer._greedy_sample(hidden), model.compute_logits(hidden)
    return out


def judge(before, whole, short):
    """Drafts without the plug-in, with a list of all rows, with a short one."""
    import torch
    for name, (ids, logits) in before.items():
        check(torch.equal(ids, whole[name][0]) and torch.equal(logits, whole[name][1]),
              f"{name}: {ids.numel()} drafts with all rows are those without the plug-in")
        listed = set(SHORT)
        found = set(short[name][0].flatten().tolist())
        if name in ("DSpark", "DFlash 2"):  # no argmax of these logits
            check(found <= listed and len(found) > 5, f"{name}: {len(found)} tokens drafted, all of a list of {len(SHORT)}")
            continue
        masked = torch.full_like(logits, float("-inf"))
        masked[:, SHORT] = logits[:, SHORT]
        check(torch.equal(short[name][0], masked.argmax(-1)) and torch.equal(short[name][1], masked),
              f"{name}: drafts and logits with a list of {len(SHORT)} are those of its rows")
        if f"{name}, windows" not in short:
            continue
        ids, found, tokens = short[f"{name}, windows"]
        masked.scatter_(1, tokens, logits.gather(1, tokens))
        n_drawn = sum(token not in listed for token in ids.tolist())
        check(torch.equal(ids, masked.argmax(-1)) and torch.allclose(found, masked, atol=1e-5) and n_drawn > 9,
              f"{name}: so are those with {N_WINDOW} tokens of each request's own, which give {n_drawn} of {len(ids)} drafts")


class Waits:
    """Counts calls of torch, and those by which a host waits for a device: it reads a number of the device, a shape depends
    on values there, or data comes from the host."""

    NAMES = "_local_scalar_dense", "nonzero", "masked_select", "unique", "lift_fresh"

    def __enter__(self):
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        outer = self

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                outer.n_calls += 1
                name, kwargs = str(func), kwargs or {}
                if any(word in name for word in outer.NAMES) or "_to_copy" in name and "device" in kwargs \
                        or "index.Tensor" in name and any(t is not None and t.dtype == torch.bool for t in args[1]):
                    outer.found.append(name)
                return func(*args, **kwargs)
        self.n_calls, self.found, self.mode = 0, [], Mode()
        self.mode.__enter__()
        return self

    def __exit__(self, *error):
        self.mode.__exit__(*error)


def tensors(model):
    """Where the plug-in's tensors are."""
    return [t.data_ptr() for m in model.modules() if hasattr(m, "specrt_columns") for t in (m.weight, m.specrt_columns.ids)]


def steps():
    """A step's own calls: drafts of each kind, beside those without the plug-in, and metrics."""
    import numpy as np
    import torch
    from specrt import vllm as plugin
    plugin.read_ids = lambda _: np.array(SHORT, np.int32)
    hidden, loads = torch.randn(N_STATES, WIDTH), [plugin.loads(plugin.Settings("list", 0))]
    kinds = Kinds()
    for (name, model, draft, path), (_, stock, *_) in zip(kinds.all(), kinds.all()):
        drafter = speculator(path, stock, [])
        with Waits() as before:
            draft(drafter, hidden)
        drafter = speculator(path, model, loads)
        addresses = tensors(model)
        with Waits() as count:
            draft(drafter, hidden)
        check(count.found == before.found and addresses and addresses == tensors(model),
              f"{name}: {count.n_calls} calls a step, {before.n_calls} without the plug-in, which adds none that waits; "
              f"{len(addresses)} tensors keep their addresses" + "".join(f" {name}" for name in count.found))
    for name, model, draft, path in kinds.all():
        if not has_windows(name, draft):
            continue
        drafter = speculator(path, model, [plugin.loads(plugin.Settings("list", 0, "", N_WINDOW))])
        window = drafter._specrt_columns.window
        addresses = tensors(model), window.ids.data_ptr(), window.seen.data_ptr()
        with Waits() as count:
            windowed(drafter, hidden)
        check(not count.found and addresses == (tensors(model), window.ids.data_ptr(), window.seen.data_ptr()),
              f"{name}: {count.n_calls} calls of two passes and a step with windows, none that waits" + "".join(f" {w}" for w in count.found))
    total = plugin.Count(drafter.model, drafter._specrt_columns)
    sampled = torch.tensor([[3, 4, -1], [10, 17, 24], [5, -1, -1]], dtype=torch.int32)
    n_sampled, n_drafted = torch.tensor([2, 3, 1]), torch.tensor([2, 2, 0])
    with Waits() as count:
        total.add(sampled, n_sampled, n_drafted)
    check(not count.found and total.sums.tolist() == [2, 5, 4, 4],
          f"metrics: {count.n_calls} calls a step, none that waits" + "".join(f" {name}" for name in count.found))


def join(rank, n_ranks, port):
    """vLLM's process groups over gloo."""
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    context = set_current_vllm_config(VllmConfig(device_config=DeviceConfig("cpu")))
    context.__enter__()
    init_distributed_environment(n_ranks, rank, f"tcp://127.0.0.1:{port}", rank, "gloo")
    initialize_model_parallel(n_ranks)
    return context


def as_rank(rank, port, file):
    """One of two ranks: its drafts into a file."""
    import torch
    join(rank, 2, port)
    patch()
    torch.save(drafts_of(SHORT), file)
    live.work.rmdir()


def patch():
    """The plug-in's hooks in this vLLM."""
    from specrt import vllm as plugin
    os.environ["SPECRT_TOKEN_MAP"] = "list"
    plugin.register()


def ranks(short, work):
    import torch
    files = [os.path.join(work, f"rank{rank}.pt") for rank in range(2)]
    running = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), "8147", file], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True) for rank, file in enumerate(files)]
    said = [process.communicate(timeout=600)[0] for process in running]
    if any(process.returncode for process in running):
        check(False, f"two ranks: {said[0][-1500:]} {said[1][-1500:]}")
        return
    for rank, file in enumerate(files):
        found = torch.load(file)
        same = [name for name, (ids, *_) in short.items() if torch.equal(ids, found[name][0])]
        check(len(same) == len(short), f"rank {rank} of 2: {len(same)} of {len(short)} kinds draft as one rank does")


def commands():
    """vLLM's configuration of the page's command and of start.sh's, as a build for CPUs makes it."""
    from vllm import platforms
    from vllm.platforms.cpu import CpuPlatform
    platforms._current_platform = CpuPlatform()  # before other modules of vLLM ask for it
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from specrt import vllm as plugin
    target, drafter, out = live.target_folder(), live.work / "eagle", live.work / "prepared"
    drafter.mkdir()
    shutil.copy("data/sample/draft.safetensors", drafter / "model.safetensors")
    shutil.copy("data/sample/config.json", drafter)
    subprocess.run(["build/bin/specrt", "prepare", "--target", target, "--drafter", drafter, "--text", "data/corpus", "--for",
                    "vllm", "--size", "8192", "--with", "none", "-q", "-o", out])  # not 0: vLLM leaves fc.bias out
    names = {"TARGET": target, "DRAFTER": drafter, "model.specb": out / "model.specb"}
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    for name, command in ("vllm.md", live.documented(names)), ("start.sh", (out / "start.sh").read_text()):
        variables, words = live.words(command)
        args = parser.parse_args(["--model", *words[2:]])
        config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
        n_ids, drafts = len(plugin.read_ids(plugin.settings(variables))), config.speculative_config
        found = drafts.method, drafts.draft_model_config.hf_config.architectures, config.model_config.model, n_ids
        check(words[1] == "serve" and found == ("eagle", ["EagleLlamaForCausalLM"], str(target), 8192),
              f"{name}: vLLM's configuration for CPUs has {drafts.num_speculative_tokens} drafts of {found[1][0]}; {n_ids} ids")


def main():
    import tempfile
    import vllm
    print(f"vLLM {vllm.__version__}")
    rows = newest.table()["vllm"]
    gone = newest.examine(pathlib.Path(vllm.__file__).parents[1], rows)
    check(not gone, f"hooks.txt: {len(rows) - len(gone)} of {len(rows)} hooks are there" + "".join(f"; {g}" for g in gone))
    join(0, 1, 8146)
    before = drafts_of(None)
    patch()
    whole, short = drafts_of(list(range(N_VOCAB))), drafts_of(SHORT)
    judge(before, whole, short)
    steps()
    with tempfile.TemporaryDirectory() as work:
        ranks(short, work)
    run = subprocess.run([sys.executable, __file__, "--commands"], capture_output=True, text=True)
    said = re.findall(r"^(?:ok|FAIL) +(.*)", run.stdout, re.M)
    check("2 passed, 0 failed" in run.stdout, f"commands: {'; '.join(said) or run.stderr[-1500:]}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        as_rank(int(sys.argv[2]), sys.argv[3], sys.argv[4])
        sys.exit()
    live.run(commands if sys.argv[1:2] == ["--commands"] else main, "torch")
