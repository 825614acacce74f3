"""torch_host.py : PyTorch models driven by libspecrt_cuda.so, whose state stays on the GPU.

    make cuda
    python3 examples/torch_host.py --target data/sample/target.gguf --draft data/sample/draft.safetensors \
        --bundle build/sample/model.specb --policy microspec --policy static:4096 --prompt "1, 2, 3,"
    python3 examples/torch_host.py --target meta-llama-folder --draft eagle-folder/model.safetensors ...

The target is a Llama, from a GGUF file of f32, f16 or q8_0, or a Hugging Face folder of safetensors; the drafter is
an EAGLE-1/2 head with config.json beside it. Every policy's answer is held to plain greedy decoding with
the same target: exit code 1 where a token differs. specrt gets tensors by address; per cycle the host reads
the verdict and nothing else.
"""
import argparse
import ctypes as C
import glob
import json
import math
import os
import struct
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import specrt  # noqa: E402
from specrt._lib import CError, CTreeParams, DTYPES  # noqa: E402
from specrt.device import (BEAM_WORDS, CCudaPolicyDesc, CCudaSessionParams, CCudaView, DRAFT_WORDS, VERDICT_WORDS,  # noqa: E402
                           words)


def fail(message):
    sys.exit("torch_host: " + message)


def launch(library, name, *args):
    status = getattr(library, name)(*args)
    if status:
        err = CError()
        library.cuda_check(C.byref(err))
        fail("%s: status %d %s" % (name, status, err.msg.decode()))


# --- the models ---

def rms_norm(x, weight, epsilon):
    x = x.float()
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)) * weight.float()


class Cache:
    """Keys and values of one layer's past; what is beyond `length` belongs to the tree at hand."""

    def __init__(self, n_heads, size, width, dtype, device):
        self.keys = torch.zeros(n_heads, size, width, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)


class Layer:
    def __init__(self, config, tensors, prefix, device, dtype, adjacent):
        def get(name, kind):
            t = tensors.get(prefix + name)
            return None if t is None else t.to(device, kind)
        self.config, self.adjacent, self.dtype = config, adjacent, dtype
        self.q, self.k, self.v, self.o = (get("self_attn.%s_proj.weight" % n, dtype) for n in "qkvo")
        self.gate, self.up, self.down = (get("mlp.%s_proj.weight" % n, dtype) for n in ("gate", "up", "down"))
        self.before, self.after = get("input_layernorm.weight", dtype), get("post_attention_layernorm.weight", dtype)

    def rotate(self, x, positions):
        """x [heads, n, width] turned by position: halves, or neighbours in GGUF's order."""
        angles = positions.float()[:, None] * self.config["frequencies"].to(x.device)[None]
        cos, sin, x = angles.cos(), angles.sin(), x.float()
        if self.adjacent:
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def forward(self, x, positions, cache, first, mask):
        """x [n, d] f32; its keys go to cache places first..; mask bool [n, first + n]: what each row sees."""
        c, n = self.config, x.shape[0]
        h = (x if self.before is None else rms_norm(x, self.before, c["epsilon"])).to(self.dtype)
        q = (h @ self.q.T).view(n, c["n_heads"], -1).transpose(0, 1)
        k = (h @ self.k.T).view(n, c["n_kv"], -1).transpose(0, 1)
        v = (h @ self.v.T).view(n, c["n_kv"], -1).transpose(0, 1)
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        cache.keys[:, first:first + n] = k.to(self.dtype)
        cache.values[:, first:first + n] = v
        repeat = c["n_heads"] // c["n_kv"]
        keys = cache.keys[:, :first + n].float().repeat_interleave(repeat, 0)
        values = cache.values[:, :first + n].float().repeat_interleave(repeat, 0)
        scores = q @ keys.transpose(1, 2) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~mask[None], float("-inf")).softmax(-1)
        mixed = (weights @ values).transpose(0, 1).reshape(n, -1).to(self.dtype)
        x = x + (mixed @ self.o.T).float()
        h = rms_norm(x, self.after, c["epsilon"]).to(self.dtype)
        return x + ((F.silu(h @ self.gate.T) * (h @ self.up.T)) @ self.down.T).float()


def frequencies(width, base, scaling):
    f = base ** (-torch.arange(0, width, 2).float() / width)
    if not scaling or scaling.get("rope_type") != "llama3":
        return f
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * f / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return f / scaling["factor"] * (1 - smooth) + f * smooth


