#!/usr/bin/env python3
"""The plug-in inside vLLM on a CPU: plugin_interop.py in this vLLM, then the sample pair, and SmolLM2 where build/models has
it, decoded plainly, with whole heads and with lists, offline in batches and over HTTP. Tokens must be those of specrt-eval,
accept lengths those of its chains, and sampled ones (a tiny pair) of the target's distribution. Words on the command line
choose cases by parts of their names. --times ROUNDS prints instead how many tokens a second each case of the pairs gives
(words begin with the pair's name): the cases take turns, in a process each, ROUNDS times. --sequences N,N... decodes so
many at once (8)."""
import functools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request

import live
import specrt
import tiny
from live import check, tool, work

N_TOKENS, N_STEPS, N_EACH, N_HTTP = 64, 4, 4, 3  # of an answer, of a draft, prompts of a domain, over HTTP
N_COUNTED = 192  # tokens of an answer that the list is counted from, to prompts that are not decoded
SIZES = 8192, 2048
N_REPEATS = 3  # timed runs of a process
PORT = 8137
batches = [8]  # how many sequences at once
SMOLLM2 = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
chosen = sys.argv[1:]


class Pair:
    """A target as vLLM reads it, its drafters, and what specrt-eval makes of them."""

    def __init__(self, name, target, tokenizer, template, drafters):
        import hf_folder
        import tokenizers
        self.name, self.target, self.drafters = name, target, drafters
        self.folder = work / name / "target"
        hf_folder.write(target, self.folder, tokenizer)
        self.terminators = set(ends(self.folder))
        tokens = tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        self.prompts = [tokens.encode(template.format(text), add_special_tokens=False).ids for text in split()[0]]
        self.file = work / name / "prompts.jsonl"
        self.file.write_text("".join(json.dumps({"prompt_ids": ids}) + "\n" for ids in self.prompts))
        for method, drafter in drafters.items():
            write_drafter(drafter, work / name / method, tokenizer)
        lines = tool("specrt-eval", "generate", "--target", target, "--prompts", self.file, "--max-tokens", N_TOKENS,
                     "--ids", "-q", "-o", "-").splitlines()
        self.answers = [json.loads(line)["ids"] for line in lines]
        self.bundle, self.lengths = None, {}

    def measure(self, policies):
        """Accept lengths of chains by drafter and policy."""
        for method, drafter in self.drafters.items():
            bundle = ["--bundle", self.bundle] if self.bundle else []
            table = json.loads(tool("specrt-eval", "compare", "--target", self.target, "--draft", drafter, *bundle,
                                    "--policy", ",".join(policies), "--topk", 1, "--num-steps", N_STEPS, "--prompts",
                                    self.file, "--max-tokens", N_TOKENS, "--json", "-q"))
            self.lengths.update({(method, row["policy"]): row["accept_length"] for row in table["rows"]
                                 if row["domain"] == "all"})

    def every_token(self):
        """A list of all rows."""
        path = work / self.name / "all.json"  # .pt: could be offsets
        n_vocab = json.loads((self.folder / "config.json").read_text())["vocab_size"]
        specrt.write_map(range(n_vocab), path, "vllm-json", force=True)
        return path

    def speculative(self, method):
        return {"method": method, "model": str(work / self.name / method), "num_speculative_tokens": N_STEPS}

    def same(self, answers):
        """How many are specrt-eval's; one side writes the terminator, the other does not."""
        def cut(ids):
            return ids[:-1] if ids and ids[-1] in self.terminators else ids
        return sum(cut(a) == cut(b) for a, b in zip(answers, self.answers))


