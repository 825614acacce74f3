"""SmolLM2, or another Llama, in PyTorch, for many answers at once: the GGUF's weights in bfloat16, keys and
values cached, float32 residual stream."""
import gguf
import numpy as np
import torch
import torch.nn.functional as F

import sample_model as model

SHAPE = model.Shape(49152, 576, 30, 9, 3, 1536, rope_base=1e5)
TAPS = 2, 15, 27  # the layers before which an EAGLE-3 head looks: the third, the middle, the last but two


class Target:
    def __init__(self, path, layers=True, shape=SHAPE, taps=TAPS):
        """layers=False: the embedding alone. taps: layers before which read() looks."""
        tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
        self.s, self.taps = shape, taps
        values = lambda name: torch.from_numpy(np.array(
            gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)))
        layer = lambda i, *names: torch.cat([values(f"blk.{i}.{n}.weight") for n in names])
        self.embedding = values("token_embd.weight")
        self.head = self.embedding.to(model.PRODUCTS)
        self.output_norm = values("output_norm.weight")
        n_layers = self.s.n_layers if layers else 0
        self.layers = [{"attn_norm": layer(i, "attn_norm"), "ffn_norm": layer(i, "ffn_norm"),
                        "qkv": layer(i, "attn_q", "attn_k", "attn_v").to(model.PRODUCTS),
                        "out": layer(i, "attn_output").to(model.PRODUCTS),
                        "gate_up": layer(i, "ffn_gate", "ffn_up").to(model.PRODUCTS),
                        "down": layer(i, "ffn_down").to(model.PRODUCTS)} for i in range(n_layers)]


