#!/usr/bin/env python3
"""Published models in llama.cpp and in our engine: logits at every position of a few texts, each with
llama.cpp's greedy continuation. Opt-in: run from the project's root; needs llama-cpp-python, gguf and
numpy, and models in build/models (`make models NAME=...`); says so when they are missing.

llama.cpp rounds hidden states to 8 bits before they meet quantised rows, and keeps keys and values in
f16; we do neither. So logits are compared twice: of the file, where both may part as far as that
rounding goes, and of an f32 copy with keys in f32, where both do the same arithmetic. GELU is a table
of f16 in llama.cpp, which is all that parts a Gemma there. A greedy choice that differs counts as
explained when the margin between the two tokens, by llama.cpp, is small beside the logits' distance."""
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import llama_cpp
    import numpy as np
    from f32_copy import f32_copy
except ImportError as missing:
    print(f"skipped: {missing}; pip install llama-cpp-python gguf numpy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

MODELS = ["smollm2", "qwen-0.5b", "gemma-270m", "qwen-1.5b"]
FOLDER = pathlib.Path("build/models")
PEER, ENCODE = "build/tests/engine_logits", "build/tests/encode"
N_TOKENS = 48   # of each continuation
N_LONG = 560    # tokens of one more text where layers have a window: more than Gemma's 512
MOST_COPIED = 600e6  # bytes of a file that is copied to f32
FURTHEST = {"file": 0.15, "f32": 0.004}  # rms of the distance by the logits' deviation
SIGMAS = 8      # of the distance: what a margin may be where greedy choices differ
TEXTS = ["The capital of France is",
         "def fibonacci(n):\n    \"\"\"Return the n-th number.\"\"\"\n",
         "Die Hauptstadt von Österreich ist Wien, und",
         "Question: A farmer has 17 sheep and buys 5 more. How many has he?\nAnswer:"]
folder = tempfile.TemporaryDirectory()


def open_peer(path, exact):
    kinds = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32} if exact else {}
    return llama_cpp.Llama(str(path), n_ctx=N_LONG + N_TOKENS, n_threads=1, logits_all=True,
                           verbose=False, **kinds)


def our_ids(path, texts):
    """Our reading of the vocabulary in the file."""
    documents = b"".join(len(t.encode()).to_bytes(4, "little") + t.encode() for t in texts)
    out = subprocess.run([ENCODE, path], input=documents, capture_output=True, check=True).stdout
    answers, at = [], 0
    while at < len(out):
        n = int.from_bytes(out[at:at + 4], "little")
        answers.append(np.frombuffer(out, np.int32, n, at + 4).tolist())
        at += 4 + 4 * n
    return answers


def prompts(model, path):
    """Ids of every text, as both read it, after what the model begins with."""
    texts = list(TEXTS)
    if any(key.endswith(".sliding_window") for key in model.metadata):
        texts.append(pathlib.Path("docs/FORMAT.md").read_text()[:4 * N_LONG])
    theirs = [model.tokenize(t.encode(), add_bos=False, special=False) for t in texts]
    same = our_ids(path, texts) == theirs
    begin = [model.token_bos()] if model.metadata.get("tokenizer.ggml.add_bos_token") == "true" else []
    return [(begin + ids)[:N_LONG] for ids in theirs], same


def their_logits(model, ids, n_more):
    """Logits of ids and of a greedy continuation; the ids with it."""
    model.reset()
    model.eval(ids)
    ids = list(ids)
    for _ in range(n_more):
        ids.append(int(model.scores[model.n_tokens - 1].argmax()))
        model.eval(ids[-1:])
    return np.array(model.scores[:model.n_tokens]), ids


def our_logits(path, ids, n_vocab):
    run = subprocess.run([PEER, path], input=(" ".join(map(str, ids)) + "\n").encode(),
                         capture_output=True, check=True)
    return np.frombuffer(run.stdout, np.float32).reshape(len(ids), n_vocab)


class Tally:
    def __init__(self):
        self.squares = self.all = self.n_positions = self.n_differ = self.unexplained = 0
        self.lines = []

    def add(self, number, theirs, ours):
        before = self.n_differ
        for at, (t, o) in enumerate(zip(theirs.astype(np.float64), ours.astype(np.float64))):
            apart = o - t
            apart -= apart.mean()  # one number for all logits changes no choice
            squares = float(apart @ apart)
            self.squares += squares
            self.all += float(((t - t.mean()) ** 2).sum())
            if t.argmax() == o.argmax():
                continue
            sigma = (squares / t.size) ** 0.5
            self.n_differ += 1
            self.unexplained += t.max() - t[o.argmax()] > SIGMAS * sigma
            if self.n_differ == before + 1:
                low, high = np.sort(t)[-2:]
                self.lines.append(f"    text {number}: token {at + 1} of {len(theirs)} is another: llama.cpp's "
                                  f"two best lie {high - low:.4f} apart, the logits {sigma:.4f}")
        self.n_positions += len(theirs)

    def relative(self):
        return (self.squares / self.all) ** 0.5


def check(name, kind, path, source):
    model = open_peer(path, kind == "f32")
    ids, same_ids = prompts(model, source)
    tally = Tally()
    for number, prompt in enumerate(ids, 1):
        theirs, whole = their_logits(model, prompt, min(N_TOKENS, N_LONG + N_TOKENS - len(prompt)))
        tally.add(number, theirs, our_logits(path, whole, model.n_vocab()))
    model.close()
    passed = same_ids and tally.relative() <= FURTHEST[kind] and not tally.unexplained
    print(("PASS " if passed else "FAIL ") +
          f"{name}, {kind}: {tally.relative():.2e} of the logits' deviation apart; the same greedy token at "
          f"{tally.n_positions - tally.n_differ} of {tally.n_positions} positions, {tally.unexplained} of the "
          f"others unexplained; ids {'the same' if same_ids else 'DIFFER'}")
    print("\n".join(tally.lines), flush=True)
    return passed


def main():
    subprocess.run(["make", "-s", PEER, ENCODE], check=True)
    results, skipped = [], 0
    for name in sys.argv[1:] or MODELS:
        path = FOLDER / f"{name}.gguf"
        if not path.exists():
            print(f"skipped: no {path}; make models NAME={name}")
            skipped += 1
            continue
        results.append(check(name, "file", path, path))
        if path.stat().st_size <= MOST_COPIED:
            copy = f32_copy(path, f"{folder.name}/f32.gguf")
            results.append(check(name, "f32", copy, path))
            os.unlink(copy)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed, {skipped} skipped")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main())
