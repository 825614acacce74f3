"""The sample models in PyTorch: Llama as GGUF stores it, and an EAGLE-2 head. bfloat16 products,
float32 residual stream, norms and weights."""
import itertools
import math

import torch
import torch.nn.functional as F

EPS, ROPE_BASE = 1e-5, 10000.0


class Shape:
    """d: width, n_layers, n_heads and n_kv of d / n_heads each, n_ffn."""

    def __init__(self, n_vocab, d, n_layers, n_heads, n_kv, n_ffn, rope_base=ROPE_BASE):
        self.n_vocab, self.d, self.n_layers, self.n_heads = n_vocab, d, n_layers, n_heads
        self.n_kv, self.n_ffn, self.n_rot = n_kv, n_ffn, d // n_heads
        self.rope_base = rope_base


def matrix(n_out, n_in, scale=1.0):
    return torch.nn.Parameter(torch.randn(n_out, n_in) * scale / math.sqrt(n_in))


def layer_weights(s, n_layers, prefix=""):
    """One decoder layer by GGUF's names."""
    small = 1 / math.sqrt(2 * n_layers)
    kv = s.n_kv * s.n_rot
    return {prefix + "attn_norm": torch.nn.Parameter(torch.ones(s.d)),
            prefix + "attn_q": matrix(s.d, s.d), prefix + "attn_k": matrix(kv, s.d),
            prefix + "attn_v": matrix(kv, s.d), prefix + "attn_output": matrix(s.d, s.d, small),
            prefix + "ffn_norm": torch.nn.Parameter(torch.ones(s.d)),
            prefix + "ffn_gate": matrix(s.n_ffn, s.d), prefix + "ffn_up": matrix(s.n_ffn, s.d),
            prefix + "ffn_down": matrix(s.d, s.n_ffn, small)}


def llama_weights(s):
    """All but the embedding, which is also the head."""
    weights = {"output_norm": torch.nn.Parameter(torch.ones(s.d))}
    for i in range(s.n_layers):
        weights.update(layer_weights(s, s.n_layers, f"blk.{i}."))
    return weights


def rms(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


PRODUCTS = torch.bfloat16  # what matrices are multiplied in


def linear(x, weight):
    return F.linear(x.to(PRODUCTS), weight.to(PRODUCTS))


def rope(x, adjacent, base, first=0):
    """x [batch, n, heads, n_rot] of the positions from `first` on: pairs are adjacent (Llama in GGUF) or half apart (Hugging Face)."""
    n, half = x.shape[1], x.shape[-1] // 2
    angle = torch.outer(torch.arange(first, first + n), base ** (-torch.arange(half) / half))
    cos, sin = angle.cos().view(1, n, 1, half), angle.sin().view(1, n, 1, half)
    a, b = (x[..., 0::2], x[..., 1::2]) if adjacent else x.chunk(2, -1)
    pair = (a * cos - b * sin, b * cos + a * sin)
    return torch.stack(pair, -1).flatten(-2) if adjacent else torch.cat(pair, -1)


def attention(s, w, prefix, x, mask, adjacent):
    batch, n, _ = x.shape
    heads = lambda name, count: linear(x, w[prefix + name]).float().view(batch, n, count, s.n_rot)
    q = rope(heads("attn_q", s.n_heads), adjacent, s.rope_base).transpose(1, 2) / math.sqrt(s.n_rot)
    k = rope(heads("attn_k", s.n_kv), adjacent, s.rope_base).transpose(1, 2)
    v = heads("attn_v", s.n_kv).transpose(1, 2)
    groups = s.n_heads // s.n_kv
    k, v = k.repeat_interleave(groups, 1).to(PRODUCTS), v.repeat_interleave(groups, 1).to(PRODUCTS)
    weights = (q.to(PRODUCTS) @ k.transpose(-1, -2) + mask).softmax(-1)
    return linear((weights @ v).transpose(1, 2).reshape(batch, n, s.d), w[prefix + "attn_output"])


def decoder_layer(s, w, prefix, x, mask, adjacent, input_norm=True):
    h = rms(x, w[prefix + "attn_norm"]) if input_norm else x
    x = x + attention(s, w, prefix, h, mask, adjacent).float()
    h = rms(x, w[prefix + "ffn_norm"])
    gate, up = linear(h, w[prefix + "ffn_gate"]), linear(h, w[prefix + "ffn_up"])
    return x + linear(F.silu(gate.float()) * up, w[prefix + "ffn_down"]).float()


def causal_mask(n):
    return torch.full((n, n), float("-inf")).triu(1).bfloat16()


def llama(s, w, x):
    """x f32 [batch, n, d], embedded -> what the head reads, f32 of the same shape."""
    mask = causal_mask(x.shape[1])
    for i in range(s.n_layers):
        x = decoder_layer(s, w, f"blk.{i}.", x, mask, adjacent=True)
    return rms(x, w["output_norm"])


def eagle_weights(s):
    """fc reads [embedding, feature]; one layer without input norm; the rest is the target's."""
    weights = layer_weights(s, 1)
    del weights["attn_norm"]
    weights["fc"] = matrix(s.d, 2 * s.d)
    weights["fc_bias"] = torch.nn.Parameter(torch.zeros(s.d))
    with torch.no_grad():
        weights["fc"][:, s.d:] += torch.eye(s.d) / 2
    return weights


def cross_step_alignment(steps, temperature):
    """CORAL's CSRA as a loss: InfoNCE between the features f32 [batch, n, d] of each two training steps.

    Of a position of one step, the same position of the other is the positive, and the other positions of
    that window are negatives; they are compared by their cosine, divided by the temperature. The mean over
    positions and ordered pairs of steps."""
    units = [F.normalize(features, dim=-1) for features in steps]
    same = torch.arange(steps[0].shape[1]).repeat(steps[0].shape[0])
    losses = [F.cross_entropy((a @ b.transpose(1, 2)).flatten(0, 1) / temperature, same)
              for a, b in itertools.permutations(units, 2)]
    return sum(losses) / len(losses)


def eagle(s, w, embedded, feature):
    """embedded f32 [batch, n, d] of token t + 1, feature of position t -> feature of position t + 1."""
    x = linear(torch.cat((embedded, feature), -1), w["fc"]).float() + w["fc_bias"]
    return decoder_layer(s, w, "", x, causal_mask(x.shape[1]), adjacent=False, input_norm=False)
