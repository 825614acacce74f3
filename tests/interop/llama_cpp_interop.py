#!/usr/bin/env python3
"""The sample target in llama.cpp and in our engine: prompts of every domain, answered greedily by both,
each with its own reading of the vocabulary inside the file. Opt-in: run from the project's root after
`make`; needs llama-cpp-python, gguf and numpy, and says so when they are missing.

llama.cpp rounds the hidden states to 8 bits where the weights are q8_0, and we do not. So the text must be
the same from a copy of the target in f32; of the file itself, up to where llama.cpp's two best logits are
nearly equal."""
import json
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

TARGET = "data/sample/target.gguf"
EVAL = "build/bin/specrt-eval"
N_TOKENS = 64
NEAR = 0.1  # logits; rounding to 8 bits moves them by a few hundredths
TEMPLATE = ("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n")
folder = tempfile.TemporaryDirectory()


def prompts():
    for path in sorted(pathlib.Path("data/prompts").glob("*.jsonl")):
        for line in path.read_text().splitlines()[:2]:
            yield json.loads(line)["prompt"]


def our_answers(texts):
    path = pathlib.Path(folder.name, "prompts.jsonl")
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    lines = subprocess.run(
        [EVAL, "generate", "--target", TARGET, "--prompts", path, "--max-tokens", str(N_TOKENS), "--ids",
         "-q", "-o", "-"], check=True, capture_output=True, text=True).stdout
    return [json.loads(line)["ids"] for line in lines.splitlines()]


def first_difference(model, text, ours):
    """(tokens that are equal, the margin by which llama.cpp decides otherwise), or None."""
    ids = model.tokenize(TEMPLATE.format(text).encode(), add_bos=False, special=True)
    model.reset()
    for i, token in enumerate(ours):
        model.eval(ids)
        logits = np.asarray(model.scores[model.n_tokens - 1])
        best = int(logits.argmax())
        if best != token:
            return i, float(logits[best] - logits[token])
        ids = [token]
    return None


def main():
    texts = list(prompts())
    answers = our_answers(texts)
    passed = failed = 0
    for name, path, near in (("f32", f32_copy(TARGET, f"{folder.name}/f32.gguf"), 0), ("q8_0", TARGET, NEAR)):
        model = llama_cpp.Llama(path, n_ctx=512, n_threads=1, logits_all=True, verbose=False)
        n_equal = 0
        for text, ours in zip(texts, answers):
            found = first_difference(model, text, ours)
            n_equal += found is None
            if found and found[1] > near:
                print(f"FAIL {name}: '{text}': token {found[0] + 1}: another, by {found[1]:.4f}")
                failed += 1
            else:
                passed += 1
        print(f"{name}: {n_equal} of {len(texts)} answers of up to {N_TOKENS} tokens are the same")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
