"""Token ids of the training text, by domain, documents in an order that depends on the text alone; and what the
target is asked, from data/corpus."""
import glob
import gzip
import json
import os
import subprocess

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


def corpus_rows(path):
    """The rows of one file of data/corpus; of plain text one for all."""
    if path.endswith((".txt", ".md")):
        return [{"text": open(path, encoding="utf-8").read()}]
    if path.endswith(".json"):
        return json.load(open(path, encoding="utf-8"))
    read = {".gz": lambda: gzip.open(path).read(),
            ".zst": lambda: subprocess.run(["zstd", "-dc", path], stdout=subprocess.PIPE, check=True).stdout}
    raw = read.get(os.path.splitext(path)[1], lambda: open(path, "rb").read())()
    return [json.loads(line) for line in raw.splitlines()]


def question_of(row):
    """What a row asks; None: it is a text."""
    turns = row.get("messages") or row.get("conversations")
    return row.get("instruction") or (turns and (turns[0].get("content") or turns[0].get("value")))


def prompts(folder, tokenizer_file, rng, n_passages=1600, limit=112):
    """Up to where the answer begins, i32 [n] each, at most `limit`: all questions of data/corpus in the chat
    template, and passages of its texts, half of them as a question, half as they are, to be continued."""
    tokenizer = Tokenizer.from_file(tokenizer_file)
    special, text = tokenizer.token_to_id, lambda s: tokenizer.encode(s, add_special_tokens=False).ids
    turn = lambda role: [special("<|start_header_id|>"), *text(role), special("<|end_header_id|>"), *text("\n\n")]
    begin, end = special("<|begin_of_text|>"), special("<|eot_id|>")
    ask = lambda ids: [begin, *turn("user"), *ids, end, *turn("assistant")]
    rows = [row for path in sorted(glob.glob(os.path.join(folder, "*", "*.*"))) for row in corpus_rows(path)]
    made = [ask(text(q)) for q in map(question_of, rows) if q]
    texts = [ids for ids in (text(row["text"]) for row in rows if "text" in row) if len(ids) > 32]
    lengths = np.cumsum([len(ids) for ids in texts])
    for i in range(n_passages):
        of = texts[np.searchsorted(lengths, rng.integers(lengths[-1]), side="right")]
        n, start = rng.integers(8, 48), rng.integers(len(of) - 8)
        made.append(ask(of[start:start + n]) if i % 2 else [begin, *of[start:start + n]])
    return [np.array(ids, np.int32) for ids in made if len(ids) <= limit]


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
