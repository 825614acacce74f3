"""The EAGLE heads of SmolLM2 and their training, and what a target wrote, which they read. Inside, embeddings, states and taps are divided by their
root mean square, so that every weight begins and is updated at one scale; `exported` undoes it."""
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

import sample_model as model

N_OFTEN, N_RANDOM = 3072, 512  # rows of the head in a training step beside the batch's own tokens
REGRESSION = .5     # weight of the states' loss beside the distributions'


def save_batch(path, answers, starts):
    """ids i32, states f16 and taps of all answers, one after the other; where each begins in its sequence."""
    ids, *rows = zip(*answers)
    with open(path + ".part", "wb") as f:
        np.savez(f, ids=np.concatenate(ids), lengths=np.array([len(i) for i in ids]),
                 starts=np.array(starts), **{n: np.concatenate(r) for n, r in zip(("states", "taps"), rows)})
    os.replace(path + ".part", path)


class Answers:
    """What the target wrote or read: sequences, its states, and `known` of it, states or taps, which a
    head reads."""

    def __init__(self, paths, known="states"):
        self.ids, self.states, self.known, self.starts = [], [], [], []
        for path in paths:
            made = np.load(path)
            ends = np.cumsum(made["lengths"])
            states = torch.from_numpy(made["states"])
            of = states if known == "states" else torch.from_numpy(made[known])
            for i, (n, end, start) in enumerate(zip(made["lengths"], ends, made["starts"])):
                self.ids.append(torch.from_numpy(made["ids"][end - n:end].astype(np.int64)))
                self.states.append(states[end - n - i:end - i - 1])
                self.known.append(of[end - n - i:end - i - 1])
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
        """-> ids i64 [batch, n], states and what is known f32 [batch, n, width], starts, lengths; padded at
        the end."""
        pad = lambda rows: torch.nn.utils.rnn.pad_sequence([rows[i] for i in chosen], True)
        states, known = (F.pad(pad(rows).float(), (0, 0, 0, 1)) for rows in (self.states, self.known))
        return (pad(self.ids), states, known, torch.tensor([self.starts[i] for i in chosen]),
                torch.tensor([len(self.ids[i]) for i in chosen]))


def regression(pairs):
    """x [n, a] and y [n, b], in parts -> the [a, b] that gives y of x, with some damping."""
    gram = cross = 0
    for x, y in pairs:
        gram, cross = gram + x.T @ x, cross + x.T @ y
    gram += torch.eye(len(gram)) * gram.diagonal().mean() * .02
    return torch.linalg.solve(gram, cross)


