"""The EAGLE-2 head of SmolLM2 and its training. Inside, embeddings and states are divided by their
root mean square, so that every weight begins and is updated at one scale; `exported` undoes it."""
import glob
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

import sample_model as model

N_OFTEN, N_RANDOM = 3072, 512  # rows of the head in a training step beside the batch's own tokens
NOISE = .1          # of a state, uniform, either way (EAGLE)
ROLLOUT = (1, .8, .6)  # weights of the drafted steps in phase 2
REGRESSION = .5     # weight of the states' loss beside the distributions'


class Answers:
    """What the target wrote, with its states: sequences in the order of their lengths."""

    def __init__(self, paths):
        self.ids, self.states, self.starts = [], [], []
        for path in paths:
            made = np.load(path)
            ends = np.cumsum(made["lengths"])
            states = torch.from_numpy(made["states"])
            for i, (n, end, start) in enumerate(zip(made["lengths"], ends, made["starts"])):
                self.ids.append(torch.from_numpy(made["ids"][end - n:end].astype(np.int64)))
                self.states.append(states[end - n - i:end - i - 1])
                self.starts.append(int(start))

    def n_tokens(self):
        return sum(len(ids) - start for ids, start in zip(self.ids, self.starts))

    def counts(self, n_vocab):
        return np.bincount(torch.cat(self.ids).numpy(), minlength=n_vocab)

    def batches(self, n_tokens, rng):
        """Lists of sequences of like lengths, in random order, of about so many tokens each."""
        order = sorted(range(len(self.ids)), key=lambda i: len(self.ids[i]) + rng.random() * 40)
        made, longest = [[]], 0
        for i in order:
            longest = max(longest, len(self.ids[i]))
            if len(made[-1]) * longest >= n_tokens:
                made.append([])
                longest = len(self.ids[i])
            made[-1].append(i)
        return [made[i] for i in rng.permutation(len(made))]

    def batch(self, chosen):
        """-> ids i64 [batch, n], states f32 [batch, n, d], starts, lengths; padded at the end."""
        pad = torch.nn.utils.rnn.pad_sequence
        ids, states = pad([self.ids[i] for i in chosen], True), pad([self.states[i] for i in chosen], True)
        return (ids, F.pad(states.float(), (0, 0, 0, 1)), torch.tensor([self.starts[i] for i in chosen]),
                torch.tensor([len(self.ids[i]) for i in chosen]))


