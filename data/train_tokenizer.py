#!/usr/bin/env python3
"""Trains data/tokenizer.json: a byte-level BPE of 32,768 ids on the text of collect_text.py.

usage: data/train_tokenizer.py [TEXT] [-o FILE] [--compare RANKS]

Needs PyPI's tokenizers (0.23.3 made the committed file). Splitting, normalisation (none) and whole
words before merges (ignore_merges) are Llama-3's, and the special tokens have its names and its
offsets from the end of the normal ids, so a chat template or an engine made for Llama-3 works. Each
domain gives at most CAP bytes, whole documents chosen by their digest. The result depends on the
text and the library's version only. --compare prints the size in tokens beside a tiktoken rank
file's (needs PyPI's tiktoken)."""
import argparse
import glob
import hashlib
import json
import os
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

N_VOCAB = 32768
CAP = 6 << 20
HOLDOUT = 50  # one document of so many is kept out of training, for the figures printed
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = {0: "<|begin_of_text|>", 1: "<|end_of_text|>", 4: "<|pad|>", 6: "<|start_header_id|>",
            7: "<|end_header_id|>", 9: "<|eot_id|>"}
N_SPECIAL = 16
LONGEST = 32  # characters of a token: no ids for rulers and rows of dashes


def special_tokens():
    reserved = iter(range(N_SPECIAL))
    return [SPECIALS.get(i) or f"<|reserved_special_token_{next(reserved)}|>"
            for i in range(N_SPECIAL)]


def documents_of(folder, domain):
    """[(digest, document)] of one domain, in an order that depends on the text alone."""
    lines = [line for path in sorted(glob.glob(os.path.join(folder, domain, "*.jsonl")))
             for line in open(path, "rb")]
    found = [(hashlib.sha256(line).digest(), line) for line in lines]
    return [(digest, json.loads(line)) for digest, line in sorted(found)]


def documents(folder):
    """{domain: [(digest, text)]}"""
    return {domain: [(digest, row.get("text") or chat(row["messages"]))
                     for digest, row in documents_of(folder, domain)]
            for domain in sorted(os.listdir(folder)) if os.path.isdir(os.path.join(folder, domain))}


def chat(messages):
    """As a chat template shows it, less the special tokens: role names become single ids."""
    return "".join(f"{m['role']}\n\n{m['content']}" for m in messages)


def split(texts):
    """(training texts up to CAP bytes, held-out texts up to a twelfth of it)."""
    train, held, sizes = [], [], [0, 0]
    for digest, text in texts:
        out = int.from_bytes(digest[-4:], "big") % HOLDOUT == 0
        if sizes[out] < (CAP // 12 if out else CAP):
            (held if out else train).append(text)
            sizes[out] += len(text.encode())
    return train, held


def train(texts):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=N_VOCAB - N_SPECIAL, max_token_length=LONGEST, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.add_special_tokens(special_tokens())
    begin = special_tokens()[0]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1",
        special_tokens=[(begin, tokenizer.token_to_id(begin))])
    return tokenizer


def check(tokenizer):
    """Ids are contiguous: bytes, then what each merge makes in turn, then the specials."""
    saved = json.loads(tokenizer.to_str())
    vocab, merges = saved["model"]["vocab"], saved["model"]["merges"]
    n_normal = N_VOCAB - N_SPECIAL
    assert sorted(vocab.values()) == list(range(n_normal)) and len(merges) == n_normal - 256
    assert [vocab["".join(pair)] for pair in merges] == list(range(256, n_normal))
    assert [t["id"] for t in saved["added_tokens"]] == list(range(n_normal, N_VOCAB))


def report(tokenizer, held, ranks):
    other = None
    if ranks:
        import tiktoken
        import tiktoken.load
        other = tiktoken.Encoding("other", pat_str=SPLIT, special_tokens={},
                                  mergeable_ranks=tiktoken.load.load_tiktoken_bpe(ranks))
    print("held-out text    bytes/token" + ("   beside" if other else ""))
    for domain, texts in held.items():
        n_bytes = sum(len(t.encode()) for t in texts)
        ids = tokenizer.encode_batch(texts, add_special_tokens=False)
        assert all(tokenizer.decode(i.ids, skip_special_tokens=False) == t
                   for i, t in zip(ids, texts)), f"{domain}: no round trip"
        line = f"{domain:12} {n_bytes:9} {n_bytes / sum(len(i.ids) for i in ids):9.3f}"
        if other:
            line += f" {n_bytes / sum(len(i) for i in other.encode_ordinary_batch(texts)):8.3f}"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", nargs="?", default="build/text")
    parser.add_argument("-o", "--output", default="data/tokenizer.json")
    parser.add_argument("--compare", metavar="RANKS")
    options = parser.parse_args()
    parts = {domain: split(texts) for domain, texts in documents(options.text).items()}
    if not parts:
        sys.exit(f"{options.text}: no DOMAIN/*.jsonl in it; run data/collect_text.py first")
    tokenizer = train(text for train_texts, _ in parts.values() for text in train_texts)
    check(tokenizer)
    tokenizer.save(options.output, pretty=False)
    report(tokenizer, {domain: held for domain, (_, held) in parts.items()}, options.compare)


if __name__ == "__main__":
    main()
