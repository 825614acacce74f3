"""torch_align.py : a PyTorch drafter that learns while it serves. specrt.h says where and with which gradient
(EvoSpec's online alignment: specrt_align_*); the layer, its backward pass and the optimiser are PyTorch's.

    cc -O2 -shared -fPIC -DSPECRT_IMPLEMENTATION -DSPECRT_TOOLS -DSPECRT_NO_ZSTD -x c include/specrt.h -lm -o build/libspecrt.so
    python3 examples/torch_align.py --target data/sample/target.gguf --draft data/sample/draft.safetensors

Models as in torch_host.py, on the CPU. The prompts are answered round after round, greedily, with chains; every
answer is held to plain decoding: exit code 1 where a token differs. Each pass runs over the whole text, for
clearness.
"""
import argparse
import ctypes as C
import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_host import Error, HeadDesc, Target, causal, fail, plain, read_config, read_safetensors, rms_norm, settings
from torch_host import Layer


# --- the library: structs of specrt.h, by name and order ---

class AlignParams(C.Structure):
    _fields_ = [("n_batch", C.c_int32), ("n_steps", C.c_int32), ("n_top", C.c_int32), ("temperature", C.c_float),
                ("beta", C.c_float), ("epsilon", C.c_float)]


class AlignPosition(C.Structure):
    _fields_ = [("context", C.c_uint64), ("step", C.c_int32), ("token", C.c_int32), ("covered", C.c_int32),
                ("rejected", C.c_int32), ("logits", C.c_void_p), ("hidden", C.c_void_p), ("drafted", C.c_int32),
                ("drafted_logprob", C.c_float)]


class AlignBatch(C.Structure):
    _fields_ = [("n", C.c_int32), ("contexts", C.POINTER(C.c_uint64)), ("steps", C.c_void_p),
                ("weights", C.c_void_p), ("n_top", C.c_void_p), ("ids", C.c_void_p), ("probs", C.c_void_p)]


class Library:
    def __init__(self, path):
        try:
            self.lib = C.CDLL(path)
        except OSError as error:
            fail("%s; the first lines of this file say how to build it" % error)
        self.lib.specrt_align_acquire.restype = C.POINTER(AlignBatch)

    def create(self, name, *args):
        handle, err = C.c_void_p(), Error()
        if getattr(self.lib, name)(*args, C.byref(handle), C.byref(err)):
            fail(err.msg.decode())
        return handle


# --- the drafter ---