def ends(folder):
    """The ids of the specials that end a text."""
    names = {"<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "<|endoftext|>"}
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    return [token["id"] for token in added if token["content"] in names]


def split():
    """Prompts of each domain to decode, and the rest, to count a list from."""
    files = sorted(pathlib.Path("data/prompts").glob("*.jsonl"))
    texts = [[json.loads(line)["prompt"] for line in file.read_text().splitlines()] for file in files]
    return [t for file in texts for t in file[:N_EACH]], [t for file in texts for t in file[N_EACH:]]


def write_drafter(path, folder, tokenizer):
    """A small GGUF becomes a model's folder; of a head the weights are renamed."""
    import hf_folder
    if str(path).endswith(".gguf"):
        hf_folder.write(path, folder, tokenizer)
        return
    if pathlib.Path(path).is_dir():
        shutil.copytree(path, folder)
        return
    folder.mkdir(parents=True)
    shutil.copy(path, folder / "model.safetensors")
    shutil.copy(pathlib.Path(path).parent / "config.json", folder)


def count(pair):
    """A bundle of the sample corpus and of what the target answers to the other prompts."""
    asked, answers, pair.bundle = work / "rest.jsonl", work / "answers.jsonl", work / "pair.specb"
    asked.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in split()[1]))
    tool("specrt-eval", "generate", "--target", pair.target, "--prompts", asked, "--max-tokens", N_COUNTED, "-q", "-o",
         answers)
    corpus = ["--tokenizer", live.TOKENIZER, "--corpus", "data/corpus", "--corpus", answers, "-q", "-o", pair.bundle]
    tool("vocabtrim-calibrate", *corpus, "--size", max(SIZES), "--holdout", 0)
    tool("cograph-build", *corpus)


def site():
    """The package as its wheel installs it, entry point included."""
    def run(*command):
        subprocess.run([sys.executable, *map(str, command)], check=True, capture_output=True)
    run("python/wheel.py", "--library", os.path.realpath("build/libspecrt.so"), "--tools", "build/bin",
        "--share", work / "share", "--version", specrt.__version__, "-o", work)
    run("-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target", work / "site",
        next(work.glob("*.whl")))


def environment(**more):
    """vLLM's own and the plug-in's variables, and nothing else that would steer either."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPECRT_", "VLLM_"))}
    paths = os.pathsep.join([str(work / "site"), "tests/interop"])
    return {**kept, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1", **more}


def run_case(case, **variables):
    """@return what vllm_decode.py found, and the mean accept length."""
    (work / "case.json").write_text(json.dumps(case))
    run = subprocess.run([sys.executable, "tests/interop/vllm_decode.py", work / "case.json", work / "out.json"],
                         env=environment(VLLM_ENABLE_V1_MULTIPROCESSING="0", **variables), capture_output=True,
                         text=True)
    if run.returncode:
        raise RuntimeError(f"vLLM: {(run.stdout + run.stderr)[-3000:]}")
    out = json.loads((work / "out.json").read_text())
    return out, 1 + out["accepted"] / max(out["drafts"], 1)


def decode(pair, speculative, n_sequences, repeats=1, **variables):
    """The pair's prompts, greedily. @return as run_case(), and tokens a second of each repeat, by the clock and by what
    it took of the processor."""
    case = {"model": str(pair.folder), "prompts": pair.prompts, "max_tokens": N_TOKENS, "speculative": speculative,
            "repeats": repeats, "n_sequences": n_sequences}
    out, length = run_case(case, **variables)
    n = sum(map(len, out["ids"]))
    return out, length, [n / x for x in out["seconds"]], [n / x for x in out["cpu_seconds"]]


def is_chosen(name):
    return not chosen or any(word in name for word in chosen)


def cases(pair):
    """Name, drafter, the policy that specrt-eval decodes by, and the plug-in's variables."""
    yield "plain", None, None, {}
    bundle = {"SPECRT_TOKEN_MAP": str(pair.bundle)} if pair.bundle else {}
    for method in pair.drafters:
        yield method, method, "full", {}
        for size in SIZES if pair.bundle else ():
            yield f"{method}, list of {size}", method, f"static:{size}", {**bundle, "SPECRT_SIZE": str(size)}
        if not pair.bundle:
            yield f"{method}, list of all rows", method, "full", {"SPECRT_TOKEN_MAP": str(pair.every_token())}


