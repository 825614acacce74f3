#!/usr/bin/env python3
"""Makes the small tokenizer.json files of this folder and cases.json, the ids that PyPI's tokenizers
(0.23.3) gives for random texts under each. Run it here to make them again."""
import json
import pathlib
import random

import tokenizers

HERE = pathlib.Path(__file__).parent
SAMPLE = """It's the end of the world, the 123rd time in 2024! We've been here before: they'll say "no",
we'd say 'yes'. Größe, naïve café; Ελληνικά, 漢字かな交じり文。 x = y + 12345; return the_answer(); the the in on
""" * 3


def alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    letters = {b: chr(b) for b in printable}
    letters.update({b: chr(256 + i) for i, b in enumerate(rest)})
    return letters


LETTERS = alphabet()


def learn(words, n):
    """n merges, the most frequent pair first, ties in order of appearance."""
    merges = []
    for _ in range(n):
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=counts.get)
        merges.append(best)
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i:i + 2] = ["".join(best)]
                i += 1
    return merges


def added(content, i, special=False, normalized=False, **options):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": normalized, "special": special, **options}


def write(name, vocab, merges, pre_tokenizer=None, normalizer=None, added_tokens=(), pairs=True,
          **model):
    body = {"version": "1.0", "added_tokens": list(added_tokens), "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", **model, "vocab": vocab,
                      "merges": [list(m) if pairs else " ".join(m) for m in merges]}}
    (HERE / f"{name}.json").write_text(json.dumps(body, ensure_ascii=False, indent=0) + "\n")


def byte_level(use_regex=True, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True,
            "use_regex": use_regex}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def make_byte_level():
    words = [[LETTERS[b] for b in (" " + w).encode()] for w in SAMPLE.split()]
    merges = learn(words, 90)
    vocab = {LETTERS[b]: b for b in range(256)}
    for pair in merges:
        vocab.setdefault("".join(pair), len(vocab))
    n = len(vocab)
    tools = [added("<|end|>", n, True), added("<tool>", n + 1), added("<tool>x", n + 2),
             added("<left>", n + 3, lstrip=True), added("<right>", n + 4, rstrip=True),
             added("word", n + 5, single_word=True), added("<|end|><tool>", n + 6, True),
             added("  ", n + 7, normalized=True), added("Å", n + 8, normalized=True)]
    write("bytes", vocab, merges, byte_level(), None, tools, pairs=False)
    write("bytes_prefix", vocab, merges[:60], byte_level(prefix=True), None, tools[:5],
          ignore_merges=True)
    write("bytes_nfc", vocab, merges, byte_level(), {"type": "NFC"}, tools)
    forms = sequence("normalizers", {"type": "NFKC"},
                     {"type": "Replace", "pattern": {"String": "the"}, "content": "a  b"},
                     {"type": "Prepend", "prepend": "zz"})
    digits = sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level())
    write("bytes_forms", vocab, merges, digits, forms, tools)
    write("bytes_nfd", vocab, merges, byte_level(), {"type": "NFD"}, tools[:2])
    lean = {t: i for t, i in vocab.items() if t not in "ĄqÇ"}
    lean = {t: i for i, t in enumerate(lean)}
    write("bytes_lean", lean, merges, byte_level())  # three bytes have no token


def make_sentencepiece():
    words = [list("▁" + w) for w in SAMPLE.split()]
    letters = sorted({c for w in words for c in w} - set("漢字"))
    merges = [("▁", "▁"), ("▁▁", "▁▁")] + learn(words, 80)
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for b in range(256):
        vocab[f"<0x{b:02X}>"] = len(vocab)
    for text in letters + ["".join(m) for m in merges]:
        vocab.setdefault(text, len(vocab))
    n = len(vocab)
    marks = [added(t, i, True) for t, i in list(vocab.items())[:3]]
    tools = marks + [added("<tool>", n), added("</right>", n + 1, rstrip=True), added("<n>", n + 2, normalized=True)]
    model = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    spaces = sequence("normalizers", PREPEND, REPLACE)
    write("spm", vocab, merges, None, spaces, tools, pairs=False, **model)
    write("spm_first", vocab, merges, metaspace("first", False), None, tools, **model)
    write("spm_always", vocab, merges, metaspace("always", True), None, tools, **model)
    write("spm_never", vocab, merges, metaspace("never", True), None, tools, **model)
    gemma = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
             "invert": False}
    write("spm_gemma", vocab, merges, gemma, REPLACE, tools + [added("▁▁", vocab["▁▁"]), added("\n", n + 3)],
          **model)
    pieces = {t: i for i, t in enumerate(t for t in vocab if not t.startswith("<0x"))}
    write("chars", pieces, merges, {"type": "Whitespace"}, None, marks[:1], unk_token="<unk>")
    write("chars_fused", pieces, merges, {"type": "Punctuation"}, None, marks[:1], unk_token="<unk>",
          fuse_unk=True)
    write("chars_gone", pieces, merges, {"type": "WhitespaceSplit"})


def texts():
    parts = ["the", " the", " ", "  ", "    ", "\n", "\t", "word", "words", "<tool>", "<tool>x", "<left>",
             "<right>", "</right>", "<|end|>", "<n>", "</s>", "<unk>", "it's", "'ll", "12345", "½", "²",
             "漢字", "かな", "é", "e\u0301", "A\u030a", "Å", "ﬁ", "①", "x", "q", "ü", "\u0005", "▁", "▁the",
             "🦙", "…", "_", "-", "\0", "Ελ", "\u3000", "ā", "한", "\u1112\u1161\u11ab", "=", "in", "on"]
    return ["", " ", "▁", "a", "漢", "<tool>"] + [
        "".join(random.choices(parts, k=random.randint(1, 14))) for _ in range(60)]


def main():
    make_byte_level()
    make_sentencepiece()
    random.seed(3)
    cases = {}
    for path in sorted(HERE.glob("*.json")):
        if path.stem == "cases":
            continue
        peer = tokenizers.Tokenizer.from_file(str(path))
        peer.encode_special_tokens = True
        cases[path.stem] = [[t, peer.encode(t, add_special_tokens=False).ids] for t in texts()]
    (HERE / "cases.json").write_text("{\n" + ",\n".join(
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(c) for c in list_) + "]"
        for name, list_ in cases.items()) + "\n}\n")


main()
