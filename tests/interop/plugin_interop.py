#!/usr/bin/env python3
"""The plug-in over vLLM's own drafter classes on a CPU, no engine: for each kind of drafter its model's code for logits,
its head modules and its speculator's code for drafts, without a backbone. With a list of all rows drafts must be those
without the plug-in; with a short list the best of it, and of a request's window. Two ranks over gloo must draft as one.
vLLM's loaders read block drafters, whole and cut by specrt-bundle: the plug-in over the whole one must draft what the cut one does. Runs in the vLLM of its
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
SHORT, ALL = list(range(3, N_VOCAB, 7)), list(range(N_VOCAB))
DSPARK, N_BEST = "dspark.speculator.DSparkSpeculator", 8


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
        markov.markov_w2._retain_weight_for_gather = markov.markov_w2.is_w4a16_nvfp4 = False
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
        yield "DSpark", self.dspark(), walked, DSPARK
        yield "DFlash 2", self.dflash2(), candidates, "dflash2.speculator.DFlash2Speculator"


def speculator(path, model, loads, **settings):
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
        _anchor_idx=torch.arange(n_requests), vocab_size=N_VOCAB)
    vars(out).update(settings)
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
    """DSpark's walk along a block [N_STATES]. walks() judges its logits."""
    drafter._sample_sequential(N_STATES // N_STEPS, hidden)
    return drafter.draft_tokens.flatten().clone(), None


def candidates(drafter, hidden):
    """DFlash 2's candidates: ids [N_STATES, top_k], and the logits that they are the best of."""
    model = drafter.model
    return model.compute_candidates(hidden)[0], model.candidate_logits_processor(model.lm_head, hidden)


def v1(name, model, loads):
    """A proposer of runner V1 in the place of a speculator."""
    from vllm.v1.spec_decode.dflash import DFlashProposer
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
    cls = DFlashProposer if name == "DFlash" else SpecDecodeBaseProposer
    out = cls.__new__(cls)
    vars(out).update(model=model, use_local_argmax_reduction=False, use_heterogeneous_vocab=False,
                     speculative_config=types.SimpleNamespace(use_heterogeneous_vocab=False))
    for load in loads:
        load(lambda self: None)(out)
    return out


def fill_windows(drafter):
    """The windows of N_STATES / N_STEPS requests that have seen a prompt and drafts: tokens [N_STATES, N_WINDOW]."""
    import torch
    n_requests, window = N_STATES // N_STEPS, drafter._specrt_columns.window
    generator = torch.Generator().manual_seed(9)
    ends = torch.arange(n_requests + 1) * (N_STEPS + 1)
    for n_read in N_STEPS + 9, N_STEPS + 1:  # of prompts, of drafts
        window.read(torch.randn(n_requests * (N_STEPS + 1), N_VOCAB, generator=generator), types.SimpleNamespace(
            cu_num_logits=ends, idx_mapping=torch.arange(n_requests).flip(0), num_scheduled_tokens=np.array([n_read]),
            query_start_loc=torch.arange(n_requests + 1) * n_read, input_ids=torch.arange(n_requests * n_read) % N_VOCAB))
    return window.tokens(torch.arange(N_STATES) // N_STEPS)


def windowed(drafter, hidden):
    """Greedy drafts [N_STATES] with windows, and their logits, and the windows."""
    import torch
    tokens = fill_windows(drafter)
    return *chosen(drafter, hidden, torch.arange(N_STATES) // N_STEPS), tokens


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
            proposer = v1(name, model, loads)
            out[f"{name}, V1"] = proposer._greedy_sample(hidden), model.compute_logits(hidden)
    return out


def judge(before, whole, short):
    """Drafts without the plug-in, with a list of all rows, with a short one."""
    import torch
    for name, (ids, logits) in before.items():
        check(torch.equal(ids, whole[name][0]) and (logits is None or torch.equal(logits, whole[name][1])),
              f"{name}: {ids.numel()} drafts with all rows are those without the plug-in")
        listed = set(SHORT)
        if logits is None:
            continue
        masked = torch.full_like(logits, float("-inf"))
        masked[:, SHORT] = logits[:, SHORT]
        best = masked.topk(ids.shape[1]).indices if ids.dim() > 1 else masked.argmax(-1)
        check(torch.equal(short[name][0], best) and torch.equal(short[name][1], masked),
              f"{name}: drafts and logits with a list of {len(SHORT)} are those of its rows")
        if f"{name}, windows" not in short:
            continue
        ids, found, tokens = short[f"{name}, windows"]
        masked.scatter_(1, tokens, logits.gather(1, tokens))
        n_drawn = sum(token not in listed for token in ids.tolist())
        check(torch.equal(ids, masked.argmax(-1)) and torch.allclose(found, masked, atol=1e-5) and n_drawn > 9,
              f"{name}: so are those with {N_WINDOW} tokens of each request's own, which give {n_drawn} of {len(ids)} drafts")


def by_hand(model, hidden, rows, n_best=None):
    """DSpark's greedy drafts [n_states] by a model without the plug-in: each is the best of the tokens of rows, bool
    [n_requests, n_vocab], and of these of the n_best of its position."""
    import torch
    n_requests, n_vocab = rows.shape
    base = model.compute_draft_logits(hidden).view(n_requests, -1, n_vocab).masked_fill(~rows[:, None], float("-inf"))
    base = base.masked_fill(base < base.topk(n_best or n_vocab).values[..., -1:], float("-inf"))
    found = [torch.arange(n_requests) * 5 % N_VOCAB]
    for logits in base.unbind(1):
        found.append((logits + model.markov_bias(model.markov_embed(found[-1]))).argmax(-1))
    return torch.stack(found[1:], 1).flatten()


def allowed(ids, tokens=None, n_vocab=N_VOCAB):
    """rows of by_hand(): a list, and windows [N_STATES, W]."""
    import torch
    rows = torch.zeros(N_STATES // N_STEPS, n_vocab, dtype=torch.bool)
    rows[:, ids] = True
    return rows if tokens is None else rows.scatter_(1, tokens[::N_STEPS], True)


def walks():
    """DSpark in runner V2, beside by_hand(): greedy and sampled, over all tokens and over dspark_draft_topk, with windows. In the
    place of the sampler, which needs a GPU, stands one that takes the best and asks for logits of the whole vocabulary."""
    import torch
    from specrt import vllm as plugin
    kinds, hidden = Kinds(), torch.randn(N_STATES, WIDTH, generator=torch.Generator().manual_seed(3))
    stock, seen, widths = kinds.dspark(), set(), set()

    def sample(logits, *_, **__):
        seen.add(logits.shape[-1])
        return logits.argmax(-1)
    sampled = {"draft_logits": torch.zeros(N_STATES // N_STEPS, N_STEPS, N_VOCAB), "temperature": None, "seeds": None,
               "draft_watermarker": types.SimpleNamespace(sample=sample)}
    for ids, n_best, width in (ALL, None, 0), (ALL, N_BEST, 0), (SHORT, None, 0), (SHORT, N_BEST, 0), (SHORT, None, N_WINDOW):
        plugin.read_ids = lambda _, ids=ids: np.array(ids, np.int32)
        loads = [plugin.loads(plugin.Settings("list", 0, "", width))]
        for more in {}, sampled:
            drafter = speculator(DSPARK, kinds.dspark(), loads, _draft_topk=n_best, **more)
            rows, choose = allowed(ids, fill_windows(drafter) if width else None), drafter._sample_logits
            drafter._sample_logits = lambda logits, *rest: widths.add(logits.shape[-1]) or choose(logits, *rest)
            with Waits() as count:
                found, _ = walked(drafter, hidden)
            name = (f"DSpark, {'sampled' if more else 'greedy'}, list of {len(ids)}" + (f", top {n_best}" if n_best else "")
                    + (f", windows of {width}" if width else ""))
            columns = N_VOCAB if more and width else len(ids) + width
            check(widths == {columns}, f"{name}: chooses of {columns} columns")
            widths.clear()
            n_beside = sum(token not in ids for token in found.tolist())
            check(torch.equal(found, by_hand(stock, hidden, rows, n_best)) and not count.found and (n_beside > 9) == (width > 0),
                  f"{name}: drafts are those by hand, {n_beside} from windows; no call waits" + "".join(f" {w}" for w in count.found))
            if ids is ALL:
                own, _ = walked(speculator(DSPARK, kinds.dspark(), [], _draft_topk=n_best, **more), hidden)
                check(torch.equal(found, own), f"{name}: drafts are those without the plug-in")
    check(seen == {N_VOCAB}, "DSpark, sampled: the sampler gets logits of the whole vocabulary")
    dflash = speculator("dflash.speculator.DFlashSpeculator", kinds.plain("qwen3_dflash.DFlashQwen3ForCausalLM"), loads)
    check(dflash._specrt_columns.chooses, "DFlash: greedy drafts are chosen of the list's columns")
    dflash2 = "dflash2.speculator.DFlash2Speculator", kinds.dflash2()
    for text, (path, model), n_best, width in (("at most 36, the rows", (DSPARK, kinds.dspark()), 40, 0),
                                               ("no dspark_draft_topk", (DSPARK, kinds.dspark()), N_BEST, N_WINDOW),
                                               ("whose drafts name their requests", dflash2, None, N_WINDOW)):
        try:
            speculator(path, model, [plugin.loads(plugin.Settings("list", 0, "", width))], _draft_topk=n_best)
            said = "nothing"
        except plugin.SpecrtError as error:
            said = str(error)
        check(text in said, f"top {n_best}, windows of {width}: refused: {said}")


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
    import torch
    import torch._dynamo  # else the first counted call imports it, and its calls are counted
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
    os.environ.update(SPECRT_TOKEN_MAP="list", SPECRT_WINDOW="1")  # hooks of windows, too
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


def on_cpu():
    """vLLM as a build for CPUs configures itself."""
    from vllm import platforms
    from vllm.platforms.cpu import CpuPlatform
    platforms._current_platform = CpuPlatform()  # before other modules of vLLM ask for it


def commands():
    """vLLM's configuration of the page's command and of start.sh's, as a build for CPUs makes it."""
    on_cpu()
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
    for name, command in ("vllm.md", live.documented(names)), ("start.sh", (out / "start.sh").read_text().replace('"$@"', "")):
        variables, words = live.words(command)
        args = parser.parse_args(["--model", *words[2:]])
        config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
        n_ids, drafts = len(plugin.read_ids(plugin.settings(variables))), config.speculative_config
        found = drafts.method, drafts.draft_model_config.hf_config.architectures, config.model_config.model, n_ids
        check(words[1] == "serve" and found == ("eagle", ["EagleLlamaForCausalLM"], str(target), 8192),
              f"{name}: vLLM's configuration for CPUs has {drafts.num_speculative_tokens} drafts of {found[1][0]}; {n_ids} ids")


class Loaded:
    """A block drafter's folder as vLLM's own code loads it beside the sample target."""

    def __init__(self, target, method, folder):
        from vllm.config import set_current_vllm_config
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.model_loader import get_model
        config = EngineArgs(model=str(target), dtype="float32", max_model_len=512, enforce_eager=True, speculative_config={
            "method": method, "model": str(folder), "num_speculative_tokens": N_STEPS}).create_engine_config()
        module = __import__(f"vllm.v1.worker.gpu.spec_decode.{method}.utils", fromlist=["utils"])
        with set_current_vllm_config(config):
            self.model = getattr(module, f"load_{method}_model")(get_model(vllm_config=config), config)

    def drafts(self, path, draft, hidden, loads):
        return draft(speculator(path, self.model, loads, vocab_size=live.N_VOCAB), hidden)[0]


def folders(size=2048):
    """DFlash and DSpark of the sample pair, whole and cut by specrt-bundle, in vLLM's loaders."""
    import torch
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    on_cpu()
    join(0, 1, 8148)
    patch()
    from specrt import vllm as plugin
    target, dflash, listed = live.target_folder(), live.dflash_folder(), live.ranked(size)
    plugin.read_ids = lambda _: np.array(listed, np.int32)
    hidden = torch.randn(N_STATES, 256, generator=torch.Generator().manual_seed(4))
    for method, folder, draft, path in (("dspark", "data/sample/block", walked, DSPARK),
                                        ("dflash", dflash, chosen, "dflash.speculator.DFlashSpeculator")):
        cut = live.work / f"{method}-cut"
        live.tool("specrt-bundle", "export", live.bundle(), "--drafter", folder, "--target", target, "--for", "vllm", "--size",
                  size, "-q", "-o", cut)
        whole, small = Loaded(target, method, folder), Loaded(target, method, cut)
        ids = small.drafts(path, draft, hidden, [])
        if method == "dspark":
            wanted = by_hand(whole.model, hidden, allowed(listed, None, live.N_VOCAB))
        else:
            logits = whole.model.compute_logits(hidden)
            wanted = torch.full_like(logits, float("-inf")).index_copy_(1, torch.tensor(listed), logits[:, listed]).argmax(-1)
        check(torch.equal(ids, wanted) and len(set(ids.tolist())) > 9,
              f"{method}: vLLM's loader takes the cut folder, {len(small.model.lm_head.weight)} rows; drafts are those by hand")
        found = whole.drafts(path, draft, hidden, [plugin.loads(plugin.Settings("list", 0))])
        check(torch.equal(found, ids), f"{method}: the plug-in over the whole folder drafts what the cut folder does")


def apart(name, n_passed):
    """A part that makes vLLM one for CPUs, in a process of its own."""
    run = subprocess.run([sys.executable, __file__, f"--{name}"], capture_output=True, text=True)
    said = re.findall(r"^(?:ok|FAIL) +(.*)", run.stdout, re.M)
    check(f"{n_passed} passed, 0 failed" in run.stdout, f"{name}: {'; '.join(said) or run.stderr[-1500:]}")


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
    whole, short = drafts_of(ALL), drafts_of(SHORT)
    judge(before, whole, short)
    steps()
    walks()
    with tempfile.TemporaryDirectory() as work:
        ranks(short, work)
    apart("commands", 2)
    if vllm.__version_tuple__ >= (0, 33):  # 0.32 refuses runner V2 where there is no Triton
        apart("folders", 4)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        as_rank(int(sys.argv[2]), sys.argv[3], sys.argv[4])
        sys.exit()
    live.run({"--commands": commands, "--folders": folders}.get("".join(sys.argv[1:2]), main), "torch")