def offline(pair):
    """All prompts at once, which vLLM batches."""
    whole = {}
    for name, method, policy, variables in cases(pair):
        name = f"{pair.name}, {name}"
        if not is_chosen(name):
            continue
        try:
            out, length, (rate,), _ = decode(pair, pair.speculative(method) if method else None, batches[0],
                                             SPECRT_METRICS=str(work / "metrics.json"), **variables)
        except RuntimeError as error:
            check(False, f"{name}: {error}")
            continue
        same = pair.same(out["ids"])
        check(same == len(pair.prompts), f"{name}: {same}/{len(pair.prompts)} answers are specrt-eval's, "
              f"{rate:.0f} tokens/s")
        if method:
            ours = pair.lengths[method, policy]
            check(abs(length / ours - 1) <= 0.01, f"{name}: accept length {length:.3f}, specrt-eval's chain {ours:.3f}")
            if variables:
                check_metrics(name, length)
            if policy == "full":
                whole[method] = length
            if policy == "static:8192" and method in whole:
                kept = length / whole[method]  # of vLLM's own, which leaves out fc.bias
                check(kept >= 0.99, f"{name}: {kept:.1%} of the whole head's accept length")


def check_metrics(name, length):
    """What SPECRT_METRICS wrote beside vLLM's own count."""
    [(policy, found)] = json.loads((work / "metrics.json").read_text())["policies"].items()
    check(abs(found["accept_length"] / length - 1) <= 0.03 and 0.5 < found["coverage"] <= 1,
          f"{name}: metrics of {policy}: accept length {found['accept_length']:.3f}, vLLM's {length:.3f}, "
          f"coverage {found['coverage']:.1%}")


def prepared(pair):
    """The folder that `specrt prepare` makes for an EAGLE-3 drafter of random weights: vLLM loads it and drafts, and the
    answers stay the target's."""
    name = f"{pair.name}, EAGLE-3 by specrt prepare"
    if not is_chosen(name):
        return
    width = json.loads((pair.folder / "config.json").read_text())["hidden_size"]
    _, folder = live.random_eagle3("vllm", SIZES[0], width)
    speculative = {"method": "eagle3", "model": str(folder), "num_speculative_tokens": N_STEPS}
    out, length, *_ = decode(pair, speculative, batches[0])
    same = pair.same(out["ids"])
    check(same == len(pair.prompts) and out["drafts"] > 0,
          f"{name}: {same}/{len(pair.prompts)} answers are specrt-eval's; {out['drafts']} drafts, of random weights")


def wait_for(server, log):
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError(f"vLLM's server ended: {log.read_text()[-3000:]}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5)
            return
        except OSError:
            time.sleep(1)
    raise RuntimeError("vLLM's server did not answer within 10 minutes")


def ask(ids):
    body = {"model": "target", "prompt": ids, "max_tokens": N_TOKENS, "temperature": 0, "return_token_ids": True}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=600))["choices"][0]["token_ids"]


def served(pair):
    """Over HTTP by the page's command, with the engine in a process of its own."""
    variables, words = live.words(live.documented({"TARGET": pair.folder, "DRAFTER": work / pair.name / "eagle",
                                                   "model.specb": pair.bundle}))
    check(words[:2] == ["vllm", "serve"], f"the page's command: {' '.join(words[:2])}")
    # `vllm` asks for the version of a package named vllm, which vllm-cpu is not; `vllm serve` runs this module.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", *words[2:], "--served-model-name",
               "target", "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager", "--gpu-memory-utilization", "0.1",
               "--host", "127.0.0.1", "--port", str(PORT)]
    log = work / "server.log"
    with open(log, "w", encoding="utf-8") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=environment(**variables))
        try:
            wait_for(server, log)
            same = pair.same([ask(ids) for ids in pair.prompts[:N_HTTP]])
        finally:
            server.terminate()
            server.wait(120)
    said = [line for line in log.read_text().splitlines() if "specrt: " in line]
    check(same == N_HTTP, f"HTTP, eagle, list of 8192: {same}/{N_HTTP} answers are specrt-eval's")
    check(said, f"HTTP: the log says {said[0].split('specrt: ')[-1] if said else 'nothing'}")


