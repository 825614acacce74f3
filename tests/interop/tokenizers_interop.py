#!/usr/bin/env python3
"""Our token ids against those of PyPI's tokenizers and tiktoken. Opt-in: run from the project's root;
needs the packages tokenizers, tiktoken and gguf and the data folder ($SPECRT_DATA or ../shared/data), and
says so when they are missing. Arguments: families to try (all, and "splitters"), and --megabytes N of real text (all).

Each family is built in every form it has, from rank files, GGUF vocabularies or a tokenizer.json: a
rank file, a tokenizer.json (merges recovered from ranks or scores), a GGUF. All forms must have one
fingerprint, and all must give the peers' ids, special tokens never being read from text. A family
whose file is missing is skipped with the command that fetches it."""
import argparse
import array
import base64
import gzip
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import unicodedata

try:
    import gguf
    import tiktoken
    import tokenizers
except ImportError as missing:
    print(f"skipped: {missing}; pip install tokenizers tiktoken gguf")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

DATA = pathlib.Path(os.environ.get("SPECRT_DATA") or "../shared/data")
WORK = pathlib.Path("build/interop")
ENCODE = "build/tests/encode"
MODELS = pathlib.Path("build/models")                # make models NAME=...
LLAMA = pathlib.Path("build/llama/src/models")       # make llama-fetch

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = HEAD + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = HEAD + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{HEAD}?|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*"
         rf"{HEAD}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + TAIL)
DEEPSEEK_LETTERS = (  # hexadecimal: several change under NFC, which editors and tools may apply
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A "
    "38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF "
    "1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D "
    "1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 "
    "1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F "
    "2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F "
    "A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 "
    "104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943")


def char_class(ranges):
    return "".join("-".join(chr(int(c, 16)) for c in r.split("-")) for r in ranges.split())


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": use_regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


DEEPSEEK = sequence(split("[\r\n]"), split(rf"\s?[{char_class(DEEPSEEK_LETTERS)}]+"),
                    split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
                    split("[一-龥ࠀ-一가-퟿]+"), {"type": "Digits", "individual_digits": True},
                    byte_level(False))
FALCON = sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(True),
                  {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))
HAN = r"&&[^\p{Han}]"
OTHER_SPLITTERS = {  # of tokenizers whose vocabularies are not at hand, run on Llama 3's
    "deepseek-v3": [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
        "| ?[\\p{P}\\p{S}]+[\r\n]*|" + TAIL)],
    "tekken": [split(O200K.replace(HEAD + "?", "").replace("{1,3}", ""))],
    "kimi-k2": [split(rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{HAN}]*[{LOWER}{HAN}]+{HEAD}?|"
                      rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{HAN}]+[{LOWER}{HAN}]*{HEAD}?|\p{{N}}{{1,3}}| ?"
                      rf"[^\s\p{{L}}\p{{N}}]+[\r\n]*|" + TAIL)],
    "cl100k": [split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++"
                     r"[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")],
    "aya": [split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(O200K)],
    "superbpe": [split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))")],
    "starcoder": [{"type": "Digits", "individual_digits": True}, split(GPT2)],
    "deepseek-coder": [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                       split("[一-龥ࠀ-一가-퟿]+"), {"type": "Digits", "individual_digits": True}],
}
SPACES = {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}

passed = failed = skipped = 0


def check(name, ok, detail=""):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print(f"FAIL {name}: {detail}")


# ---- our encoder ----

def ours(tokenizer, texts):
    """Ids of each text (bytes), through the command that drives our encoder."""
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    run = subprocess.run([ENCODE, str(tokenizer)], input=data, capture_output=True, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr.decode().strip())
    out, ids, at = memoryview(run.stdout), [], 0
    while at < len(out):
        n, = struct.unpack_from("<i", out, at)
        ids.append(array.array("i", out[at + 4:at + 4 + 4 * n].tobytes()))
        at += 4 + 4 * n
    return ids


def our_fingerprint(tokenizer):
    run = subprocess.run([ENCODE, str(tokenizer), "--fingerprint"], capture_output=True, text=True,
                         check=True)
    return run.stdout.strip()


# ---- building the forms of a family ----

def alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    letters = {b: chr(b) for b in printable}
    letters.update({b: chr(256 + i) for i, b in enumerate(rest)})
    return letters


LETTERS = alphabet()


def spell(token):
    return "".join(LETTERS[b] for b in token)


def read_ranks(path):
    data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    return {base64.b64decode(t): int(r) for t, r in (l.split() for l in data.splitlines() if l)}


def recover_merges(ranks):
    """The last merge of each token: merging its bytes by rank, below its own, leaves two parts."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [token[i:i + 1] for i in range(len(token))]
        while len(parts) > 2:
            found = [ranks.get(a + b, rank) for a, b in zip(parts, parts[1:])]
            best = min(found)
            if best >= rank:
                break
            i = found.index(best)
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            merges.append((spell(parts[0]), spell(parts[1])))
    return merges


def added(content, token_id, special, normalized=False, **options):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": normalized, "special": special, **options}


def write_json(path, vocab, merges, pre_tokenizer, normalizer=None, added_tokens=(), pairs=True,
               **model):
    body = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added_tokens),
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
            "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **model,
                      "vocab": vocab, "merges": [list(m) if pairs else " ".join(m) for m in merges]}}
    path.write_text(json.dumps(body, ensure_ascii=False))
    return path


def write_gguf(path, pre, tokens, types, merges, eos):
    w = gguf.GGUFWriter(path, "llama")
    w.add_name(path.stem)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([" ".join(m) for m in merges])
    w.add_eos_token_id(eos)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


class Missing(Exception):
    """A file that a command fetches."""


def there(path, command):
    if not path.exists():
        raise Missing(f"no {path}: {command}")
    return path


def from_ranks(name, source, pre, pre_tokenizer, regex, specials, normalizer=None, **model):
    """A family that comes as a rank file, which we read only of `source` under the data folder."""
    ours = isinstance(source, str)
    source = DATA / "tokenizers" / source if ours else source
    ranks = read_ranks(source)
    merges = recover_merges(ranks)
    vocab = {spell(t): r for t, r in ranks.items()}
    extra = [added(text, i, True) for text, i in specials.items()]
    path = WORK / f"{name}.json"
    write_json(path, vocab, merges, pre_tokenizer, normalizer, extra, pairs=name != "qwen2", **model)
    tokens, types = [""] * (max(specials.values()) + 1), []
    for text, i in {**vocab, **specials}.items():
        tokens[i] = text
    types = [1 if i < len(ranks) else 3 if t else 5 for i, t in enumerate(tokens)]
    tokens = [t or f"[PAD{i}]" for i, t in enumerate(tokens)]
    forms = [path, write_gguf(WORK / f"{name}.gguf", pre, tokens, types, merges,
                              min(specials.values()))]
    forms += [source] if ours else []
    encoding = tiktoken.Encoding(name, pat_str=regex, mergeable_ranks=ranks, special_tokens=specials)
    return forms, path, encoding


def from_json(name, source, pre):
    """A byte-level family that comes as a tokenizer.json: a GGUF as converters make it."""
    body = json.loads(source.read_text())
    vocab, merges = body["model"]["vocab"], body["model"]["merges"]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in merges]
    kinds = {t["content"]: 3 if t["special"] else 4 for t in body["added_tokens"]}
    ids = {**vocab, **{t["content"]: t["id"] for t in body["added_tokens"]}}
    tokens = [f"[PAD{i}]" for i in range(max(ids.values()) + 1)]
    types = [5] * len(tokens)
    for text, i in ids.items():
        tokens[i], types[i] = text, kinds.get(text, 1)
    made = write_gguf(WORK / f"{name}.gguf", pre, tokens, types, merges, 1)
    return [source, made], source, None


def read_gguf(name, folder=None):
    path = (folder or DATA / "tokenizers/gguf") / f"ggml-vocab-{name}.gguf"
    fields = gguf.GGUFReader(path).fields
    return path, lambda key: fields["tokenizer.ggml." + key].contents()


def gguf_added(tokens, types, **options):
    return [added(t, i, kind != 4, normalized=kind == 4 and not options,
                  **(options if kind == 4 else {}))
            for i, (t, kind) in enumerate(zip(tokens, types))
            if kind == 4 or kind in (2, 3) and not t.startswith("[PAD")]


def from_gguf(name, pre_tokenizer):
    """A byte-level family that comes as a GGUF vocabulary."""
    path, get = read_gguf(name)
    tokens, types = get("tokens"), get("token_type")
    vocab = {t: i for i, t in enumerate(tokens) if types[i] == 1 or types[i] == 3 and i < 20}
    merges = [tuple(m.split(" ")) for m in get("merges")]
    made = write_json(WORK / f"{name}.json", vocab, merges, pre_tokenizer,
                      added_tokens=gguf_added(tokens, types))
    return [path, made], made, None


def merges_of_scores(vocab, scores):
    """As converters do: every way to cut a piece in two, the best scores first."""
    merges = []
    for piece, i in vocab.items():
        halves = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
        merges += [(scores[i], a, b) for a, b in halves if a in vocab and b in vocab]
    merges.sort(key=lambda m: (-m[0], vocab[m[1]], vocab[m[2]]))
    return [(a, b) for _, a, b in merges]


def from_sentencepiece(name, **options):
    path, get = read_gguf(name)
    tokens, types, scores = get("tokens"), get("token_type"), get("scores")
    vocab = {t: i for i, t in enumerate(tokens) if i < 32000}
    pieces = {t: i for t, i in vocab.items() if types[i] == 1}
    made = write_json(WORK / f"{name}.json", vocab, merges_of_scores(pieces, scores), None, SPACES,
                      gguf_added(tokens, types, **options), unk_token="<unk>", fuse_unk=True,
                      byte_fallback=True)
    return [path, made], made, None


def from_qwen35(**model):
    """Of these ranks 232 are reached by no merge. tiktoken finds them whole, and so does a tokenizer.json
    that says ignore_merges; of a GGUF, which cannot say so, this is no form then."""
    source = there(MODELS / "qwen35.tiktoken", "make models NAME=qwen35-tokens")
    forms, path, encoding = from_ranks("qwen35", source, "qwen35", sequence(split(QWEN35), byte_level(False)),
                                       QWEN35, QWEN35_SPECIALS, {"type": "NFC"}, **model)
    return [path] if model else forms, path, encoding


def from_gemma4():
    """BPE over characters, with merges, as llama.cpp's sources have it."""
    there(LLAMA / "ggml-vocab-gemma-4.gguf", "make llama-fetch")
    path, get = read_gguf("gemma-4", LLAMA)
    tokens, types = get("tokens"), get("token_type")
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = [tuple(m.split(" ")) for m in get("merges")]
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    words = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    made = write_json(WORK / "gemma-4.json", vocab, merges, words, spaces, gguf_added(tokens, types),
                      unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return [path, made], made, None


LLAMA3_SPECIALS = {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|eot_id|>": 128009}
QWEN_SPECIALS = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
QWEN35_SPECIALS = {"<|endoftext|>": 248044, "<|im_start|>": 248045, "<|im_end|>": 248046}
FAMILIES = {
    "llama3": lambda: from_ranks("llama3", "llama3/tokenizer.model", "llama-bpe",
                                 sequence(split(LLAMA3), byte_level(False)), LLAMA3,
                                 LLAMA3_SPECIALS, ignore_merges=True),
    "qwen2": lambda: from_ranks("qwen2", "qwen/qwen.tiktoken", "qwen2",
                                sequence(split(QWEN2), byte_level(False)), QWEN2, QWEN_SPECIALS,
                                {"type": "NFC"}),
    "o200k": lambda: from_ranks("o200k", "openai/o200k_base.tiktoken.gz", "gpt-4o",
                                sequence(split(O200K), byte_level(False)), O200K,
                                {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
    "qwen35": lambda: from_qwen35()[:2] + (None,),
    "qwen35-whole": lambda: from_qwen35(ignore_merges=True),
    "deepseek-v3": lambda: from_json("deepseek-v3", there(
        MODELS / "deepseek-v3.json", "make models NAME=deepseek-v3-tokens"), "deepseek-v3"),
    "deepseek-v4": lambda: from_json("deepseek-v4", there(
        MODELS / "deepseek-v4.json", "make models NAME=deepseek-v4-tokens"), "deepseek-v3"),
    "gemma-4": from_gemma4,
    "gpt-2": lambda: from_gguf("gpt-2", byte_level(True)),
    "deepseek-llm": lambda: from_gguf("deepseek-llm", DEEPSEEK),
    "falcon": lambda: from_gguf("falcon", FALCON),
    "llama-spm": lambda: from_sentencepiece("llama-spm"),
    "phi-3": lambda: from_sentencepiece("phi-3", rstrip=True),
}

# ---- texts ----


def strings_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_of(item)


def generations(limit):
    """Every distinct text of the recorded generations, up to `limit` bytes."""
    seen, total = {}, 0
    for path in sorted((DATA / "generations").rglob("*.json")):
        for text in strings_of(json.loads(path.read_text())):
            if text not in seen:
                seen[text] = None
                total += len(text)
                if total > limit:
                    return list(seen)
    return list(seen)


def code_points(known):
    """All code points that Python's Unicode has (or those it lacks), in random order."""
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and
              (unicodedata.category(chr(c)) != "Cn") == known]
    random.shuffle(points)
    return points


def hostile():
    """Named texts, as bytes: they need not be UTF-8."""
    letters = "abcdefghijklmnopqrstuvwxyzéß漢字かなкириллица"
    word = "".join(random.choices(letters, k=250000))
    digits = "".join(random.choices("0123456789", k=250000))
    mixed = "".join(random.choices(letters + letters.upper() + "0123456789-_/.,'😀", k=200000))
    marks = "".join(random.choices("aeo\u0300\u0301\u0323\u0345\u0f71\u1100\u1161\u11a8한é", k=50000))
    spaces = "".join(random.choices(" \t\n\r\u00a0\u2028\u3000\u200b\u180e x1.", k=50000))
    joins = "👨\u200d👩\u200d👧\u200d👦 🏴\U000e0067\U000e0062\U000e007f 👍🏽 ❤️\u200d🔥 🇩🇪🇫🇷" * 50
    rtl = "שלום עולם! مرحبا بالعالم، ٣٤٥ \u202eabc\u202c \u200fx\u200e " * 50
    names = ("<|endoftext|> <|begin_of_text|><|eot_id|> </s>  <s><unk> a</s>\n\n b <|im_start|>user\n"
             "<|end|> >>TITLE<< <｜end▁of▁sentence｜> ø ÿ÷ <0x0A> ▁▁ a▁b [PAD100015] ") * 3
    contractions = "".join(random.choices(["'s", "'S", "'ſ", "'LL", "'ll", "we'", "Ve", "'re", "I", " "],
                                          k=5000))
    junk = bytes(random.choices(range(256), k=100000))
    cut = "naïve 漢字 😀".encode() * 500
    texts = {"1 MB without a space": (word * 4)[:1000000], "digits": digits, "mixed": mixed, "marks": marks,
             "spaces": spaces, "emoji joins": joins, "right to left": rtl, "special names": names,
             "contractions": contractions, "NULs": "a\0b\0\0 \0c " * 200, "CRLF": "a\r\nb\r\n\r\n c\r" * 500,
             "a run of spaces": " " * 20000 + "x" + "\n" * 5000, "a run of marks": "a" + "\u0301" * 5000,
             "empty": "", "one": "a"}
    texts = {name: text.encode() for name, text in texts.items()}
    texts["random bytes"], texts["cut characters"] = junk, bytes(b for i, b in enumerate(cut) if i % 7)
    return texts


# ---- comparing ----

def hf_ids(peer, texts):
    """In small batches: what the peer makes of a text takes a hundred times its room."""
    ids = []
    for i in range(0, len(texts), 500):
        batch = peer.encode_batch(texts[i:i + 500], add_special_tokens=False)
        ids += [array.array("i", e.ids) for e in batch]
    return ids


def peers_of(json_path, encoding, normalized):
    peer = tokenizers.Tokenizer.from_file(str(json_path))
    peer.encode_special_tokens = True
    out = {"tokenizers": lambda texts: hf_ids(peer, texts)}
    if encoding:
        form = (lambda t: unicodedata.normalize("NFC", t)) if normalized else (lambda t: t)
        out["tiktoken"] = lambda texts: [
            array.array("i", encoding.encode_ordinary(form(t))) for t in texts]
    return out


def compare(name, forms, peers, texts):
    """Texts are bytes; peers get them as Python decodes them."""
    decoded = [t.decode("utf-8", "replace") for t in texts]
    mine = {form: ours(form, texts) for form in forms}
    for peer, encode in peers.items():
        theirs = encode(decoded)
        for form, ids in mine.items():
            wrong = [i for i, (a, b) in enumerate(zip(ids, theirs)) if a != b]
            detail = ""
            if wrong:
                text, a, b = decoded[wrong[0]], ids[wrong[0]], theirs[wrong[0]]
                k = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                detail = (f"{len(wrong)} of {len(texts)} texts; first {text[:60]!r}, at token {k}: "
                          f"{list(a[k:k + 6])}, {peer} {list(b[k:k + 6])}")
            check(f"{name}: {form.name} and {peer}", not wrong, detail)


def newer_code_points(forms, peers):
    """Code points that Python's Unicode lacks: what the versions disagree about is told, not failed."""
    points = [c for c in code_points(False) if c < 0x40000]
    texts = [f"a{chr(c)}b {chr(c)}1'{chr(c)}\n" for c in points]
    mine = ours(forms[0], [t.encode() for t in texts])
    for peer, encode in peers.items():
        differ = sorted(c for c, a, b in zip(points, mine, encode(texts)) if a != b)
        if differ:
            shown = " ".join(f"U+{c:04X}" for c in differ[:6])
            print(f"     {peer}: {len(differ)} code points newer than Unicode "
                  f"{unicodedata.unidata_version} differ, not counted: {shown} ...")


def try_texts(name, forms, peers, texts, odd):
    for i in range(0, len(texts), 20000):
        compare(f"{name}, generations from {i}", forms, peers, texts[i:i + 20000])
    for title, text in odd.items():
        compare(f"{name}, {title}", forms, peers, [text])
    points = code_points(True)
    blocks = ["".join(map(chr, points[i:i + 1000])).encode() for i in range(0, len(points), 1000)]
    spaced = [" ".join(map(chr, points[i:i + 500])).encode() for i in range(0, len(points), 500)]
    compare(f"{name}, code points", forms, peers, blocks + spaced)


def try_family(name, texts, odd):
    global skipped
    try:
        forms, json_path, encoding = FAMILIES[name]()
    except Missing as missing:
        skipped += 1
        print(f"skipped {name}: {missing}")
        return
    peers = peers_of(json_path, encoding, name.startswith("qwen"))
    prints = {form.name: our_fingerprint(form) for form in forms}
    check(f"{name}: one fingerprint", len(set(prints.values())) == 1, str(prints))
    try_texts(name, forms, peers, texts, odd)
    newer_code_points(forms, peers)
    print(f"done {name}: {len(forms)} forms against {', '.join(peers)}")


def try_other_splitters(texts, odd):
    FAMILIES["llama3"]()
    body = json.loads((WORK / "llama3.json").read_text())
    for name, steps in OTHER_SPLITTERS.items():
        path = WORK / "splitter.json"
        body["pre_tokenizer"] = sequence(*steps, byte_level(False))
        path.write_text(json.dumps(body))
        try_texts(name, [path], peers_of(path, None, False), texts, odd)
        print(f"done the splitter of {name}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", default=[])
    parser.add_argument("--megabytes", type=float, default=1e9)
    options = parser.parse_args()
    if not (DATA / "tokenizers").is_dir():
        print("skipped: data folder is missing")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    subprocess.run(["make", "-s", ENCODE], check=True)
    WORK.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    texts = [t.encode("utf-8", "replace") for t in generations(options.megabytes * 1e6)]
    print(f"{len(texts)} texts, {sum(map(len, texts)) / 1e6:.1f} MB of generations; Python's Unicode is "
          f"{unicodedata.unidata_version}")
    odd = hostile()
    for name in options.families or [*FAMILIES, "splitters"]:
        if name == "splitters":
            try_other_splitters(texts[:2000], odd)
        else:
            try_family(name, texts, odd)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


sys.exit(main())
