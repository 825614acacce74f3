#!/usr/bin/env python3
"""Trains data/smollm2: drafters for SmolLM2-135M-Instruct, on what the model itself answers.

usage: data/train_smollm2.py prompts|answers|read|taps|text|draft|check|export [--wildchat FILE]
           [--sharegpt FILE] [--data read,answers] [--exclude FILE...] [--model FILE] [--work DIR] [--shared DIR]
           [--batches N] [--part N/M] [--held-out] [--tokens N] [--rate X] [--phase 1|2]
           [--head eagle2|eagle3|mtp|block] [--init FILE] [--threads N] [--f32] [-o DIR]

Stages in that order. `prompts` takes what users asked (WildChat, ShareGPT), keeps 150 of WildChat
for evaluation (WORK/held-out.jsonl) and drops what shares 13 words in a row with an evaluation set.
`answers` lets the model answer, half of them greedily and half at temperature 0.8, and keeps the
hidden states (--part 1/2 and 2/2 may run side by side); --held-out, greedily, the prompts kept out.
`read` lets it read what others answered (ShareGPT), which takes a quarter of the time a token, and keeps
the layers that an EAGLE-3 head reads; `taps` adds these to the answers.
`text` writes WORK/trained.jsonl, prompts and answers, to compare with evaluation sets.
`draft` sees N tokens of the answers' first --batches; phase 2 over three drafted steps, of an MTP module four. It
begins as the EAGLE-2 head in data/smollm2, so phase 2 is all that it needs, and a block drafter has one phase.
`check` reads
answers to the held-out prompts. --f32 multiplies in f32, much faster on a processor without bfloat16. data/smollm2.md has
the commands that made the committed heads."""
import argparse
import glob
import json
import os
import sys
import time

import numpy as np
import torch

import block_draft as block
import sample_model
import smollm2_draft as draft
import smollm2_target as target
import smollm2_text as text
from export_sample import (EAGLE3_NAMES, EAGLE_NAMES, MTP_NAMES, eagle_config, exported_eagle,
                           write_block, write_head)
from train_sample import Muon, exported_target, split_weights

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH = 96             # answers written side by side
N_ANSWER = 160         # tokens of one
READ_BATCH, READ_SIDE = 64, 8  # answers of others in a file; read side by side
TEMPERATURES = (0, .8)  # by turns
BATCH_TOKENS = 5000    # of a training step, padding and prompts counted
MUON_RATE, ADAM_RATE = .02, 2e-3
REPORT = 2             # steps


def prompts(args):
    wild, held_out = text.wildchat(args.wildchat)
    text.write(os.path.join(args.work, "held-out.jsonl"), held_out, "wildchat")
    sets = text.evaluation_sets(args.shared, os.path.join(args.work, "held-out.jsonl"), args.exclude)
    evaluation = text.Evaluation(sets)
    for name, found in (("wildchat", wild), ("sharegpt", text.sharegpt(args.sharegpt))):
        kept = [p for p in found if not evaluation.holds(p)]
        text.write(os.path.join(args.work, f"train-{name}.jsonl"), kept, name)
        print(f"{name}: {len(found)} prompts, {len(found) - len(kept)} dropped, which share 13 words "
              f"in a row with an evaluation set")
    print(f"held out: {len(held_out)} of wildchat; evaluation sets: {', '.join(sets)}")


def answers(args):
    model, encode = target.Target(args.model), text.Encoder(args.encoder, args.model)
    names = ("held-out",) if args.held_out else ("train-wildchat", "train-sharegpt")
    asked = text.read([os.path.join(args.work, n + ".jsonl") for n in names])
    prefix, conversations = text.conversations(encode, asked)
    part, n_parts = map(int, args.part.split("/"))
    for batch, chosen in enumerate(text.batches(conversations, BATCH)[:args.batches]):
        path = os.path.join(args.work, f"{'check' if args.held_out else 'answers'}-{batch:03d}.npz")
        if batch % n_parts != part - 1 or os.path.exists(path):
            continue
        warm = torch.tensor([TEMPERATURES[i % 2] for i in range(len(chosen))])
        made = target.answer(model, prefix, chosen, N_ANSWER, warm * (not args.held_out), text.END,
                             torch.Generator().manual_seed(batch))
        draft.save_batch(path, made, [len(p) for p in chosen])
        print(f"{path}: {sum(len(i) - len(p) for (i, _), p in zip(made, chosen))} tokens", flush=True)


