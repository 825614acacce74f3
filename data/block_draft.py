"""A DSpark block drafter and its training: DFlash (arXiv 2602.06036) with a vanilla Markov head and a confidence
head. Embeddings, states and taps are divided by their root mean square here, as in smollm2_draft.py; `exported`
undoes it."""
import math

import torch
import torch.nn.functional as F

import sample_model as model
from smollm2_draft import rows_to_score, scale_of

SIZE = 7       # positions of a block; the first has the text's last token, and every one drafts
N_ANCHORS = 24  # blocks of a sequence in a training step
DECAY = 4.0    # position i counts exp(-i / DECAY), as DFlash has it for blocks of 8
HARD = .5      # weight of the target's best token beside its distribution
CONFIDENCE = .1
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "q_norm": "self_attn.q_norm",
         "k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OTHERS = {"fc": "fc.weight", "hidden_norm": "hidden_norm.weight", "final_norm": "norm.weight",
          "markov_w1": "markov_head.markov_w1.weight", "markov_w2": "markov_head.markov_w2.weight",
          "confidence": "confidence_head.proj.weight", "confidence_bias": "confidence_head.proj.bias"}


def half_rotation(matrix, n_rot):
    """Rows of a projection that turns adjacent pairs, in the order that turns pairs half apart."""
    return matrix.view(-1, n_rot // 2, 2, matrix.shape[1]).transpose(1, 2).reshape(matrix.shape)


class Block:
    """A pair's class sets `taps`, the target's layers before which the drafter looks, `mask`, the token at the
    positions after the first, and the Markov head's `rank`. e_scale, scale: of embeddings and of the target's
    states; known_scale: of each column of the taps."""
    KNOWN = "taps"

    def __init__(self, shape, embedding, e_scale, scale, known_scale, weights):
        self.s, self.embedding, self.w = shape, embedding, weights
        self.e_scale, self.scale, self.known_scale = e_scale, scale, known_scale
        self.n_layers = sum(name.endswith("attn_q") for name in weights)

    @classmethod
    def begin(cls, shape, target, answers):
        """A drafter whose two layers begin as the last ones of the target, whose weights have GGUF's names. Norms
        are in the matrices, and fc passes on the last tap. Scales are those of the first answers."""
        first = lambda rows: torch.cat([r[1:] for r in rows[:64]]).float()
        known_scale, embedding = first(answers.known).pow(2).mean(0).sqrt(), target["token_embd"]
        d, n_vocab, n_taps, rank = shape.d, shape.n_vocab, len(cls.taps), cls.rank
        w = {"fc": model.matrix(d, n_taps * d, .1), "markov_w1": torch.randn(n_vocab, rank) * .3,
             "markov_w2": torch.zeros(n_vocab, rank), "confidence": torch.zeros(1, d + rank),
             "confidence_bias": torch.zeros(1)}
        with torch.no_grad():
            w["fc"][:, -d:] += torch.diag(known_scale[-d:] / known_scale[-d:].mean())
        for i in range(2):
            layer = f"blk.{shape.n_layers - 2 + i}."
            own = {name: target[layer + name].clone() for name in LAYER if layer + name in target}
            for name, norm in (("attn_q", "attn_norm"), ("attn_k", "attn_norm"), ("attn_v", "attn_norm"),
                               ("ffn_gate", "ffn_norm"), ("ffn_up", "ffn_norm")):
                own[name] *= target[layer + norm]
            for name in ("attn_q", "attn_k"):
                own[name] = half_rotation(own[name], shape.n_rot)
            own.update({"q_norm": torch.ones(shape.n_rot), "k_norm": torch.ones(shape.n_rot),
                        "attn_norm": torch.ones(d), "ffn_norm": torch.ones(d)})
            w.update({f"{i}.{name}": value for name, value in own.items()})
        w.update({"hidden_norm": torch.ones(d), "final_norm": torch.ones(d)})
        weights = {name: torch.nn.Parameter(value.detach()) for name, value in w.items()}
        return cls(shape, embedding, scale_of(embedding), scale_of(first(answers.states)), known_scale, weights)

    def heads(self, x, layer, name, norm=None):
        """x f32 [..., d] -> [batch, heads, rest, n_rot] of a projection, each head normed."""
        y = model.linear(x, self.w[f"{layer}.{name}"]).float().view(len(x), -1, self.w[f"{layer}.{name}"].shape[0]
                                                                    // self.s.n_rot, self.s.n_rot)
        return (model.rms(y, self.w[f"{layer}.{norm}"]) if norm else y).transpose(1, 2)

    def turn(self, x, positions):
        """x f32 [batch, heads, n, n_rot], positions [batch, n] or [1, n]."""
        half = self.s.n_rot // 2
        angle = (positions[..., None] * self.s.rope_base ** (-torch.arange(half) / half))[:, None]
        cos, sin = angle.cos(), angle.sin()
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def attend(self, layer, x, context, positions, unseen):
        """Rows of a block read the context before its first token, whose states the target has given, and the
        block in both directions. x [batch, blocks, SIZE, d]."""
        s, (batch, n_blocks, size, _), n = self.s, x.shape, context.shape[1]
        group = s.n_heads // s.n_kv
        h = model.rms(x, self.w[f"{layer}.attn_norm"]).flatten(1, 2)
        q = self.turn(self.heads(h, layer, "attn_q", "q_norm"), positions) / math.sqrt(s.n_rot)
        k = self.turn(self.heads(h, layer, "attn_k", "k_norm"), positions)
        v = self.heads(h, layer, "attn_v")
        far_k = self.turn(self.heads(context, layer, "attn_k", "k_norm"), torch.arange(n)[None])
        far_v = self.heads(context, layer, "attn_v")
        rows = q.reshape(batch, s.n_kv, group * n_blocks * size, s.n_rot).to(model.PRODUCTS)
        far = (rows @ far_k.to(model.PRODUCTS).transpose(-1, -2)).float()
        far = far.view(batch, s.n_kv * group, n_blocks, size, n).masked_fill(unseen, -1e9)
        blocks = lambda y: y.repeat_interleave(s.n_heads // y.shape[1], 1).view(
            batch, s.n_heads, n_blocks, size, s.n_rot).to(model.PRODUCTS)
        near = (blocks(q) @ blocks(k).transpose(-1, -2)).float()
        weights = torch.cat((far, near), -1).softmax(-1).to(model.PRODUCTS)
        mixed = weights[..., :n].reshape(batch, s.n_kv, -1, n) @ far_v.to(model.PRODUCTS)
        mixed = mixed.view(batch, s.n_heads, n_blocks, size, s.n_rot) + weights[..., n:] @ blocks(v)
        mixed = mixed.permute(0, 2, 3, 1, 4).reshape(batch, n_blocks, size, s.d)
        return model.linear(mixed, self.w[f"{layer}.attn_output"]).float()

    def states(self, taps, anchors, at):
        """taps f32 [batch, n, width] of positions 0.., anchors i64 [batch, blocks], the tokens at positions `at`
        -> what the head reads, divided by `scale`, f32 [batch, blocks, SIZE, d]."""
        w = self.w
        context = model.rms(model.linear(taps / self.known_scale, w["fc"]).float(), w["hidden_norm"])
        x = (self.embedding[self.mask] / self.e_scale).expand(*anchors.shape, SIZE, self.s.d).clone()
        x[:, :, 0] = F.embedding(anchors, self.embedding) / self.e_scale
        positions = (at[..., None] + torch.arange(SIZE)).flatten(1)
        unseen = (torch.arange(taps.shape[1]) >= at[..., None])[:, None, :, None]
        for i in range(self.n_layers):
            x = x + self.attend(i, x, context, positions, unseen)
            h = model.rms(x, w[f"{i}.ffn_norm"])
            gate, up = model.linear(h, w[f"{i}.ffn_gate"]), model.linear(h, w[f"{i}.ffn_up"])
            x = x + model.linear(F.silu(gate.float()) * up, w[f"{i}.ffn_down"]).float()
        return model.rms(x, w["final_norm"])

    def head_rows(self, rows=slice(None)):
        return (self.embedding[rows] * self.scale).to(model.PRODUCTS)

    def exported(self):
        """The weights over values as they are, by the names of DeepSpec's files."""
        w = {name: p.detach().clone() for name, p in self.w.items()}
        w["fc"] /= self.known_scale
        w["final_norm"] *= self.scale
        w["confidence"][:, :self.s.d] /= self.scale
        for i in range(self.n_layers):
            w[f"{i}.attn_output"] *= self.e_scale
            w[f"{i}.ffn_down"] *= self.e_scale
        names = {f"{i}.{ours}": f"layers.{i}.{name}.weight" for i in range(self.n_layers)
                 for ours, name in LAYER.items()}
        return {{**names, **OTHERS}[name]: value for name, value in w.items()}

    def config(self):
        """config.json of the same. target_layer_ids counts outputs of layers."""
        s = self.s
        return {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "block_size": SIZE,
                "mask_token_id": self.mask, "target_layer_ids": [t - 1 for t in self.taps],
                "sample_from_anchor": True, "markov_head_type": "vanilla",
                "markov_rank": self.w["markov_w1"].shape[1], "enable_confidence_head": True,
                "confidence_head_with_markov": True,  # vLLM takes a missing one for false
                "hidden_act": "silu", "hidden_size": s.d, "head_dim": s.n_rot,
                "intermediate_size": self.w["0.ffn_gate"].shape[0], "num_attention_heads": s.n_heads,
                "num_key_value_heads": s.n_kv, "num_hidden_layers": self.n_layers, "rms_norm_eps": model.EPS,
                "rope_theta": s.rope_base, "tie_word_embeddings": False, "torch_dtype": "float16",
                "vocab_size": s.n_vocab}


def choose(starts, lengths, n, generator=None):
    """Positions of n last tokens of an answer, each of which another follows; i64 [batch, n]."""
    share = torch.rand(len(starts), n, generator=generator)
    return (starts[:, None] + share * (lengths - 1 - starts)[:, None]).long().sort(-1).values


def positions_of(at, lengths, n):
    """-> (index of the token before each drafted one, [batch, blocks, SIZE]; which are in the sequence)."""
    before = at[..., None] + torch.arange(SIZE)
    return before.clamp(max=n - 2), before + 1 < lengths[:, None, None]


def greatest(x):
    """Where a row is greatest; argmax takes ten times as long."""
    return x == x.amax(-1, keepdim=True)


def loss(head, batch, often, rng):
    """Of random blocks -> (the loss; the share of best tokens that are the target's, by position)."""
    ids, states, taps, starts, lengths = batch
    at = choose(starts, lengths, N_ANCHORS)
    before, real = positions_of(at, lengths, ids.shape[1])
    rows = torch.arange(len(ids))[:, None, None].expand_as(before)[real]
    before, position = before[real], torch.arange(SIZE).expand_as(real)[real]
    scored = rows_to_score(ids, often, head.s.n_vocab, rng)
    head_rows = head.head_rows(scored)
    with torch.no_grad():
        wanted = model.linear(states[rows, before] / head.scale, head_rows).float().softmax(-1)
        best = greatest(wanted)
    hidden = head.states(taps, ids.gather(1, at), at)[real]
    from_before = head.w["markov_w1"][ids[rows, before]]
    logits = model.linear(hidden, head_rows).float()
    logits = logits + model.linear(from_before, head.w["markov_w2"][scored]).float()
    logprobs = logits.log_softmax(-1)
    each = -(logprobs * (wanted * (1 - HARD) + best * HARD)).sum(-1)
    weight = torch.exp(-position / DECAY)
    with torch.no_grad():
        right = (greatest(logits) & best).any(-1).float()
        accepted = torch.minimum(wanted, logprobs.exp()).sum(-1).clamp(0, 1)
    confident = F.linear(torch.cat((hidden, from_before), -1).detach(), head.w["confidence"],
                         head.w["confidence_bias"])[:, 0]
    total = (each * weight).sum() / weight.sum()
    total = total + CONFIDENCE * F.binary_cross_entropy_with_logits(confident, accepted)
    return total, [right[position == i].mean().item() for i in range(SIZE)]


@torch.no_grad()
def accept_length(head, answers, n_blocks=8):
    """Of blocks at random places of greedy answers, left to right over the whole vocabulary with the Markov bias:
    tokens of a cycle."""
    generator, kept, total = torch.Generator().manual_seed(0), 0, 0
    head_rows, w2 = head.head_rows(), head.w["markov_w2"].to(model.PRODUCTS)
    for at in range(0, len(answers.ids), 16):
        ids, _, taps, starts, lengths = answers.batch(range(at, min(at + 16, len(answers.ids))))
        first = choose(starts, lengths, n_blocks, generator)
        before, real = positions_of(first, lengths, ids.shape[1])
        hidden = head.states(taps, ids.gather(1, first), first)
        token, good = ids.gather(1, first), torch.ones_like(first, dtype=torch.bool)
        for i in range(SIZE):
            logits = model.linear(hidden[:, :, i], head_rows).float()
            token = (logits + model.linear(head.w["markov_w1"][token], w2).float()).argmax(-1)
            following = ids.gather(1, (before[:, :, i] + 1))
            good &= (token == following) & real[:, :, i]
            kept += good.sum().item()
        total += first.numel()
    return 1 + kept / total