class Named(dict):
    """What a file holds by name; what is asked for and not there ends the program."""

    def __init__(self, path, things=()):
        super().__init__(things)
        self.path = path

    def __missing__(self, name):
        fail("%s: expected '%s', found only %s, ..." % (self.path, name, ", ".join(sorted(self)[:4])))


def read_safetensors(path, files):
    from safetensors import SafetensorError, safe_open
    tensors = Named(path)
    for name in files:
        try:
            with safe_open(name, "pt") as file:
                tensors.update({name: file.get_tensor(name) for name in file.keys()})
        except (OSError, SafetensorError) as error:
            fail("%s: %s" % (name, error))
    return tensors


def read_config(folder):
    path = os.path.join(folder, "config.json")
    try:
        with open(path) as file:
            return Named(path, json.load(file))
    except ValueError as error:
        fail("%s: %s" % (path, error))


class Gguf:
    """A GGUF file's keys, and its tensors as f32 by name."""
    TYPES = "BbHhIif?"  # by number, as struct has them; 7 is a bool, 8 a string, 9 an array
    WIDE = {10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        self.bytes, self.at, self.keys, self.tensors = np.memmap(path, np.uint8, "r"), 8, {}, {}
        if bytes(self.bytes[:4]) != b"GGUF":
            fail("%s: expected a GGUF file, found another" % path)
        n_tensors, n_keys = self.take("QQ")
        for _ in range(n_keys):
            name = self.text()
            self.keys[name] = self.value(self.take("I")[0])
        where = []
        for _ in range(n_tensors):
            name, n = self.text(), self.take("I")[0]
            where.append((name, self.take("Q" * n)[::-1], *self.take("IQ")))
        step = self.keys.get("general.alignment", 32)
        begin = (self.at + step - 1) // step * step
        for name, shape, kind, offset in where:
            self.tensors[name] = self.read(name, shape, kind, begin + offset)

    def take(self, form):
        size = struct.calcsize("<" + form)
        self.at += size
        return struct.unpack("<" + form, self.bytes[self.at - size:self.at].tobytes())

    def text(self):
        n = self.take("Q")[0]
        return self.take("%ds" % n)[0].decode(errors="replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, n = self.take("IQ")
            return [self.value(of) for _ in range(n)]
        return self.take(self.WIDE.get(kind) or self.TYPES[kind])[0]

    def read(self, name, shape, kind, at):
        n = math.prod(shape)
        if kind in (0, 1):
            flat = self.bytes[at:at + n * (4 - 2 * kind)].view(np.float16 if kind else np.float32)
        elif kind == 8:
            blocks = self.bytes[at:at + n // 32 * 34].reshape(-1, 34)
            scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
            flat = blocks[:, 2:].view(np.int8) * scales
        else:
            fail("%s: expected f32, f16 or q8_0, found type %d" % (name, kind))
        return torch.from_numpy(np.array(flat, np.float32).reshape(shape))


def read_gguf(path):
    """A GGUF's tensors under Hugging Face's names, and its settings."""
    file = Gguf(path)
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    tensors = Named(path)
    for name, tensor in file.tensors.items():
        parts = name.split(".")
        if name not in whole and parts[2] not in names:
            continue # what rotation may bring along
        tensors[whole.get(name) or "model.layers.%s.%s.weight" % (parts[1], names[parts[2]])] = tensor

    keys = Named(path, file.keys)

    def field(key):
        return keys["llama." + key]
    config = {"num_attention_heads": field("attention.head_count"),
              "num_key_value_heads": field("attention.head_count_kv"),
              "num_hidden_layers": field("block_count"), "hidden_size": field("embedding_length"),
              "rms_norm_eps": field("attention.layer_norm_rms_epsilon"), "rope_theta": field("rope.freq_base")}
    return tensors, config


def settings(config):
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return {"n_heads": config["num_attention_heads"], "width": width,
            "n_kv": config.get("num_key_value_heads", config["num_attention_heads"]),
            "epsilon": config["rms_norm_eps"],
            "frequencies": frequencies(width, config.get("rope_theta", 10000.0), config.get("rope_scaling"))}


class Target:
    def __init__(self, path, size, device, dtype):
        adjacent = path.endswith(".gguf")
        if adjacent:
            tensors, config = read_gguf(path)
        else:
            tensors = read_safetensors(path, sorted(glob.glob(os.path.join(path, "*.safetensors"))))
            config = read_config(path)
        self.config, self.device, self.length = settings(config), device, 0
        self.layers = [Layer(self.config, tensors, "model.layers.%d." % i, device, dtype, adjacent)
                       for i in range(config["num_hidden_layers"])]
        self.caches = [Cache(self.config["n_kv"], size, self.config["width"], dtype, device) for _ in self.layers]
        self.embedding = tensors["model.embed_tokens.weight"].to(device, dtype)
        self.norm = tensors["model.norm.weight"].to(device, dtype)
        self.head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"]).to(device, torch.float16)
        self.head = self.head.contiguous()  # specrt's; what this stack multiplies with has the models' type
        self.output = self.head.to(dtype)

    def forward(self, tokens, depths, seen):
        """tokens [n] after the cache, at length + depths; seen bool [n, n] among themselves. @return logits f32
        [n, n_vocab] and the states that the head multiplied."""
        n, x = len(tokens), self.embedding[tokens].float()
        past = torch.ones(n, self.length, dtype=torch.bool, device=self.device)
        mask = torch.cat((past, seen), 1)
        for layer, cache in zip(self.layers, self.caches):
            x = layer.forward(x, self.length + depths, cache, self.length, mask)
        x = rms_norm(x, self.norm, self.config["epsilon"])
        return (x.to(self.output.dtype) @ self.output.T).float(), x

    def keep(self, nodes):
        """The nodes of the last pass that stay, a list in order."""
        at = self.length + torch.tensor(nodes, device=self.device)
        for cache in self.caches:
            for kept in (cache.keys, cache.values):
                kept[:, self.length:self.length + len(nodes)] = kept[:, at]
        self.length += len(nodes)


def causal(n, device):
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


class Drafter:
    """An EAGLE head: one layer over pairs of a token's embedding and the state before it."""

    def __init__(self, path, target, size, device, dtype):
        tensors = read_safetensors(path, [path])
        config = read_config(os.path.dirname(path))
        expected, found = (target.head.shape[1], 2 * target.head.shape[1]), tuple(tensors["fc.weight"].shape)
        if found != expected:
            fail("%s: fc.weight: expected shape %s of the target's width, found %s" % (path, expected, found))
        self.config, self.target, self.device, self.dtype = settings(config), target, device, dtype
        self.fc = tensors["fc.weight"].to(device, dtype)
        self.bias = tensors["fc.bias"].to(device, dtype) if "fc.bias" in tensors else None
        self.layer = Layer(self.config, tensors, "layers.0.", device, dtype, False)
        self.cache = Cache(self.config["n_kv"], size, self.config["width"], dtype, device)
        self.length = 0

    def forward(self, tokens, states, positions, first, mask):
        pair = torch.cat((self.target.embedding[tokens], states.to(self.dtype)), -1)
        return self.layer.forward(F.linear(pair, self.fc, self.bias).float(), positions, self.cache, first, mask)

    def extend(self, tokens, states):
        """Takes in verified tokens and the target's states before them. @return the state after the last."""
        n = len(tokens)
        past = torch.ones(n, self.length, dtype=torch.bool, device=self.device)
        mask = torch.cat((past, causal(n, self.device)), 1)
        positions = self.length + torch.arange(n, device=self.device)
        x = self.forward(tokens, states, positions, self.length, mask)
        self.length += n
        return x[-1:]


# --- decoding ---

def plain(target, prompt, n, ends):
    tokens, device = torch.tensor(prompt, device=target.device), target.device
    out, target.length = [], 0
    while len(out) < n and not (out and out[-1] in ends):
        logits, _ = target.forward(tokens, torch.arange(len(tokens), device=device), causal(len(tokens), device))
        target.keep(list(range(len(tokens))))
        out.append(int(logits[-1].argmax()))
        tokens = torch.tensor(out[-1:], device=device)
    return out


class Speculation:
    """A session of one sequence, and the buffers that it and the models share."""

    def __init__(self, library, policy, target, drafter, args):
        n_vocab = target.head.shape[0]
        self.library, self.target, self.drafter, self.device = library, target, drafter, target.device
        params = CCudaSessionParams(tree=CTreeParams(args.num_steps, args.topk, args.num_draft_tokens), n_batch=1,
                               n_logits=n_vocab, hidden=DTYPES["float32"])
        self.session = library.open("cuda_session_create", policy, C.byref(params))
        self.view = CCudaView()
        library.cuda_session_get_view(self.session, C.byref(self.view))
        self.beam = words(self.view.beam, (1, BEAM_WORDS), self.device)[0]
        self.draft = words(self.view.draft, (1, DRAFT_WORDS), self.device)[0]
        self.verdict = words(self.view.verdict, (1, VERDICT_WORDS), self.device)[0]
        k, nodes = self.view.topk, self.view.num_draft_tokens
        self.hidden = torch.zeros(k, target.head.shape[1], device=self.device)
        self.draft_input = torch.zeros_like(self.hidden)
        self.logits = torch.zeros(nodes, n_vocab, device=self.device)
        self.emitted = self.states = None

    def call(self, name, *args):
        pointers = [C.c_void_p(a.data_ptr()) if torch.is_tensor(a) else a for a in args]
        stream = torch.cuda.current_stream().cuda_stream if self.device.type == "cuda" else 0
        launch(self.library, "cuda_session_" + name, self.session, *pointers, C.c_void_p(stream))
        if self.device.type == "cpu":
            self.library.lib.cudaDeviceSynchronize() # torch's next operation is in no stream

    def start(self, prompt):
        tokens = torch.tensor(prompt, device=self.device)
        self.target.length = self.drafter.length = 0
        self.call("begin", -1)
        logits, states = self.target.forward(tokens, torch.arange(len(prompt), device=self.device),
                                             causal(len(prompt), self.device))
        self.target.keep(list(range(len(prompt))))
        logits, ids = logits.contiguous(), tokens.int()
        self.call("prefill", 0, ids, len(prompt), logits)
        first = torch.zeros(1, dtype=torch.int32, device=self.device)
        last = logits[-1:].contiguous()
        self.call("draw", last, first)
        self.call("start", -1, first)
        # The drafter reads token i + 1 with the state that the target had at i.
        self.emitted, self.states = torch.cat((tokens[1:], first.long())), states
        return int(first)

    def draft_tree(self):
        k, device, drafter = self.view.topk, self.device, self.drafter
        self.hidden[:1] = drafter.extend(self.emitted, self.states)
        root, first = drafter.length, drafter.length
        seen = torch.zeros(k, 0, dtype=torch.bool, device=device) # of the tree's earlier rows
        self.call("expand", self.hidden, None)
        for level in range(1, self.view.num_steps):
            tokens = self.beam[1:1 + k].long().clamp(0, self.target.embedding.shape[0] - 1)
            parents = self.beam[65:65 + k].long().clamp(0, k - 1)
            self.draft_input.copy_(self.hidden[parents])
            self.call("route_ahead", self.draft_input) # of a `cluster` router, beside the layer
            seen = torch.cat((seen[parents], torch.eye(k, dtype=torch.bool, device=device)), 1)
            past = torch.ones(k, root, dtype=torch.bool, device=device)
            positions = torch.full((k,), root + level - 1, device=device)
            self.hidden.copy_(drafter.forward(tokens, self.draft_input, positions, first, torch.cat((past, seen), 1)))
            self.call("expand", self.hidden, self.draft_input)
            first += k
        self.call("finish")

    def verify_tree(self):
        """All nodes that a tree may have: those beyond its count see themselves alone, and are not looked at."""
        n, device = self.view.num_draft_tokens, self.device
        counted = torch.arange(n, device=device) < self.draft[0]
        tokens = self.draft[1:1 + n].long().where(counted, torch.zeros(1, dtype=torch.long, device=device))
        depths = self.draft[129:129 + n].long().where(counted, torch.zeros(1, dtype=torch.long, device=device))
        masks = self.draft[386:386 + 2 * n].view(n, 2)
        bits = torch.arange(32, dtype=torch.int32, device=device)
        seen = (masks[:, :, None] >> bits & 1).bool().flatten(1)[:, :n] & counted[:, None]
        seen = seen | torch.eye(n, dtype=torch.bool, device=device)
        logits, states = self.target.forward(tokens, depths, seen)
        self.logits.copy_(logits)
        self.call("verify", self.logits)
        return states

    def cycle(self):
        self.draft_tree()
        states = self.verify_tree()
        self.call("observe", None)
        said = self.verdict.cpu().tolist() # the host waits here, once
        n, tokens, nodes = said[0], said[1:1 + said[0]], said[65:65 + said[0]]
        self.target.keep(nodes)
        self.emitted = torch.tensor(tokens, device=self.device)
        self.states = states[torch.tensor(nodes, device=self.device)]
        self.library.cuda_session_serve(self.session)
        return tokens[:n]

    def close(self):
        self.library.cuda_session_close(self.session)


def encode(args):
    if not args.ids:
        from tokenizers import Tokenizer
        ids = Tokenizer.from_file(args.tokenizer).encode(args.prompt, add_special_tokens=False).ids
        return ids or fail("--prompt: expected text, found none")
    try:
        return [int(i) for i in args.ids.split(",")]
    except ValueError:
        fail("--ids: expected numbers as 1,2,3, found '%s'" % args.ids)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--bundle")
    p.add_argument("--policy", action="append")
    p.add_argument("--prompt", default="The quick brown fox")
    p.add_argument("--ids", help="the prompt as token ids, 1,2,3")
    p.add_argument("--tokenizer", default="data/tokenizer.json")
    p.add_argument("--max-tokens", type=int, default=64)
    p.add_argument("--num-steps", type=int, default=6)
    p.add_argument("--topk", type=int, default=10)
    p.add_argument("--num-draft-tokens", type=int, default=60)
    p.add_argument("--library", default="build/libspecrt_cuda.so")
    p.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"),
                   help="of the models' weights; with 16 bits a pass of one row rounds otherwise than one of a "
                   "tree, and where two tokens are as good answers may differ")
    p.add_argument("--device", default="cuda", help="cpu: with a library of kernels that run there")
    args = p.parse_args()
    library, device = specrt.library(os.path.abspath(args.library)), torch.device(args.device)
    if not hasattr(library.lib, "specrt_cuda_open"):
        fail("%s: expected libspecrt_cuda.so, found another library" % args.library)
    err = CError()
    if library.cuda_open(C.byref(err)):
        print("skipped torch_host: " + err.msg.decode())
        return 77
    torch.manual_seed(0)
    prompt = encode(args)
    size = len(prompt) + args.max_tokens + args.num_draft_tokens + args.topk * args.num_steps + 64
    dtype = getattr(torch, args.dtype)
    with torch.no_grad():
        target = Target(args.target, size, device, dtype)
        wrong = [i for i in prompt if not 0 <= i < target.embedding.shape[0]]
        if wrong:
            fail("--ids: expected 0 to %d, found %d" % (target.embedding.shape[0] - 1, wrong[0]))
        drafter = Drafter(args.draft, target, size, device, dtype)
        began = time.time()
        expected = plain(target, prompt, args.max_tokens, [])
        seconds = time.time() - began
        print("%-40s %8.1f tokens/s" % ("plain", len(expected) / seconds))
        return run_policies(library, target, drafter, prompt, expected, args)


def run_policies(library, target, drafter, prompt, expected, args):
    bundle = specrt.Bundle(args.bundle) if args.bundle else None
    # What the host reads while a policy is made: the head, and the embedding that routers know tokens by.
    head, embedding = specrt.Head(target.head.cpu(), bundle=bundle), target.embedding.cpu().half()
    wrong = 0
    for text in args.policy or ["full", "microspec"]:
        policy = specrt.Policy(text, head, bundle, head.n_rows, embedding=embedding)
        shared = library.open("cuda_policy_create", policy.handle,
                              C.byref(CCudaPolicyDesc(rows=target.head.data_ptr())))
        s = Speculation(library, shared, target, drafter, args)
        began, out, cycles = time.time(), [s.start(prompt)], 0
        while len(out) < len(expected):
            out += s.cycle()
            cycles += 1
        seconds, same = time.time() - began, out[:len(expected)] == expected
        print("%-40s %8.1f tokens/s, accept length %.2f, %s plain decoding" %
              (text, len(out) / seconds, (len(out) - 1) / max(cycles, 1), "equals" if same else "DIFFERS FROM"))
        wrong += not same
        s.close()
        library.cuda_policy_close(shared)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as problem:
        fail("%s: %s" % (problem.filename, problem.strerror))
    except specrt.SpecrtError as problem:
        fail(str(problem))
