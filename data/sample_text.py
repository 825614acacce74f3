"""Token ids of the training text, by domain, documents in an order that depends on the text alone."""
import hashlib
import json
import os

import numpy as np
from tokenizers import Tokenizer

from train_tokenizer import documents_of

HOLDOUT = 100  # one document of so many is kept out of training, for the figures printed
# Share of the training windows; about one pass over the small domains and a third of the large ones.
DOMAINS = {"code": .25, "technical": .2, "medical": .15, "prose": .12, "qa": .11, "math": .1,
           "legal": .07}


def encode(tokenizer, row):
    """A document as the target reads it: plain, or in the chat template."""
    special = tokenizer.token_to_id
    begin, end = special("<|begin_of_text|>"), special("<|end_of_text|>")
    text = lambda s: tokenizer.encode(s, add_special_tokens=False).ids
    if "text" in row:
        return [begin] + text(row["text"]) + [end]
    ids = [begin]
    for m in row["messages"]:
        ids += [special("<|start_header_id|>")] + text(m["role"]) + [special("<|end_header_id|>")]
        ids += text("\n\n") + text(m["content"]) + [special("<|eot_id|>")]
    return ids


def tokens(folder, tokenizer_file, out):
    """Writes out/DOMAIN.{train,heldout}.npy, uint16, once."""
    tokenizer = Tokenizer.from_file(tokenizer_file)
    os.makedirs(out, exist_ok=True)
    for domain in DOMAINS:
        files = {part: os.path.join(out, f"{domain}.{part}.npy") for part in ("train", "heldout")}
        if all(map(os.path.exists, files.values())):
            continue
        ids = {"train": [], "heldout": []}
        for digest, row in documents_of(folder, domain):
            part = "heldout" if int.from_bytes(digest[-4:], "big") % HOLDOUT == 0 else "train"
            ids[part].append(np.array(encode(tokenizer, row), np.uint16))
        for part, arrays in ids.items():
            np.save(files[part], np.concatenate(arrays))
        print(f"{domain}: {sum(map(len, ids['train'])) / 1e6:.2f}M tokens", flush=True)


class Windows:
    """Training windows of n + 1 ids. Each pass over a domain cuts it anew, in a new order."""

    def __init__(self, folder, seed):
        self.rng = np.random.default_rng(seed)
        self.ids = {d: np.load(os.path.join(folder, f"{d}.train.npy")) for d in DOMAINS}
        self.starts = {d: np.empty(0, np.int64) for d in DOMAINS}

    def window(self, domain, n):
        if not len(self.starts[domain]):
            first = self.rng.integers(n)
            starts = np.arange(first, len(self.ids[domain]) - n - 1, n)
            self.starts[domain] = self.rng.permutation(starts)
        start, self.starts[domain] = self.starts[domain][-1], self.starts[domain][:-1]
        start = min(start, len(self.ids[domain]) - n - 1)
        return self.ids[domain][start:start + n + 1].astype(np.int64)

    def batch(self, size, n):
        domains = self.rng.choice(list(DOMAINS), size, p=list(DOMAINS.values()))
        return np.stack([self.window(d, n) for d in domains])

    def counts(self, n_vocab):
        """How often each id is expected, by the shares above."""
        return sum(share * np.bincount(self.ids[d], minlength=n_vocab) / len(self.ids[d])
                   for d, share in DOMAINS.items())
