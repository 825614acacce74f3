#!/usr/bin/env python3
"""Trains the sample pair of data/sample: a target, an EAGLE-2 head and a small independent drafter.

usage: data/train_sample.py tokens|target|small|draft|mtp|check [--text DIR] [--work DIR] [--tokens N]
                            [--threads N] [--init FILE --rate X] [--steps N] [--csra W] [--f32]

Stages in that order; then data/export_sample.py. Reads the text of collect_text.py (build/text),
works in build/sample. Debian's python3-torch (1.13) is enough; `tokens` needs PyPI's tokenizers.
Prints the loss on held-out text as it goes and keeps it in WORK/STAGE.log. --init goes on from a
stage's weights (of `draft` also from an exported head), with X of the learning rate at first and new text. `draft` trains over N drafted steps (2),
and with W above 0 adds W times CORAL's cross-step representation alignment (docs/methods/routers.md); its
target is WORK/target.pt, or data/sample's own where that is missing. `mtp` trains an MTP module for
data/sample's own target, from its EAGLE-2 head, over four drafted steps. `check` prints, on held-out text
by domain, the target's loss and how often its greedy token is the head's first guess or among its
ten best. --f32 multiplies in f32 instead of bfloat16: much faster on a processor without bfloat16, where
PyTorch's gradients take 60 times as long. The same text, seed and versions give the same weights."""
import argparse
import glob
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from gguf import GGUFReader
from gguf.quants import dequantize

import block_draft as block
import sample_model as model
import smollm2_draft as heads
import smollm2_target as writer
from export_sample import exported_eagle
from sample_text import DOMAINS, Windows, prompts, tokens

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = os.path.join(HERE, "sample", "target.gguf")
N_VOCAB = 32768
SHAPES = {"target": model.Shape(N_VOCAB, 256, 6, 4, 2, 768),
          "small": model.Shape(N_VOCAB, 96, 2, 2, 1, 256)}
TOKENS = {"target": 16e6, "small": 4e6, "draft": 3e6, "mtp": 2e6, "block": 1.3e6}  # tokens seen
BATCH = 8192       # tokens of a step
BLOCK_BATCH = 2048  # the same of a block drafter
WINDOWS = ((.6, 256), (1, 1024))  # until this share of the training, windows of so many tokens
CSRA_TEMPERATURE = .07
N_ANSWER, N_ANSWERS, SIDE = 96, 1536, 96  # tokens of an answer; answers; those written side by side
TEMPERATURES = 0, 0, .7  # by turns
HELD_OUT = 16      # of so many batches of answers one is kept out of training
END = 32761        # <|eot_id|>
NEGATIVES = 2048   # rows of the head beside the batch's own, drawn anew at each step
REPORT, SAVE = 20, 100  # steps


class SampleBlock(block.Block):
    taps, mask, rank = (1, 3, 5), 32759, 16  # mask: a reserved token


class Muon:
    """Momentum, made orthogonal (Jordan et al. 2024), for the matrices inside the layers."""

    def __init__(self, matrices, momentum=.95):
        self.matrices, self.momentum = matrices, momentum
        self.buffers = [torch.zeros_like(p) for p in matrices]

    @staticmethod
    def orthogonal(g):
        x = g.to(model.PRODUCTS) / (g.norm() + 1e-7)
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        for a, b, c in [(3.4445, -4.7750, 2.0315)] * 5:  # Newton-Schulz
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return (x.T if tall else x).float()

    @torch.no_grad()
    def step(self, rate):
        for p, buffer in zip(self.matrices, self.buffers):
            buffer.lerp_(p.grad, 1 - self.momentum)
            update = self.orthogonal(p.grad.lerp(buffer, self.momentum))
            p.mul_(1 - rate * .05).add_(update, alpha=-rate * max(1, p.shape[0] / p.shape[1]) ** .5)
            p.grad = None