class Head:
    """w: weights by sample_model's names, over values divided by `e_scale` and `scale`."""

    def __init__(self, shape, embedding, e_scale, scale, weights=None):
        self.s, self.embedding, self.e_scale, self.scale = shape, embedding, e_scale, scale
        self.w = weights or self.begin()

    def begin(self):
        w = model.eagle_weights(self.s)
        with torch.no_grad():
            for name in ("attn_output", "ffn_down"):
                w[name] *= .2
        return w

    @torch.no_grad()
    def fit(self, answers, n=60):
        """fc begins as the linear regression of the next state on its inputs."""
        d = self.s.d
        gram, cross = torch.zeros(2 * d + 1, 2 * d + 1), torch.zeros(2 * d + 1, d)
        for ids, states in list(zip(answers.ids, answers.states))[::max(1, len(answers.ids) // n)]:
            read = F.embedding(ids[1:len(states)], self.embedding) / self.e_scale
            known = states.float() / self.scale
            x = torch.cat((read, known[:-1], torch.ones(len(read), 1)), 1)
            gram, cross = gram + x.T @ x, cross + x.T @ known[1:]
        gram += torch.eye(2 * d + 1) * gram.diagonal().mean() * .02
        solved = torch.linalg.solve(gram, cross)
        self.w["fc"].copy_(solved[:-1].T)
        self.w["fc_bias"].copy_(solved[-1])

    def project(self, x, name, n_heads):
        return model.linear(x, self.w[name]).float().view(*x.shape[:2], n_heads, self.s.n_rot)

    def attend(self, x, step, past):
        """Row t of drafted step j reads the rows up to t of the first step, whose features are the
        target's, and its own of the steps since: what it reads when it drafts (as HASS, Zhang et al.
        2024, and EAGLE-3's training-time test, Li et al. 2025)."""
        s, (batch, n, _) = self.s, x.shape
        turn = lambda name, heads: model.rope(self.project(x, name, heads), False, s.rope_base, step)
        q = turn("attn_q", s.n_heads).transpose(1, 2) / math.sqrt(s.n_rot)
        group = lambda y: y.transpose(1, 2).repeat_interleave(s.n_heads // s.n_kv, 1)
        past.append((group(turn("attn_k", s.n_kv)), group(self.project(x, "attn_v", s.n_kv))))
        keys, values = past[0]
        scores = (q.bfloat16() @ keys.bfloat16().transpose(-1, -2)).float() + model.causal_mask(n)
        own = [(q * k).sum(-1, keepdim=True) for k, _ in past[1:]]
        weights = torch.cat([scores, *own], -1).softmax(-1)
        mixed = (weights[..., :n].bfloat16() @ values.bfloat16()).float()
        for i, (_, v) in enumerate(past[1:]):
            mixed = mixed + weights[..., n + i, None] * v
        return model.linear(mixed.transpose(1, 2).reshape(batch, n, s.d), self.w["attn_output"]).float()

    def step(self, ids, feature, step, past):
        """ids of the tokens after `feature`'s -> the next feature, f32 [batch, n, d]."""
        w, read = self.w, F.embedding(ids, self.embedding) / self.e_scale
        x = model.linear(torch.cat((read, feature), -1), w["fc"]).float() + w["fc_bias"]
        x = x + self.attend(x, step, past)
        h = model.rms(x, w["ffn_norm"])
        gate, up = model.linear(h, w["ffn_gate"]), model.linear(h, w["ffn_up"])
        return x + model.linear(F.silu(gate.float()) * up, w["ffn_down"]).float()

    def exported(self):
        """The weights over values as they are."""
        w = {name: p.detach().clone() for name, p in self.w.items()}
        d = self.s.d
        w["fc"][:, :d] *= self.scale / self.e_scale
        for name in ("fc_bias", "attn_output", "ffn_down"):
            w[name] *= self.scale
        for name in ("attn_q", "attn_k", "attn_v"):
            w[name] /= self.scale
        return w


def drafted(starts, lengths, n, step):
    """Which of n rows draft in an answer, and what they draft is known; bool [batch, n]."""
    row = torch.arange(n)
    return (row >= starts[:, None] - 1) & (row + step + 3 <= lengths[:, None])


def rollout(head, ids, states, starts, lengths, n_steps, noise=0):
    """Yields (mask of the rows drafted, their guesses, the states to guess), a step after the other."""
    n, feature, past = ids.shape[1] - 2, states[:, :-2], []
    feature = feature + (torch.rand_like(feature) * 2 - 1) * noise if noise else feature
    padded_ids, padded_states = F.pad(ids, (0, n_steps)), F.pad(states, (0, 0, 0, n_steps))
    for step in range(n_steps):
        guess = head.step(padded_ids[:, 1 + step:1 + step + n], feature, step, past)
        rows = drafted(starts, lengths, n, step)
        yield rows, guess[rows], padded_states[:, 1 + step:1 + step + n][rows]
        feature = guess


def losses(head, rows_of_head, guess, wanted):
    """-> (loss; the share of rows whose best token is the target's), over these rows of the head."""
    head_rows = (head.embedding[rows_of_head] * head.scale).bfloat16()
    with torch.no_grad():
        law = F.linear(wanted.bfloat16(), head_rows).float().softmax(-1)
    logits = F.linear(guess.bfloat16(), head_rows).float()
    loss = F.cross_entropy(logits, law) + REGRESSION * F.smooth_l1_loss(guess, wanted)
    return loss, (logits.argmax(-1) == law.argmax(-1)).float().mean().item()


def rows_to_score(ids, often, n_vocab, rng):
    return torch.from_numpy(np.unique(np.concatenate(
        [often, ids.numpy().ravel(), rng.integers(n_vocab, size=N_RANDOM)])))


def scale_of(values):
    return values.float().pow(2).mean().sqrt().item()


@torch.no_grad()
def agreement(head, answers, n_steps=4, limit=96):
    """Teacher forced, over the whole vocabulary: the share of first guesses that are right, and the
    mean number of tokens of a cycle that would begin at any row."""
    run = right = total = 0
    rng = np.random.default_rng(0)
    for chosen in answers.batches(4096, rng)[:max(1, limit // 16)]:
        ids, states, starts, lengths = answers.batch(chosen)
        kept = None
        for step, (rows, guess, wanted) in enumerate(
                rollout(head, ids, states / head.scale, starts, lengths, n_steps)):
            full = (head.embedding * head.scale).bfloat16()
            best = lambda x: F.linear(x.bfloat16(), full).argmax(-1)
            hits = torch.zeros(rows.shape, dtype=torch.bool)
            hits[rows] = best(guess) == best(wanted)
            kept = hits if kept is None else kept & hits
            if step == 0:
                total += rows.sum().item()
                right += hits.sum().item()
            run += kept.sum().item()
    return right / total, 1 + run / total