class Head:
    """EAGLE-2. w: weights by sample_model's names, over values divided by `e_scale`, `scale` and
    `known_scale` (the states', or a value for each column of the taps). The first position of a sequence is
    kept out of scales and regressions: its taps are hundreds of times the others'."""
    KNOWN, NOISE = "states", .1  # noise of a state, uniform, either way (EAGLE)
    ROLLOUT = (1, .8, .6)  # weights of the drafted steps in phase 2

    def __init__(self, shape, embedding, e_scale, scale, known_scale, weights=None):
        self.s, self.embedding, self.e_scale, self.scale = shape, embedding, e_scale, scale
        self.known_scale, self.w = known_scale, weights or self.begin()

    def begin(self):
        w = model.eagle_weights(self.s)
        with torch.no_grad():
            for name in ("attn_output", "ffn_down"):
                w[name] *= .2
        return w

    @staticmethod
    def scale_of_known(known, scale):
        return torch.tensor(scale)

    @torch.no_grad()
    def fit(self, answers, n=60):
        """fc begins as a linear regression, of n sequences."""
        sequences = list(zip(answers.ids, answers.states, answers.known))
        solved = regression(self.first_guess(ids, states.float() / self.scale, known.float())
                            for ids, states, known in sequences[::max(1, len(sequences) // n)])
        self.w["fc"].copy_(solved[:self.w["fc"].shape[1]].T)
        if "fc_bias" in self.w:
            self.w["fc_bias"].copy_(solved[-1])

    def first_guess(self, ids, states, _):
        """fc's inputs, and the next state."""
        read = F.embedding(ids[1:len(states)], self.embedding) / self.e_scale
        return torch.cat((read, states[:-1], torch.ones(len(read), 1)), 1), states[1:]

    def feature(self, known):
        """Of what the target gives, what the head goes on from."""
        return known / self.known_scale

    def guess(self, feature):
        """The target's state, as the head guesses it."""
        return feature

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
        scores = (q.to(model.PRODUCTS) @ keys.to(model.PRODUCTS).transpose(-1, -2)).float() + model.causal_mask(n)
        own = [(q * k).sum(-1, keepdim=True) for k, _ in past[1:]]
        weights = torch.cat([scores, *own], -1).softmax(-1)
        mixed = (weights[..., :n].to(model.PRODUCTS) @ values.to(model.PRODUCTS)).float()
        for i, (_, v) in enumerate(past[1:]):
            mixed = mixed + weights[..., n + i, None] * v
        return model.linear(mixed.transpose(1, 2).reshape(batch, n, s.d), self.w["attn_output"]).float()

    def step(self, ids, feature, step, past):
        """ids of the tokens after `feature`'s -> the next feature, f32 [batch, n, d]."""
        w, (x, read) = self.w, self.inputs(ids, feature)
        x = x + self.attend(read, step, past)
        h = model.rms(x, w["ffn_norm"])
        gate, up = model.linear(h, w["ffn_gate"]), model.linear(h, w["ffn_up"])
        return x + model.linear(F.silu(gate.float()) * up, w["ffn_down"]).float()

    def inputs(self, ids, feature):
        """The residual stream, and what attention reads."""
        read = F.embedding(ids, self.embedding) / self.e_scale
        x = model.linear(torch.cat((read, feature), -1), self.w["fc"]).float() + self.w["fc_bias"]
        return x, x

    def exported(self):
        """The weights over values as they are."""
        w = {name: p.detach().clone() for name, p in self.w.items()}
        w["fc"][:, :self.s.d] *= self.scale / self.e_scale
        for name in ("fc_bias", "attn_output", "ffn_down"):
            w[name] *= self.scale
        for name in ("attn_q", "attn_k", "attn_v"):
            w[name] /= self.scale
        return w


class Head3(Head):
    """EAGLE-3 (Li et al. 2025): reads three layers of the target, and its own residual stream from the
    second drafted token on. Its head is the target's, and the states' loss stays, of its normed output."""
    KNOWN, NOISE = "taps", 0

    @staticmethod
    def scale_of_known(known, scale):
        return known.float().pow(2).mean(0).sqrt()

    def begin(self):
        s = self.s
        w = super().begin()
        del w["fc_bias"]
        w["fc"] = model.matrix(s.d, 3 * s.d)
        for name, heads in (("attn_q", s.n_heads), ("attn_k", s.n_kv), ("attn_v", s.n_kv)):
            w[name] = model.matrix(heads * s.n_rot, 2 * s.d)
        for name in ("embedding_norm", "feature_norm", "final_norm"):
            w[name] = torch.nn.Parameter(torch.ones(s.d))
        return w

    def first_guess(self, ids, states, known):
        """fc's inputs, and the next state."""
        return known[1:-1] / self.known_scale, states[2:]

    def feature(self, known):
        return model.linear(known / self.known_scale, self.w["fc"]).float()

    def guess(self, feature):
        return model.rms(feature, self.w["final_norm"])

    def inputs(self, ids, feature):
        read = model.rms(F.embedding(ids, self.embedding), self.w["embedding_norm"])
        return feature, torch.cat((read, model.rms(feature, self.w["feature_norm"])), -1)

    def exported(self):
        w = {name: p.detach().clone() for name, p in self.w.items()}
        w["fc"] /= self.known_scale
        w["final_norm"] *= self.scale
        return w


class Mtp(Head):
    """Multi-token prediction, DeepSeek-V3's form (DeepSeek-AI 2024, arXiv 2412.19437) with the target's embedding
    and head: the embedding and the state, each through a norm of its own, side by side through `eh_proj`, one layer
    of the target's kind and a norm before the head. What the head reads is the next step's state, as Qwen3-Next's
    module has it, and one module serves every step (as FastMTP, Cai et al. 2025)."""
    NOISE, ROLLOUT = 0, (1, .8, .6, .4)

    @staticmethod
    def scale_of_known(known, scale):
        return 1.0  # its own norm divides

    def begin(self):
        s = self.s
        w = model.layer_weights(s, 1)
        w["eh_proj"] = model.matrix(s.d, 2 * s.d)
        for name in ("enorm", "hnorm", "final_norm"):
            w[name] = torch.nn.Parameter(torch.ones(s.d))
        return w

    @torch.no_grad()
    def fit_eagle(self, eagle):
        """Begins as an EAGLE-2 head (its exported weights), whose form this is but for the norms: they make
        everything one scale, which here stands in the matrices."""
        for name in ("attn_q", "attn_k", "attn_v"):
            self.w[name].copy_(eagle[name] * self.scale)
        for name in ("attn_output", "ffn_down"):
            self.w[name].copy_(eagle[name] / self.scale)
        for name in ("ffn_norm", "ffn_gate", "ffn_up"):
            self.w[name].copy_(eagle[name])
        self.w["eh_proj"].copy_(eagle["fc"])
        self.w["eh_proj"][:, :self.s.d] *= self.e_scale / self.scale

    def step(self, ids, feature, step, past):
        return model.rms(super().step(ids, feature, step, past), self.w["final_norm"])

    def inputs(self, ids, feature):
        w = self.w
        pair = model.rms(F.embedding(ids, self.embedding), w["enorm"]), model.rms(feature, w["hnorm"])
        x = model.linear(torch.cat(pair, -1), w["eh_proj"]).float()
        return x, model.rms(x, w["attn_norm"])

    def exported(self):
        w = {name: p.detach().clone() for name, p in self.w.items()}
        w["final_norm"] *= self.scale
        return w


def drafted(starts, lengths, n, step):
    """Which of n rows draft in an answer, and what they draft is known; bool [batch, n]."""
    row = torch.arange(n)
    return (row >= starts[:, None] - 1) & (row + step + 3 <= lengths[:, None])


def rollout(head, batch, n_steps, noise=0):
    """Yields (mask of the rows drafted, their guesses, the states to guess), a step after the other."""
    ids, states, known, starts, lengths = batch
    n, feature, past = ids.shape[1] - 2, head.feature(known[:, :-2]), []
    feature = feature + (torch.rand_like(feature) * 2 - 1) * noise if noise else feature
    padded_ids, padded_states = F.pad(ids, (0, n_steps)), F.pad(states / head.scale, (0, 0, 0, n_steps))
    for step in range(n_steps):
        feature = head.step(padded_ids[:, 1 + step:1 + step + n], feature, step, past)
        rows = drafted(starts, lengths, n, step)
        yield rows, head.guess(feature[rows]), padded_states[:, 1 + step:1 + step + n][rows]


def losses(head, rows_of_head, guess, wanted):
    """-> (loss; the share of rows whose best token is the target's), over these rows of the head."""
    head_rows = (head.embedding[rows_of_head] * head.scale).to(model.PRODUCTS)
    with torch.no_grad():
        law = model.linear(wanted, head_rows).float().softmax(-1)
    logits = model.linear(guess, head_rows).float()
    loss = F.cross_entropy(logits, law) + REGRESSION * F.smooth_l1_loss(guess, wanted)
    return loss, (logits.argmax(-1) == law.argmax(-1)).float().mean().item()


def rollout_loss(head, batch, rows_of_head, weights):
    """-> (the loss over drafted steps of these weights; the share of losses() at each)."""
    total, shares = 0, []
    steps = rollout(head, batch, len(weights), head.NOISE)
    for weight, (_, guess, wanted) in zip(weights, steps):
        loss, share = losses(head, rows_of_head, guess, wanted)
        total = total + weight * loss
        shares.append(share)
    return total / sum(weights), shares


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
        kept = None
        for step, (rows, guess, wanted) in enumerate(rollout(head, answers.batch(chosen), n_steps)):
            full = (head.embedding * head.scale).to(model.PRODUCTS)
            best = lambda x: model.linear(x, full).argmax(-1)
            hits = torch.zeros(rows.shape, dtype=torch.bool)
            hits[rows] = best(guess) == best(wanted)
            kept = hits if kept is None else kept & hits
            if step == 0:
                total += rows.sum().item()
                right += hits.sum().item()
            run += kept.sum().item()
    return right / total, 1 + run / total