def split_weights(weights):
    """-> (matrices inside the layers, Muon's; the rest, Adam's: vectors, and a block drafter's tables)."""
    tables = "markov_w1", "markov_w2", "confidence"
    inside = lambda name, p: p.dim() == 2 and name not in tables
    return ([p for name, p in weights.items() if inside(name, p)],
            [p for name, p in weights.items() if not inside(name, p)])


class Rows:
    """The embedding, which is also the head: only rows of the batch and sampled ones take part in a
    step (sampled softmax, log-Q corrected), each with its own Adam."""

    def __init__(self, weight, counts, seed):
        self.weight, self.rng = weight, np.random.default_rng(seed)
        self.mean, self.square = torch.zeros_like(weight), torch.zeros_like(weight)
        self.steps = torch.zeros(len(weight), 1)
        p = counts / counts.sum()
        q = .8 * counts ** .75 / (counts ** .75).sum() + .2 / len(counts)
        self.cumulative = np.cumsum(q)
        absent = BATCH * np.log1p(-p.clip(max=.999)) + NEGATIVES * np.log1p(-q)
        self.log_present = torch.tensor(np.log(-np.expm1(absent)), dtype=torch.float32)

    def take(self, batch):
        """-> (ids [rows], the batch in row numbers, their weights)."""
        negatives = np.searchsorted(self.cumulative, self.rng.random(NEGATIVES))
        negatives = negatives.clip(max=len(self.weight) - 1)
        ids, inverse = np.unique(np.concatenate([batch.ravel(), negatives]), return_inverse=True)
        inverse = inverse[:batch.size].reshape(batch.shape).copy()
        self.ids = torch.from_numpy(ids)
        self.part = self.weight[self.ids].requires_grad_(True)
        return self.ids, torch.from_numpy(inverse), self.part

    @torch.no_grad()
    def step(self, rate):
        i, g = self.ids, self.part.grad
        self.steps[i] += 1
        self.mean[i] = self.mean[i].lerp(g, .1)
        self.square[i] = self.square[i].lerp(g * g, .02)
        mean = self.mean[i] / (1 - .9 ** self.steps[i])
        deviation = (self.square[i] / (1 - .98 ** self.steps[i])).sqrt()
        self.weight[i] = self.part.detach() - rate * mean / (deviation + 1e-8)


class Run:
    """Steps, learning rate, log and checkpoints of one stage."""

    def __init__(self, args, weights):
        self.name, self.work, self.weights, self.rate = args.stage, args.work, weights, args.rate
        self.batch = BLOCK_BATCH if args.stage == "block" else BATCH
        self.n_steps = max(1, int((args.tokens or TOKENS[args.stage]) / self.batch))
        self.log = open(os.path.join(args.work, args.stage + ".log"), "w")
        matrices, rest = split_weights(weights)
        self.muon = Muon(matrices)
        self.adam = torch.optim.Adam(rest, betas=(.9, .95))

    def steps(self):
        """Yields (step, tokens of a window, rate: rises over 50 steps, falls linearly to 0)."""
        self.start = time.time()
        for step in range(self.n_steps):
            share = step / self.n_steps
            n = next(n for until, n in WINDOWS if share < until)
            yield step, n, self.rate * min(1, (step + 1) / 50) * (1 - share)

    def update(self, loss, rate):
        loss.backward()
        self.muon.step(.02 * rate)
        for group in self.adam.param_groups:
            group["lr"] = 2e-3 * rate
        self.adam.step()
        self.adam.zero_grad()

    def report(self, step, **figures):
        seen = (step + 1) * self.batch
        speed = seen / (time.time() - self.start)
        text = " ".join(f"{k} {v:.3f}" for k, v in figures.items())
        line = (f"step {step + 1}/{self.n_steps} tokens {seen / 1e6:.2f}M {text} "
                f"{speed:.0f} tokens/s")
        print(line, flush=True)
        print(line, file=self.log, flush=True)

    def save(self, **more):
        state = {"weights": {k: p.data for k, p in self.weights.items()}, **more}
        path = os.path.join(self.work, self.name + ".pt")
        torch.save(state, path + ".part")
        os.replace(path + ".part", path)


