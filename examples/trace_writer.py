"""trace_writer.py : decoding cycles of any Python stack as a trace for specrt (docs/FORMAT.md, "Traces").

    with TraceWriter("run.trace", n_vocab=128256, d_target=4096, d_draft=4096) as trace:
        trace.sequence(prompt_ids, domain="code")
        top = logits.topk(10)  # of the target, at the nodes that the tokens were drawn from
        trace.cycle(emitted, nodes=nodes, tree_tokens=tree, tree_parents=parents, target_hidden=hidden,
                    top_ids=top.indices, top_logits=top.values, top_logsumexp=logits.logsumexp(-1))"""
import struct
from contextlib import AbstractContextManager
from zlib import adler32
import numpy as np

FIELDS = [field.split(":") for field in (  # what may be known, by bit: name, type, shape
    "tokens:i4:n nodes:i4:n tree_tokens:i4:n_nodes tree_parents:i4:n_nodes tree_logprobs:f4:n_nodes "
    "target_hidden:f2:n:d_target top_ids:i4:n:n_top top_logits:f4:n:n_top top_logsumexp:f4:n "
    "draft_hidden:f2:n:d_draft draft_ids:i4:n:n_draft_top draft_logits:f4:n:n_draft_top "
    "draft_logsumexp:f4:n tree_top_ids:i4:n_nodes:n_tree_top prompt_hidden:f2:d_target").split()]
NAMES = [field[0] for field in FIELDS]


class TraceWriter(AbstractContextManager):
    def __init__(self, path, n_vocab, tree=(0, 0, 0), temperature=0.0, n_ids=0, terminators=(),
                 policy="", sha256=bytes(32), **sizes):
        self.sizes = {"d_target": 0, "d_draft": 0, "n_top": 10, "n_draft_top": 64, "n_tree_top": 0, **sizes}
        more = np.asarray(terminators, "<i4").tobytes() + (policy + "\0" if policy else "").encode()
        h = struct.pack("<8s8I32s3iIfiiIQQ", b"SPECRTRC", 3, len(more), n_vocab, *self.sizes.values(),
                        sha256, *tree, 0, temperature, n_ids, len(terminators), 1, adler32(more), 0)
        self.records, self.file = [], open(path, "wb")
        self.file.write(h + struct.pack("<Q", adler32(h)) + more)

    def sequence(self, tokens, domain="", **arrays):
        self.write(1, domain.encode()[:31].ljust(32, b"\0"), dict(arrays, tokens=tokens))

    def cycle(self, tokens, **arrays):
        self.write(2, b"", dict(arrays, tokens=tokens))

    def write(self, kind, domain, arrays):
        sizes = dict(self.sizes, n=len(arrays["tokens"]), n_nodes=len(arrays.get("tree_tokens", ())))
        has, body = 0, b""
        for bit in sorted(map(NAMES.index, arrays)):
            name, dtype, *shape = FIELDS[bit]
            x, size = arrays[name], np.prod([sizes[axis] for axis in shape])
            x = np.asarray(x.detach().double().cpu() if hasattr(x, "detach") else x, "<" + dtype)
            if x.size != size or size == 0:
                raise ValueError(f"{name}: expected {size} numbers, found {x.size}")
            has, body = has | 1 << bit, body + x.tobytes() + bytes(-x.nbytes % 4)
        self.records.append(struct.pack("<4I", kind, sizes["n"], sizes["n_nodes"], has) + domain + body)
        if sum(map(len, self.records)) >= 1 << 20:
            self.flush()

    def flush(self):  # everything so far becomes readable, whatever happens next
        if raw := b"".join(self.records):
            h = struct.pack("<4sIQQ", b"BLK1", len(self.records), len(raw), len(raw))
            self.file.write(h + struct.pack("<Q", adler32(raw, adler32(h))) + raw)
        self.file.flush()
        self.records = []

    def __exit__(self, *_):
        self.flush()
        self.file.close()