def classes():
    """plugin_interop.py in this vLLM, in a process of its own."""
    run = subprocess.run([sys.executable, "tests/interop/plugin_interop.py"], capture_output=True, text=True)
    passed = re.search(r"^(\d+) passed, 0 failed", run.stdout, re.M)
    check(passed, f"classes: plugin_interop.py: {passed[0] if passed else run.stdout[-2000:] + run.stderr[-1000:]}")


# --- sampled: a tiny pair, whose distribution is known ---

@functools.cache
def write_tiny():
    """@return its target."""
    model = tiny.target()
    model.save_pretrained(work / "tiny/target")
    tiny.drafter(model).save_pretrained(work / "tiny/draft_model")
    tiny.write_eagle(model, work / "tiny/eagle")
    specrt.write_map(tiny.IDS, work / "tiny/list.pt", "sglang-pt")
    specrt.write_map(range(tiny.N_VOCAB), work / "tiny/all.json", "vllm-json")
    return model


def sampled_cases():
    """Name, method, more of vLLM's settings, how it samples, the plug-in's variables; None: vLLM's own fault."""
    short = {"SPECRT_TOKEN_MAP": str(work / "tiny/list.pt")}
    probable = {"draft_sample_method": "probabilistic"}
    yield "plain", None, {}, {}, {}
    yield "eagle without the plug-in", "eagle", {}, {}, None
    for method in "eagle", "draft_model":
        yield f"{method}, list of {len(tiny.IDS)}", method, {}, {}, short
        yield f"{method}, list of {len(tiny.IDS)}, drafts sampled", method, probable, {}, short
    yield "eagle, all rows", "eagle", {}, {}, {"SPECRT_TOKEN_MAP": str(work / "tiny/all.json")}
    filtered = {"temperature": 0.7, "top_k": 12}
    yield "plain, filtered", None, {}, filtered, {}
    yield "eagle, list, filtered", "eagle", {}, filtered, short