def read(args):
    """Others' answers, read by the model, in batches of like lengths."""
    model, encode = target.Target(args.model), text.Encoder(args.encoder, args.model)
    sets = text.evaluation_sets(args.shared, os.path.join(args.work, "held-out.jsonl"), args.exclude)
    evaluation = text.Evaluation(sets)
    pairs = [p for p in text.sharegpt_answers(args.sharegpt) if not evaluation.holds("\n".join(p))]
    prefix, written, starts = text.exchanges(encode, pairs)
    print(f"{len(pairs)} answers of others, {sum(map(len, written))} tokens with prompts", flush=True)
    lengths = [len(ids) for ids in written]
    part, n_parts = map(int, args.part.split("/"))
    for batch, chosen in enumerate(text.batches(np.arange(len(written)), READ_BATCH, lengths.__getitem__)):
        path = os.path.join(args.work, f"read-{batch:03d}.npz")
        if batch >= (args.batches or batch + 1):
            break
        if batch % n_parts != part - 1 or os.path.exists(path):
            continue
        draft.save_batch(path, [row for at in range(0, len(chosen), READ_SIDE)
                          for row in target.read(model, prefix, [written[i] for i in chosen[at:at + READ_SIDE]])],
                   [starts[i] for i in chosen])
        print(f"{path}: {sum(lengths[i] for i in chosen)} tokens", flush=True)


def taps(args):
    """Answers, read again for the layers that they lack."""
    model = target.Target(args.model)
    for path in sorted(glob.glob(os.path.join(args.work, "answers-*.npz"))
                       + glob.glob(os.path.join(args.work, "check-*.npz"))):
        old = np.load(path)
        if "taps" in old:
            continue
        written = np.split(old["ids"], np.cumsum(old["lengths"])[:-1])
        prefix = int(next(i for i, column in enumerate(zip(*written)) if len(set(column)) > 1))
        made = [row for at in range(0, len(written), READ_SIDE)
                for row in target.read(model, prefix, written[at:at + READ_SIDE])]
        draft.save_batch(path, made, old["starts"])
        print(f"{path}: {sum(map(len, written))} tokens", flush=True)


def log(args, line):
    print(line, flush=True)
    with open(os.path.join(args.work, FILES[args.head] + ".log"), "a", encoding="utf-8") as f:
        print(line, file=f)


def load_answers(args, *names):
    paths = [p for name in names for p in sorted(glob.glob(os.path.join(args.work, name + "-*.npz")))]
    return draft.Answers(paths[:args.batches], HEADS[args.head].KNOWN)


def trained(args):
    """What may be compared with the evaluation sets."""
    made, decode = load_answers(args, "answers", "read"), text.Decoder(args.model)
    path = os.path.join(args.work, "trained.jsonl")
    with open(path + ".part", "w", encoding="utf-8") as f:
        for ids, start in zip(made.ids, made.starts):
            row = {"prompt": decode(ids[:start].tolist()), "answer": decode(ids[start:].tolist())}
            f.write(json.dumps(row) + "\n")
    os.replace(path + ".part", path)


class Block(block.Block):
    taps, mask, rank = target.TAPS, 4, 32  # mask: <reponame>, which no text has


HEADS = {"eagle2": draft.Head, "eagle3": draft.Head3, "mtp": draft.Mtp, "block": Block}
FILES = {"eagle2": "draft", "eagle3": "draft3", "mtp": "mtp", "block": "block"}  # in WORK
FOLDERS = {"eagle2": "smollm2", "eagle3": "smollm2-eagle3", "mtp": "smollm2-mtp",
           "block": "smollm2-block"}
NAMES = {"eagle2": EAGLE_NAMES, "eagle3": EAGLE3_NAMES, "mtp": MTP_NAMES}
SCALES = "e_scale", "scale", "known_scale"  # of a head, kept beside its weights


def path_of_head(args):
    return args.init or os.path.join(args.work, f"{FILES[args.head]}-{args.phase}.pt")


def new_head(args, embedding, made):
    if args.init:
        return load_head(args, embedding)
    if args.head == "block":
        return Block.begin(target.SHAPE, exported_target(args.model), made)
    states, known = (torch.cat([r[1:] for r in rows[:64]]) for rows in (made.states, made.known))
    kind, scale = HEADS[args.head], draft.scale_of(states)
    head = kind(target.SHAPE, embedding, draft.scale_of(embedding), scale, kind.scale_of_known(known, scale))
    if args.head == "mtp":
        head.fit_eagle(exported_eagle(os.path.join(HERE, "smollm2", "draft.safetensors")))
    else:
        head.fit(made)
    return head


def load_head(args, embedding):
    state = torch.load(path_of_head(args))
    weights = {k: torch.nn.Parameter(v) for k, v in state["weights"].items()}
    return HEADS[args.head](target.SHAPE, embedding, *(state[k] for k in SCALES), weights)


def save_head(head, path):
    torch.save({"weights": {k: p.data for k, p in head.w.items()}, **{k: getattr(head, k) for k in SCALES}},
               path + ".part")
    os.replace(path + ".part", path)


def train_step(head, made, chosen, often, phase, rng):
    """Gradients of one batch -> the share of best tokens guessed at each drafted step, tokens drafted."""
    batch = made.batch(chosen)
    if isinstance(head, Block):
        loss, shares = block.loss(head, batch, often, rng)
        loss.backward()
        return loss.item(), shares, int((batch[4] - batch[3]).sum())
    scored = draft.rows_to_score(batch[0], often, target.SHAPE.n_vocab, rng)
    loss, shares = draft.rollout_loss(head, batch, scored, head.ROLLOUT if phase == 2 else (1,))
    loss.backward()
    return loss.item(), shares, int(draft.drafted(*batch[3:], batch[0].shape[1] - 2, 0).sum())


