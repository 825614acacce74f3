"""trace_writer.py : decoding cycles of any Python stack as a trace for specrt (docs/FORMAT.md, "Traces").

    with TraceWriter("run.trace", n_vocab=128256, d_target=4096, d_draft=4096) as trace:
        trace.sequence(prompt_ids, domain="code")
        ids, values, total = best(target_logits, 10)  # at the nodes the tokens were drawn from
        trace.cycle(emitted, nodes=nodes, tree_tokens=tree, tree_parents=parents, top_ids=ids,
                    top_logits=values, top_logsumexp=total, target_hidden=hidden)

Arrays are what numpy.asarray takes (tensors: .float().cpu()); those not known are left out. Needs numpy alone; with
libzstd, which is on most machines, files get smaller."""
import ctypes
import ctypes.util
import struct
import numpy as np

WIDTHS = "n_vocab d_target d_draft n_top n_draft_top n_tree_top".split()
FIELDS = [  # name, type, rows (of tokens or of nodes), columns; in the order of their bits
    ("tokens", "<i4", "n", ""), ("nodes", "<i4", "n", ""), ("tree_tokens", "<i4", "nodes", ""),
    ("tree_parents", "<i4", "nodes", ""), ("tree_logprobs", "<f4", "nodes", ""),
    ("target_hidden", "<f2", "n", "d_target"), ("top_ids", "<i4", "n", "n_top"),
    ("top_logits", "<f4", "n", "n_top"), ("top_logsumexp", "<f4", "n", ""),
    ("draft_hidden", "<f2", "n", "d_draft"), ("draft_ids", "<i4", "n", "n_draft_top"),
    ("draft_logits", "<f4", "n", "n_draft_top"), ("draft_logsumexp", "<f4", "n", ""),
    ("tree_top_ids", "<i4", "nodes", "n_tree_top")]
P, M = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579,
        2870177450012600261), (1 << 64) - 1


ZSTD = ctypes.CDLL(ctypes.util.find_library("zstd")) if ctypes.util.find_library("zstd") else None


def compress(raw):
    """One zstd frame, or the bytes themselves."""
    if not ZSTD:
        return raw
    buffer = ctypes.create_string_buffer(len(raw))
    ZSTD.ZSTD_compress.restype = ctypes.c_size_t  # of what does not fit: an error, a huge number
    n = ZSTD.ZSTD_compress(buffer, ctypes.c_size_t(len(raw)), raw, ctypes.c_size_t(len(raw)), 3)
    return buffer.raw[:n] if n < len(raw) else raw


def rotl(x, r):
    return (x << r | x >> (64 - r)) & M


def mix(a, x):
    return rotl(a + x * P[1] & M, 31) * P[0] & M


def xxh64(b, seed=0):
    v, at = [seed + P[0] + P[1], seed + P[1], seed, seed - P[0]], len(b) & ~31
    for x in struct.iter_unpack("<4Q", b[:at]):
        v = [mix(a, y) for a, y in zip(v, x)]
    h = sum(rotl(a & M, r) for a, r in zip(v, (1, 7, 12, 18))) if at else seed + P[4]
    for a in v if at else ():
        h = ((h ^ mix(0, a)) * P[0] + P[3]) & M
    h = h + len(b) & M
    for (x,) in struct.iter_unpack("<Q", b[at:len(b) & ~7]):
        h = rotl(h ^ mix(0, x), 27) * P[0] + P[3] & M
    if len(b) & 4:
        h = rotl(h ^ int.from_bytes(b[len(b) & ~7:][:4], "little") * P[0] & M, 23) * P[1] + P[2] & M
    for x in b[len(b) & ~3:]:
        h = rotl(h ^ x * P[4] & M, 11) * P[0] & M
    h = (h ^ h >> 33) * P[1] & M
    h = (h ^ h >> 29) * P[2] & M
    return h ^ h >> 32


def best(logits, k):
    """The k best ids of each row, their logits, and the log-sum-exp over the row."""
    logits = np.asarray(logits, "f4")
    ids = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    top = logits.max(-1, keepdims=True)
    total = np.log(np.exp((logits - top).astype("f8")).sum(-1)) + top[..., 0]
    return ids, np.take_along_axis(logits, ids, -1), total


class TraceWriter:
    def __init__(self, path, n_vocab, d_target=0, d_draft=0, n_top=10, n_draft_top=64, n_tree_top=0,
                 tree=(0, 0, 0), temperature=0.0, n_ids=0, terminators=(), policy="", sha256=bytes(32)):
        sizes = (n_vocab, d_target, d_draft, n_top, n_draft_top, n_tree_top)
        more = np.asarray(terminators, "<i4").tobytes() + (policy.encode() + b"\0" if policy else b"")
        h = struct.pack("<8sII6i32s3iIfiiIQQ", b"SPECRTRC", 2, len(more), *sizes, sha256, *tree, 0,
                        temperature, n_ids, len(terminators), 0, xxh64(more), 0)
        self.width, self.file = dict(zip(WIDTHS, sizes)), open(path, "wb")
        self.file.write(h + struct.pack("<Q", xxh64(h)) + more)
        self.raw, self.n_raw = [], 0

    def sequence(self, tokens, domain="", **arrays):
        name = domain.encode()[:31].ljust(32, b"\0")
        self.write(1, name, dict(arrays, tokens=tokens), len(tokens), 0)

    def cycle(self, tokens, **arrays):
        self.write(2, b"", dict(arrays, tokens=tokens), len(tokens), len(arrays["tree_tokens"]))

    def write(self, kind, name, arrays, n, n_nodes):
        body, has = b"", 0
        for bit, (field, kind_of, rows, columns) in enumerate(FIELDS):
            if arrays.get(field) is None:
                continue
            size = (n if rows == "n" else n_nodes) * self.width.get(columns, 1)
            array = np.ascontiguousarray(arrays[field], kind_of)
            if array.size != size or size == 0:
                raise ValueError(f"{field}: expected {size} numbers, found {array.size}")
            body += array.tobytes() + bytes(-array.nbytes % 4)
            has |= 1 << bit
        self.raw.append(struct.pack("<4I", kind, n, n_nodes, has) + name + body)
        self.n_raw += len(self.raw[-1])
        if self.n_raw >= 1 << 20:
            self.flush()

    def flush(self):
        """Everything so far becomes readable, whatever happens next."""
        raw = b"".join(self.raw)
        if raw:
            stored = compress(raw)
            h = struct.pack("<IIQQ", 0x314B4C42, len(self.raw), len(raw), len(stored))
            self.file.write(h + struct.pack("<Q", xxh64(stored, xxh64(h))) + stored)
        self.file.flush()
        self.raw, self.n_raw = [], 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.flush()
        self.file.close()
