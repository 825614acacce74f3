#!/usr/bin/env python3
"""Tokenising by PyPI's tiktoken and tokenizers beside ours, same files, one run, one core.

usage: peers_tokenizer.py BUILD RANKS TOKENIZER_JSON FILE...
RANKS is Llama-3's tiktoken file; FILEs are UTF-8 text, cut into documents of about 64 kB at line
ends. The best of three, MB of text per second. Peers that are not installed are left out."""
import base64, os, subprocess, sys, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def documents(paths):
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            while lines := file.readlines(1 << 16):
                yield "".join(lines)


def best(encode, docs):
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        n = sum(len(encode(doc)) for doc in docs)
        seconds.append(time.perf_counter() - begin)
    return min(seconds), n


def report(name, encode, docs, n_bytes):
    seconds, n = best(encode, docs)
    print(f"{name:28s} {n_bytes / seconds / 1e6:8.1f} MB/s  {n} tokens", flush=True)


def main():
    build, ranks, tokenizer_json, *files = sys.argv[1:]
    docs = list(documents(files))
    n_bytes = sum(len(doc.encode()) for doc in docs)
    for tokenizer in (ranks, tokenizer_json):
        print("ours,", tokenizer, flush=True)
        subprocess.run([f"{build}/bench/bench_tokenizer", tokenizer, *files], check=True)
    try:
        import tiktoken
        with open(ranks, "rb") as file:
            table = {base64.b64decode(k): int(v) for k, v in (line.split() for line in file if line.strip())}
        encoding = tiktoken.Encoding("llama3", pat_str=LLAMA3, mergeable_ranks=table, special_tokens={})
        report("tiktoken " + tiktoken.__version__, encoding.encode_ordinary, docs, n_bytes)
    except ImportError:
        print("tiktoken is not installed")
    try:
        import tokenizers
        tok = tokenizers.Tokenizer.from_file(tokenizer_json)
        report("tokenizers " + tokenizers.__version__,
               lambda doc: tok.encode(doc, add_special_tokens=False).ids, docs, n_bytes)
    except ImportError:
        print("tokenizers is not installed")


main()