class Optimizer:
    """Muon for matrices, Adam for the rest; the rate rises over 3 steps and falls linearly to 0."""

    def __init__(self, weights, rate):
        self.rate = rate
        matrices, rest = split_weights(weights)
        self.muon = Muon(matrices)
        self.adam = torch.optim.Adam(rest, betas=(.9, .95))

    def step(self, number, share):
        rate = self.rate * min(1, (number + 1) / 3) * max(0, 1 - share)
        self.muon.step(MUON_RATE * rate)
        for group in self.adam.param_groups:
            group["lr"] = ADAM_RATE * rate
        self.adam.step()
        self.adam.zero_grad()


def train(args):
    made, model = load_answers(args, *args.data.split(",")), target.Target(args.model, layers=False)
    head, rng = new_head(args, model.embedding, made), np.random.default_rng(args.phase)
    often = np.argsort(-made.counts(target.SHAPE.n_vocab), kind="stable")[:draft.N_OFTEN]
    optimizer, seen, number, queue = Optimizer(head.w, args.rate), 0, 0, []
    log(args, f"phase {args.phase}: {len(made.ids)} answers of {made.n_tokens()} tokens, "
              f"to see {args.tokens:.0f} at rate {args.rate}{' from ' + args.init if args.init else ''}")
    began = time.process_time()
    while seen < args.tokens:
        queue = queue or made.batches(BATCH_TOKENS, rng)
        loss, shares, n = train_step(head, made, queue.pop(), often, args.phase, rng)
        optimizer.step(number, seen / args.tokens)
        seen, number = seen + n, number + 1
        if number % REPORT == 0 or seen >= args.tokens:
            log(args, f"step {number} tokens {seen} loss {loss:.3f} agree "
                      f"{' '.join(f'{s:.3f}' for s in shares)} cpu {time.process_time() - began:.0f} s")
            save_head(head, os.path.join(args.work, f"{FILES[args.head]}-{args.phase}.pt"))


def check(args):
    made, model = load_answers(args, "check"), target.Target(args.model, layers=False)
    if args.head == "block":
        accepted = block.accept_length(load_head(args, model.embedding), made)
        return log(args, f"check {os.path.basename(path_of_head(args))}: {len(made.ids)} answers to held-out prompts: "
                         f"accept length {accepted:.2f} of blocks at random places")
    first, accepted = draft.agreement(load_head(args, model.embedding), made)
    log(args, f"check {os.path.basename(path_of_head(args))}: {len(made.ids)} answers to held-out prompts: first guess "
              f"{first:.3f}, accept length of a chain of 4 from any token {accepted:.2f}")


def export(args):
    head = load_head(args, target.Target(args.model, layers=False).embedding)
    weights = head.exported()
    if args.head == "block":
        return write_block(weights, head.config(), args.folder)
    os.makedirs(args.folder, exist_ok=True)
    config = eagle_config(vars(target.SHAPE))
    if args.head == "eagle3":
        config["architectures"] = ["LlamaForCausalLMEagle3"]
    write_head(weights, NAMES[args.head], os.path.join(args.folder, "draft.safetensors"))
    with open(os.path.join(args.folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


STAGES = {"prompts": prompts, "answers": answers, "read": read, "taps": taps, "text": trained, "draft": train, "check": check,
          "export": export}


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.join(HERE, "..")
    models = os.path.join(root, "build", "models")
    p.add_argument("stage", choices=STAGES)
    p.add_argument("--wildchat", default=os.path.join(models, "wildchat.json"))
    p.add_argument("--sharegpt", default=os.path.join(models, "sharegpt.json"))
    p.add_argument("--exclude", nargs="*", default=[os.path.join(models, "prompts.jsonl")])
    p.add_argument("--model", default=os.path.join(models, "smollm2.gguf"))
    p.add_argument("--encoder", default=os.path.join(root, "build", "tests", "encode"))
    p.add_argument("--work", default=os.path.join(root, "build", "smollm2"))
    p.add_argument("--shared", default=os.path.join(root, "..", "shared"))
    p.add_argument("--batches", type=int)
    p.add_argument("--part", default="1/1")
    p.add_argument("--data", default="read,answers")
    p.add_argument("--held-out", action="store_true")
    p.add_argument("--tokens", type=float, default=3e5)
    p.add_argument("--rate", type=float, default=1.0)
    p.add_argument("--phase", type=int, choices=(1, 2), default=1)
    p.add_argument("--head", choices=HEADS, default="eagle2")
    p.add_argument("--init")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("-o", dest="folder")
    p.add_argument("--f32", action="store_true")
    args = p.parse_args()
    if args.f32:
        sample_model.PRODUCTS = torch.float32
    args.folder = args.folder or os.path.join(HERE, FOLDERS[args.head])
    os.makedirs(args.work, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    STAGES[args.stage](args)


if __name__ == "__main__":
    sys.exit(main())