def sampled():
    """Tokens beside the distribution and beside plain sampling."""
    cases = [case for case in sampled_cases() if is_chosen(f"sampled, {case[0]}")]
    model = write_tiny() if cases else None
    prompts = [[i % tiny.N_VOCAB] for i in range(tiny.N_DRAWS // 640)]
    for name, method, more, sampling, variables in cases:
        speculative = {"method": method, "model": str(work / "tiny" / str(method)), "num_speculative_tokens": N_STEPS}
        case = {"model": str(work / "tiny/target"), "prompts": prompts, "max_tokens": 640, "ids_alone": True,
                "speculative": {**speculative, **more} if method else None,
                "sampling": {"temperature": 1, "ignore_eos": True, **sampling}}
        try:
            out, length = run_case(case, **(variables or {}))
        except RuntimeError as error:
            check(variables is None, f"sampled, {name}: {error}")
            continue
        good, line = tiny.judge([first + ids for first, ids in zip(prompts, out["ids"])], tiny.distribution(model, **sampling))
        if variables is None:
            print(f"     sampled, {name}, accept length {length:.3f}: {line}; vllm#55005")
        else:
            check(good, f"sampled, {name}, accept length {length:.3f}: {line}")


# --- times ---

def times(pair, rounds, n_sequences):
    """The cases take turns; a line for each with the best and the median of all repeats."""
    found = {}
    for _ in range(rounds):
        for name, method, _, variables in cases(pair):
            if not is_chosen(f"{pair.name}, {name}"):
                continue
            try:
                out, length, rates, cpu = decode(pair, pair.speculative(method) if method else None, n_sequences,
                                                 N_REPEATS, **variables)
            except RuntimeError as error:
                check(False, f"{pair.name}, {name}: {error}")
                continue
            _, _, seen, seen_cpu = found.setdefault(name, (pair.same(out["ids"]), length, [], []))
            seen.extend(rates)
            seen_cpu.extend(cpu)
    if not found:
        return
    best = {name: max(rates) for name, (_, _, rates, _) in found.items()}
    print(f"{pair.name}: {len(pair.prompts)} prompts at once, {n_sequences} in a batch, {N_TOKENS} tokens each, drafts of "
          f"{N_STEPS}, f32, 1 thread, {rounds} rounds of {N_REPEATS} runs; tokens a second, and a second of the processor")
    print(f"{'case':34} {'same':>5} {'accept':>7} {'best':>8} {'median':>8} {'of plain':>9} {'of the list':>12} "
          f"{'processor: best':>16} {'median':>8}")
    for name, (same, length, rates, cpu) in found.items():
        beside = [best.get("plain"), best.get(f"{name.split(',')[0]}, list of {SIZES[0]}")]
        ratios = [f"{best[name] / other:.2f}" if other else "-" for other in beside]
        print(f"{name:34} {same:>5} {length:7.3f} {best[name]:8.1f} {statistics.median(rates):8.1f} {ratios[0]:>9} "
              f"{ratios[1]:>12} {max(cpu):16.1f} {statistics.median(cpu):8.1f}", flush=True)
    for name, (same, *_) in found.items():
        check(same == len(pair.prompts), f"{pair.name}, {name}: {same}/{len(pair.prompts)} answers are specrt-eval's")


def sample_pair():
    sample = Pair("sample", live.TARGET, live.TOKENIZER, live.TEMPLATE,
                  {"eagle": "data/sample/draft.safetensors", "draft_model": live.SMALL, "dflash": live.dflash_folder()})
    count(sample)
    return sample


def smollm2_pair():
    heads = {"eagle": "data/smollm2/draft.safetensors", "eagle3": "data/smollm2-eagle3/draft.safetensors"}
    return Pair("smollm2", "build/models/smollm2.gguf", None, SMOLLM2,
                {method: path for method, path in heads.items() if pathlib.Path(path).exists()})


def main():
    if is_chosen("classes"):
        classes()
    if chosen and all(word == "classes" for word in chosen):
        return
    site()
    if not chosen or any(word.startswith("sampled") for word in chosen):
        sampled()
    if chosen and all(word.startswith("sampled") for word in chosen):
        return
    sample = sample_pair()
    sample.measure([f"static:{size}" for size in SIZES])
    offline(sample)
    prepared(sample)
    if not chosen or "HTTP" in chosen:
        served(sample)
    if pathlib.Path("build/models/smollm2.gguf").exists():
        smollm2 = smollm2_pair()
        smollm2.measure(["full"])
        offline(smollm2)


def main_times(rounds):
    site()
    wanted = [name for name in ("sample", "smollm2") if not chosen or any(word.startswith(name) for word in chosen)]
    pairs = [sample_pair()] if "sample" in wanted else []
    if "smollm2" in wanted and pathlib.Path("build/models/smollm2.gguf").exists():
        pairs.append(smollm2_pair())
    for pair in pairs:
        for n_sequences in batches:
            times(pair, rounds, n_sequences)


if __name__ == "__main__":
    if "--sequences" in chosen:
        at = chosen.index("--sequences")
        batches = [int(n) for n in chosen[at + 1].split(",")]
        del chosen[at:at + 2]
    if chosen[:1] == ["--times"]:
        n_rounds = int(chosen[1])
        del chosen[:2]
        live.run(lambda: main_times(n_rounds), "vllm-cpu", "torch")
    live.run(main, "vllm-cpu", "torch")