class Sequences:
    """Answers being written side by side. All prompts begin with the same `prefix`, computed once; what
    follows is padded on its left, so that all end together. Keys and values are float32, whose batched
    products read them where they lie."""

    def __init__(self, target, prefix, prompts, n_more, taps=None):
        s, self.target, n = target.s, target, len(prompts)
        longest = max(map(len, prompts))
        self.pad = torch.tensor([longest - len(p) for p in prompts])
        self.prompt = torch.zeros(n, longest - prefix, dtype=torch.long)
        for i, p in enumerate(prompts):
            self.prompt[i, longest - len(p):] = torch.from_numpy(p[prefix:].astype(np.int64))
        self.prefix = self.length = 0
        self.make_room(1, prefix)
        self.first = self.forward(torch.from_numpy(prompts[0][:prefix].astype(np.int64))[None], taps)
        keys, values, self.prefix = self.keys, self.values, prefix
        self.make_room(n, longest + n_more)
        self.keys[:, :, :prefix] = keys.repeat(1, n, 1, 1)
        self.values[:, :, :prefix] = values.repeat(1, n, 1, 1)

    def make_room(self, n, n_slots):
        s = self.target.s
        self.keys, self.values = torch.zeros(2, s.n_layers, n * s.n_kv, n_slots, s.n_rot)

    def rotate(self, x):
        """x f32 [batch, n, heads, n_rot], in adjacent pairs."""
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * self.cos - b * self.sin, b * self.cos + a * self.sin), -1).flatten(-2)

    def place(self, n):
        """Angles and mask of the next n slots."""
        s, slots = self.target.s, torch.arange(self.length, self.length + n)
        pad = self.pad if self.prefix else torch.zeros(1, dtype=torch.long)
        positions = (slots - pad[:, None]).clamp(min=0)
        half = s.n_rot // 2
        angle = positions[..., None] * s.rope_base ** (-torch.arange(half) / half)
        self.cos, self.sin = angle.cos()[:, :, None], angle.sin()[:, :, None]
        read = torch.arange(self.length + n)
        padding = (read >= self.prefix) & (read < self.prefix + pad[:, None, None])
        mask = torch.zeros(len(pad), n, len(read)).masked_fill((read > slots[:, None]) | padding, -1e30)
        self.mask = mask.repeat_interleave(s.n_kv, 0).repeat(1, s.n_heads // s.n_kv, 1)

    def attend(self, layer, w, h):
        s, (batch, n, _), end = self.target.s, h.shape, self.length + h.shape[1]
        qkv = model.linear(h, w["qkv"]).float().view(batch, n, -1, s.n_rot)
        q, k, v = qkv.split((s.n_heads, s.n_kv, s.n_kv), 2)
        keys, values = self.keys[layer, :, :end], self.values[layer, :, :end]
        keys[:, self.length:] = self.rotate(k).transpose(1, 2).flatten(0, 1)
        values[:, self.length:] = v.transpose(1, 2).flatten(0, 1)
        group = s.n_heads // s.n_kv
        q = (self.rotate(q) / s.n_rot ** .5).view(batch, n, s.n_kv, group, s.n_rot)
        q = q.permute(0, 2, 3, 1, 4).reshape(batch * s.n_kv, group * n, s.n_rot)
        weights = torch.baddbmm(self.mask, q, keys.transpose(1, 2)).softmax(-1)
        mixed = torch.bmm(weights, values).view(batch, s.n_kv, group, n, s.n_rot)
        mixed = mixed.permute(0, 3, 1, 2, 4).reshape(batch, n, s.d)
        return model.linear(mixed, w["out"]).float()

    @torch.no_grad()
    def forward(self, tokens, taps=None):
        """tokens i64 [batch, n] -> the states that the head reads, f32 [batch, n, d]; the list `taps` gains
        the residual stream before each of the target's, f32 of that shape."""
        x = F.embedding(tokens, self.target.embedding)
        self.place(tokens.shape[1])
        for i, w in enumerate(self.target.layers):
            if taps is not None and i in self.target.taps:
                taps.append(x)
            x = x + self.attend(i, w, model.rms(x, w["attn_norm"]))
            gate, up = model.linear(model.rms(x, w["ffn_norm"]), w["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, w["down"]).float()
        self.length += tokens.shape[1]
        return model.rms(x, self.target.output_norm)

    def only(self, kept):
        """Go on with these sequences alone."""
        s = self.target.s
        rows = (kept[:, None] * s.n_kv + torch.arange(s.n_kv)).flatten()
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.pad = self.pad[kept]


def draw(logits, temperatures, generator):
    """The best token where the temperature is 0, else by Gumbel's trick."""
    warm = temperatures.nonzero()[:, 0]
    noise = torch.rand(len(warm), logits.shape[1], generator=generator)
    noise = noise.clamp_(1e-9).log_().neg_().log_()
    logits[warm] = logits[warm] / temperatures[warm, None] - noise
    return logits.argmax(-1)


@torch.no_grad()
def answer(target, prefix, prompts, n_tokens, temperatures, end, generator):
    """-> for each prompt (ids with the answer, i32 [n]; states f16 [n - 1, d], of all but the last).
    All begin with the same `prefix` ids."""
    running = Sequences(target, prefix, prompts, n_tokens)
    ids = [list(p) for p in prompts]
    hidden = running.forward(running.prompt)
    states = [[running.first[0].half(), h[prefix - len(p):].half()] for h, p in zip(hidden, prompts)]
    live = torch.arange(len(prompts))   # whose answers go on
    rows = torch.arange(len(prompts))   # and where among `running`
    for left in range(n_tokens, 0, -1):
        logits = model.linear(hidden[rows, -1], target.head).float()
        tokens = draw(logits, temperatures[live], generator)
        for i, t in zip(live.tolist(), tokens.tolist()):
            ids[i].append(t)
        kept = tokens != end
        live, rows, tokens = live[kept], rows[kept], tokens[kept]
        if left == 1 or not len(live):
            break
        if len(rows) < .8 * len(running.pad):
            running.only(rows)
            rows = torch.arange(len(rows))
        given = torch.zeros(len(running.pad), 1, dtype=torch.long)
        given[rows, 0] = tokens
        hidden = running.forward(given)
        for i, h in zip(live.tolist(), hidden[rows].half()):
            states[i].append(h)
    return [(np.array(a, np.int32), torch.cat(h).numpy()) for a, h in zip(ids, states)]


@torch.no_grad()
def read(target, prefix, written):
    """Text that others wrote, read side by side. written: ids i32 [n] each, all of which begin with the
    same `prefix` ids -> for each (ids; states f16 [n - 1, d] and taps f16 [n - 1, n_taps d], of all but the
    last token)."""
    first, rest = [], []
    running = Sequences(target, prefix, written, 0, first)
    hidden = running.forward(running.prompt, rest)
    begin, own = torch.cat([running.first, *first], -1)[0], torch.cat([hidden, *rest], -1)
    made = []
    for i, ids in enumerate(written):
        both = torch.cat((begin, own[i, prefix - len(ids):]))[:-1].half()
        made.append((ids, both[:, :target.s.d].numpy(), both[:, target.s.d:].numpy()))
    return made