def held_out(work, n=256, per_domain=4):
    """The same few windows of each domain every time, i64 [windows, n + 1]."""
    ids = [np.load(os.path.join(work, d + ".heldout.npy"))[:per_domain * n + 1] for d in DOMAINS]
    return torch.from_numpy(np.stack([a[i * n:i * n + n + 1].astype(np.int64) for a in ids
                                      for i in range(per_domain) if len(a) > i * n + n]))


@torch.no_grad()
def held_out_loss(shape, weights, embedding, windows):
    """Mean loss over the whole vocabulary, in nats."""
    total = 0
    for part in windows.split(4):
        hidden = model.llama(shape, weights, F.embedding(part[:, :-1], embedding))
        logits = model.linear(hidden, embedding).float()
        loss = F.cross_entropy(logits.view(-1, shape.n_vocab), part[:, 1:].reshape(-1))
        total += loss.item() * len(part)
    return total / len(windows)


def train_llama(args):
    shape, windows = SHAPES[args.stage], Windows(args.work, seed=3 if args.init else 0)
    weights, embedding = model.llama_weights(shape), torch.randn(shape.n_vocab, shape.d) * .02
    if args.init:
        state = torch.load(args.init)
        weights = {k: torch.nn.Parameter(v) for k, v in state["weights"].items()}
        embedding = state["embedding"]
    rows = Rows(embedding, windows.counts(shape.n_vocab), seed=1)
    run, check = Run(args, weights), held_out(args.work)
    for step, n, rate in run.steps():
        ids, batch, part = rows.take(windows.batch(BATCH // n, n))
        hidden = model.llama(shape, weights, F.embedding(batch[:, :-1], part))
        logits = model.linear(hidden.view(-1, shape.d), part).float() - rows.log_present[ids]
        loss = F.cross_entropy(logits, batch[:, 1:].reshape(-1))
        run.update(loss, rate)
        rows.step(3e-3 * rate)
        if step % REPORT == REPORT - 1 or step == run.n_steps - 1:
            run.report(step, loss=loss.item(),
                       held_out=held_out_loss(shape, weights, rows.weight, check))
        if step % SAVE == SAVE - 1 or step == run.n_steps - 1:
            run.save(embedding=rows.weight, shape=vars(shape))


def target_of(work):
    """-> (weights, embedding) of the target that was trained here, else of the committed one."""
    path = os.path.join(work, "target.pt")
    if os.path.exists(path):
        state = torch.load(path)
        return state["weights"], state["embedding"]
    weights = exported_target(SAMPLE)
    return weights, weights["token_embd"]


def train_draft(args):
    """EAGLE-2's losses, features and distributions, over a few steps: each reads the features of the one
    before (HASS), and counts half as much."""
    shape, windows = SHAPES["target"], Windows(args.work, seed=4 if args.init else 2)
    target, embedding = target_of(args.work)
    weights = model.eagle_weights(shape)
    if args.init:
        begun = (exported_eagle(args.init) if args.init.endswith(".safetensors")
                 else torch.load(args.init)["weights"])
        weights = {k: torch.nn.Parameter(v) for k, v in begun.items()}
    often = np.argsort(-windows.counts(shape.n_vocab))[:NEGATIVES]
    run = Run(args, weights)
    for step, n, rate in run.steps():
        batch = torch.from_numpy(windows.batch(BATCH // n, n))
        ids = torch.from_numpy(np.union1d(batch.numpy().ravel(), often))
        head, read = embedding[ids], F.embedding(batch, embedding)
        with torch.no_grad():
            feature = model.llama(shape, target, read[:, :-1])
            wanted = model.linear(feature[:, 1:], head).float().softmax(-1)
        loss, given = 0, feature[:, :-1] + (torch.rand_like(feature[:, :-1]) - .5) * .1
        guesses, agree = [], {}
        for i in range(args.steps):
            guess = model.eagle(shape, weights, read[:, 1:-1], given)
            logprobs = model.linear(guess, head).float().log_softmax(-1)
            loss = loss + .5 ** i * (F.smooth_l1_loss(guess, feature[:, 1:]) -
                                     (wanted * logprobs).sum(-1).mean())
            given = torch.cat((feature[:, :1], guess[:, :-1].detach()), 1)
            right = (logprobs.argmax(-1) == wanted.argmax(-1)).float().mean().item()
            agree[f"agree{i + 1}"] = right
            guesses.append(guess)
        figures = {"loss": loss.item(), **agree}
        if args.csra > 0:
            aligned = model.cross_step_alignment(guesses, CSRA_TEMPERATURE)
            figures["csra"] = aligned.item()
            loss = loss + args.csra * aligned
        run.update(loss, rate)
        if step % REPORT == REPORT - 1 or step == run.n_steps - 1:
            run.report(step, **figures)
        if step % SAVE == SAVE - 1 or step == run.n_steps - 1:
            run.save(shape=vars(shape))


def exported_target(path):
    """The weights of sample/target.gguf, by sample_model's names."""
    return {t.name.removesuffix(".weight"): torch.from_numpy(np.array(dequantize(t.data, t.tensor_type)))
            for t in GGUFReader(path).tensors}


def train_mtp(args):
    """Four drafted steps of one module, each reading the one before, over the committed target's states."""
    seed = 6 if args.init else 5
    shape, windows, rng = SHAPES["target"], Windows(args.work, seed), np.random.default_rng(seed)
    target = exported_target(SAMPLE)
    embedding = target["token_embd"]
    often = np.argsort(-windows.counts(shape.n_vocab))[:NEGATIVES]
    states = lambda batch: model.llama(shape, target, F.embedding(batch[:, :-1], embedding))
    with torch.no_grad():
        scale = heads.scale_of(states(torch.from_numpy(windows.batch(8, 256))))
    head = heads.Mtp(shape, embedding, heads.scale_of(embedding), scale, 1.0)
    head.fit_eagle(exported_eagle(os.path.join(HERE, "sample", "draft.safetensors")))
    if args.init:
        head.w = {k: torch.nn.Parameter(v) for k, v in torch.load(args.init)["weights"].items()}
    run = Run(args, head.w)
    for step, n, rate in run.steps():
        ids = torch.from_numpy(windows.batch(BATCH // n, n))
        with torch.no_grad():
            known = F.pad(states(ids), (0, 0, 0, 1))
        whole = torch.ones(len(ids), dtype=torch.long), torch.full((len(ids),), n + 1)
        scored = heads.rows_to_score(ids, often, shape.n_vocab, rng)
        loss, agree = heads.rollout_loss(head, (ids, known, known, *whole), scored, head.ROLLOUT)
        run.update(loss, rate)
        if step % REPORT == REPORT - 1 or step == run.n_steps - 1:
            run.report(step, loss=loss.item(), **{f"agree{i + 1}": a for i, a in enumerate(agree)})
            run.save(exported=head.exported(), shape=vars(shape))


def write_answers(args):
    """The target's own answers to the questions and passages of data/corpus, with its states and taps."""
    target = writer.Target(SAMPLE, shape=SHAPES["target"], taps=SampleBlock.taps)
    rng = np.random.default_rng(7)
    asked = prompts(os.path.join(HERE, "corpus"), os.path.join(HERE, "tokenizer.json"), rng)
    asked = [asked[i] for i in rng.permutation(len(asked))]
    for batch, at in enumerate(range(0, N_ANSWERS, SIDE)):
        name = "check" if batch % HELD_OUT == HELD_OUT - 1 else "answers"
        path, chosen = os.path.join(args.work, f"{name}-{batch:03d}.npz"), asked[at:at + SIDE]
        if os.path.exists(path):
            continue
        warm = torch.tensor([TEMPERATURES[i % len(TEMPERATURES)] for i in range(len(chosen))])
        made = writer.answer(target, 1, chosen, N_ANSWER, warm * (name == "answers"), END,
                             torch.Generator().manual_seed(batch))
        heads.save_batch(path, writer.read(target, 1, [ids for ids, _ in made]), list(map(len, chosen)))
        print(f"{path}: {sum(len(i) - len(p) for (i, _), p in zip(made, chosen))} tokens", flush=True)


def train_block(args):
    """A block drafter of two layers over the target's own answers."""
    answers = lambda name: heads.Answers(sorted(glob.glob(os.path.join(args.work, name + "-*.npz"))), "taps")
    made, held = answers("answers"), answers("check")
    head = SampleBlock.begin(SHAPES["target"], exported_target(SAMPLE), made)
    if args.init:
        head.w = {k: torch.nn.Parameter(v) for k, v in torch.load(args.init)["weights"].items()}
    rng, queue = np.random.default_rng(9 if args.init else 8), []
    often = np.argsort(-made.counts(N_VOCAB), kind="stable")[:NEGATIVES]
    run = Run(args, head.w)
    for step, _, rate in run.steps():
        queue = queue or made.batches(run.batch, rng)
        loss, right = block.loss(head, made.batch(queue.pop()), often, rng)
        run.update(loss, rate)
        last = step == run.n_steps - 1
        if step % REPORT == REPORT - 1 or last:
            saves = step % SAVE == SAVE - 1 or last
            figures = {"accept": block.accept_length(head, held)} if saves else {}
            run.report(step, loss=loss.item(), cpu=time.process_time(),
                       **{f"right{i + 1}": r for i, r in enumerate(right)}, **figures)
            if saves:
                run.save(exported=head.exported(), config=head.config())


@torch.no_grad()
def check(args):
    """Teacher forced: both models read the reference text."""
    shape = SHAPES["target"]
    target = torch.load(os.path.join(args.work, "target.pt"))
    draft = torch.load(os.path.join(args.work, "draft.pt"))["weights"]
    embedding = target["embedding"]
    for domain in DOMAINS:
        ids = np.load(os.path.join(args.work, domain + ".heldout.npy")).astype(np.int64)
        batch = torch.from_numpy(ids[:len(ids) // 257 * 257].reshape(-1, 257)[:24])
        read = F.embedding(batch, embedding)
        feature = model.llama(shape, target["weights"], read[:, :-1])
        logits = model.linear(feature, embedding).float()
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).item()
        guess = model.eagle(shape, draft, read[:, 1:-1], feature[:, :-1])
        best = model.linear(guess, embedding).float().topk(10).indices
        hits = best == logits[:, 1:].argmax(-1, keepdim=True)
        first, ten = hits[..., 0].float().mean(), hits.any(-1).float().mean()
        print(f"{domain:10} tokens {batch[:, 1:].numel()} loss {loss:.2f} "
              f"first {first:.3f} top ten {ten:.3f}")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stage", choices=("tokens", "target", "small", "draft", "mtp", "answers", "block", "check"))
    p.add_argument("--text", default=os.path.join(HERE, "..", "build", "text"))
    p.add_argument("--work", default=os.path.join(HERE, "..", "build", "sample"))
    p.add_argument("--tokens", type=float)
    p.add_argument("--init")
    p.add_argument("--rate", type=float, default=1.0)
    p.add_argument("--steps", type=int, default=2)
    p.add_argument("--csra", type=float, default=0.0)
    p.add_argument("--f32", action="store_true")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    args = p.parse_args()
    if args.stage == "tokens":
        return tokens(args.text, os.path.join(HERE, "tokenizer.json"), args.work)
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    if args.f32:
        model.PRODUCTS = torch.float32
    {"draft": train_draft, "mtp": train_mtp, "answers": write_answers, "block": train_block,
     "check": check}.get(args.stage, train_llama)(args)


if __name__ == "__main__":
    sys.exit(main())
