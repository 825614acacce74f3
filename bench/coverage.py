#!/usr/bin/env python3
"""Share of next tokens that lists, window and successors hold, over real answers of
Llama-3-8B-Instruct.

usage: coverage.py BUILD DATA [--broad]
Calibrated on what other Llama-3 models answered to other instructions (split by the text's
sha-256): no tested instruction is ever counted. Code, medical and math are never calibrated on.
--broad counts the graph over answers of other families too, and over the sample text of
data/corpus but for its medicine and mathematics."""
import glob, hashlib, json, os, random, re, subprocess, sys, tarfile, tempfile

WINDOW = "window:65536@min=0@kpre=0@kver=0"
POLICIES = ["static:2048", "static:8192", "static:16384", f"static:512+{WINDOW}"]
POLICIES += [f"static:{n}+{WINDOW}+successor:{k}"
             for n, k in ((512, 256), (512, 1024), (2048, 256), (2048, 1024), (8192, 1024))]
TESTED = "Meta-Llama-3-8B-Instruct.json"


def second_half(text):
    return hashlib.sha256(text.strip().encode()).digest()[0] & 1


def write(path, records):
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as f:
        f.writelines(json.dumps(r) + "\n" for r in records)
    return path


def answers(data, families, folder):
    """A file for each model, of the instructions that are not tested."""
    for family in families:
        for path in sorted(glob.glob(f"{data}/generations/{family}/*.json")):
            name = os.path.basename(path)
            if name != TESTED and not name.startswith("gpteacher"):
                yield write(f"{folder}/{family}-{name}l",
                            ({"output": e["output"]} for e in json.load(open(path))
                             if not second_half(e["instruction"])))


def medical(data):
    found = []
    with tarfile.open(f"{data}/domains/medical/medquad.tar.gz") as tar:
        for m in tar:
            if len(found) >= 400:
                break
            if m.name.endswith(".xml") and random.Random(m.name).random() < 0.05:
                text = tar.extractfile(m).read().decode("utf8", "ignore")
                found += [(q, a) for q, a in zip(re.findall(r"<Question[^>]*>(.*?)</Question>", text, re.S),
                                                 re.findall(r"<Answer>(.*?)</Answer>", text, re.S)) if a.strip()]
    return found[:400]


def tests(data, folder):
    chat = json.load(open(f"{data}/generations/llama3/{TESTED}"))
    code = json.load(open(f"{data}/generations/other/gpteacher-codegen-instruct.json"))[:400]
    with open(f"{data}/prompts/gsm8k/train.jsonl") as f:
        maths = [json.loads(line) for line in f][:400]
    domains = {
        "chat": [(e["instruction"], e["output"]) for e in chat if second_half(e["instruction"])],
        "code": [(e.get("instruction", "") + e.get("input", ""), e.get("output") or e.get("response", ""))
                 for e in code],
        "medical": medical(data),
        "math": [(e["question"], e["answer"]) for e in maths],
    }
    return [write(f"{folder}/{name}.jsonl", ({"prompt": q, "answer": a} for q, a in pairs))
            for name, pairs in domains.items()]


def main(build, data, broad):
    ranks = f"{data}/tokenizers/llama3/tokenizer.model"
    with tempfile.TemporaryDirectory() as folder:
        llama = list(answers(data, ["llama3"], folder))
        text = llama
        if broad:
            here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/corpus")
            text = llama + list(answers(data, ["other", "qwen"], folder))
            text += [f"{here}/{name}" for name in ("code", "legal", "prose", "qa", "technical")]
        common = ["--tokenizer", ranks, "-q", "-o", f"{folder}/coverage.specb"]
        subprocess.run([f"{build}/bin/vocabtrim-calibrate", *common, "--holdout", "0", "--corpus", *llama], check=True)
        subprocess.run([f"{build}/bin/cograph-build", *common, "--corpus", *text], check=True)
        subprocess.run([f"{build}/bench/bench_coverage", ranks, f"{folder}/coverage.specb", ",".join(POLICIES),
                        *tests(data, folder)], check=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], "--broad" in sys.argv[3:])