class Drafter:
    """An EAGLE-1/2 head with LoRA on its queries and values. Rows are the layer's inputs, [n, d]."""

    def __init__(self, path, target, rank):
        tensors, config = read_safetensors(path, [path]), settings(read_config(os.path.dirname(path)))
        self.target, self.config, self.path = target, config, path
        self.fc, self.bias = tensors["fc.weight"].float(), tensors.get("fc.bias")
        self.layer = Layer(config, tensors, "layers.0.", torch.device("cpu"), torch.float32, False)
        d, q, v = self.fc.shape[0], self.layer.q.shape[0], self.layer.v.shape[0]
        self.lora = [torch.empty(rank, d).uniform_(-d ** -0.5, d ** -0.5), torch.zeros(q, rank),
                     torch.empty(rank, d).uniform_(-d ** -0.5, d ** -0.5), torch.zeros(v, rank)]
        for value in self.lora:
            value.requires_grad_(True)

    def rows(self, tokens, states):
        pair = torch.cat((self.target.embedding[tokens].float(), states), -1)
        return F.linear(pair, self.fc, None if self.bias is None else self.bias.float())

    def hidden(self, x):
        """The last row's state, which sees all rows."""
        layer, c, n = self.layer, self.config, x.shape[0]
        qa, qb, va, vb = self.lora
        positions = torch.arange(n)
        q = (x[-1:] @ layer.q.T + x[-1:] @ qa.T @ qb.T).view(1, c["n_heads"], -1).transpose(0, 1)
        k = (x @ layer.k.T).view(n, c["n_kv"], -1).transpose(0, 1)
        v = (x @ layer.v.T + x @ va.T @ vb.T).view(n, c["n_kv"], -1).transpose(0, 1)
        q, k = layer.rotate(q, positions[-1:]), layer.rotate(k, positions)
        repeat = c["n_heads"] // c["n_kv"]
        weights = (q @ k.repeat_interleave(repeat, 0).transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
        mixed = (weights @ v.repeat_interleave(repeat, 0)).transpose(0, 1).reshape(-1)
        h = x[-1] + layer.o @ mixed
        n = rms_norm(h, layer.after, c["epsilon"])
        return h + layer.down @ (F.silu(layer.gate @ n) * (layer.up @ n))


class Alignment:
    """What waits to be learnt from is the library's; where it was drafted is kept here, by number."""

    def __init__(self, library, head, drafter, args):
        params = AlignParams(args.batch, 6, 64, 1.0, 0.3, 0.1, 0)
        self.lib, self.drafter, self.kept, self.next = library.lib, drafter, {}, 0
        self.handle = library.create("specrt_align_create", head, drafter.target.head.shape[0], C.byref(params), None)
        self.optimiser = torch.optim.AdamW(drafter.lora, lr=args.rate, weight_decay=0.0)
        self.n_steps, self.loss = 0, 0.0

    def observe(self, positions):
        """positions: (rows, step, token, rejected, logits, hidden, drafted, logprob) of a cycle's accepted path."""
        told = (AlignPosition * len(positions))()
        for p, (rows, step, token, rejected, logits, hidden, drafted, logprob) in zip(told, positions):
            self.kept[self.next] = rows
            p.context, p.step, p.token, p.covered, p.rejected = self.next, step, token, 1, rejected
            p.logits, p.hidden, p.drafted, p.drafted_logprob = logits.data_ptr(), hidden.data_ptr(), drafted, logprob
            self.next += 1
        self.lib.specrt_align_observe(self.handle, told, len(positions))
        batch = self.lib.specrt_align_acquire(self.handle)
        if batch:
            self.learn(batch)

    def learn(self, batch):
        contexts = batch.contents.contexts[:batch.contents.n]
        with torch.enable_grad():
            hidden = torch.stack([self.drafter.hidden(self.kept[c]) for c in contexts])
            dh, loss, now = torch.empty_like(hidden), C.c_double(), hidden.detach().contiguous()
            bad = self.lib.specrt_align_gradient(self.handle, batch, C.c_void_p(now.data_ptr()),
                                                 C.c_void_p(dh.data_ptr()), C.byref(loss))
            if not bad:
                self.optimiser.zero_grad()
                hidden.backward(dh)
                torch.nn.utils.clip_grad_norm_(self.drafter.lora, 1.0)
                self.optimiser.step()
                self.n_steps, self.loss = self.n_steps + 1, loss.value / len(contexts)
        self.lib.specrt_align_release(self.handle, batch)
        self.kept.clear()


# --- decoding ---

def cycle(target, drafter, rows, root, num_steps):
    """A chain drafted after the root, and what the target says of it."""
    tokens, path, states, proposals = [root], rows, [], []
    for _ in range(num_steps):
        h = drafter.hidden(path).detach().contiguous()
        logprobs = (target.output.float() @ h).log_softmax(-1)
        best = int(logprobs.argmax())
        states.append((path, h))
        proposals.append((best, float(logprobs[best])))
        tokens.append(best)
        path = torch.cat((path, drafter.rows(torch.tensor([best]), h[None])))
    n = len(tokens)
    logits, features = target.forward(torch.tensor(tokens), torch.arange(n), causal(n, torch.device("cpu")))
    said = logits.argmax(-1).tolist()
    n_accepted = 0
    while n_accepted < num_steps and said[n_accepted] == tokens[n_accepted + 1]:
        n_accepted += 1
    emitted = said[:n_accepted + 1]
    positions = [(states[j][0], j + 1, emitted[j], int(j == n_accepted), logits[j], states[j][1], *proposals[j])
                 for j in range(min(n_accepted + 1, num_steps))]
    return emitted, features[:n_accepted + 1], positions


def answer(target, drafter, prompt, n, num_steps, alignment):
    target.length = 0
    logits, features = target.forward(torch.tensor(prompt), torch.arange(len(prompt)),
                                      causal(len(prompt), torch.device("cpu")))
    target.keep(list(range(len(prompt))))
    out, cycles = [int(logits[-1].argmax())], 0
    rows = drafter.rows(torch.tensor(prompt[1:] + out), features)
    while len(out) < n:
        emitted, features, positions = cycle(target, drafter, rows, out[-1], num_steps)
        target.keep(list(range(len(emitted))))
        rows = torch.cat((rows, drafter.rows(torch.tensor(emitted), features)))
        out += emitted
        cycles += 1
        if alignment:
            alignment.observe(positions)
    return out, cycles


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--ids", action="append", help="a prompt as token ids, 1,2,3; repeat")
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--max-tokens", type=int, default=48)
    p.add_argument("--num-steps", type=int, default=4)
    p.add_argument("--rank", type=int, default=32)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--rate", type=float, default=1e-3)
    p.add_argument("--library", default="build/libspecrt.so")
    args = p.parse_args()
    prompts = [[int(i) for i in text.split(",")] for text in args.ids or ["300,711,4096,98", "17000,21,5,900,33"]]
    torch.manual_seed(0)
    library, wrong = Library(os.path.abspath(args.library)), 0
    with torch.no_grad():
        size = max(map(len, prompts)) + args.max_tokens + 2 * args.num_steps + 8
        target = Target(args.target, size, torch.device("cpu"), torch.float32)
        drafter = Drafter(args.draft, target, args.rank)
        rows = target.output.float().contiguous()
        desc = HeadDesc(rows=rows.data_ptr(), dtype=0, n_rows=rows.shape[0], n_cols=rows.shape[1])
        head = library.create("specrt_head_bind", None, C.byref(desc), None)
        alignment = Alignment(library, head, drafter, args)
        expected = [plain(target, prompt, args.max_tokens, []) for prompt in prompts]
        for turn in range(args.rounds + 1):
            emitted = cycles = 0
            for prompt, right in zip(prompts, expected):
                out, n = answer(target, drafter, prompt, args.max_tokens, args.num_steps, alignment if turn else None)
                emitted, cycles = emitted + len(out) - 1, cycles + n
                wrong += out[:len(right)] != right
            print("%-8s accept length %.2f, %d steps, loss %.3f, %s plain decoding" %
                  ("round %d" % turn if turn else "frozen", emitted / cycles, alignment.n_steps, alignment.loss,
                   "DIFFERS FROM" if wrong else "equals"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
