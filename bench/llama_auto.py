#!/usr/bin/env python3
"""llama_auto.py [options] [CELL...] : drafts by the clock in llama.cpp beside plain decoding, llama.cpp's own drafts, its
n-gram drafts and fixed policies, by the clock, on an idle machine. Raw output on stdout, a line per measurement, then a
table per cell.

A cell is PAIR/cCONTEXT/sSLOTS/tTHREADS/TTEMPERATURE, such as qwen-q4/c100/s1/t2/T0; --list shows all of them with an
estimate of their time. An argument selects the cells below it (`qwen-q4`, `qwen-q4/c100`) or those that match it as a
pattern (`*/c100/s1/t2/T0`).

All ways of a cell run at once, a server each, and take turns prompt by prompt, so that a slow minute of the machine hits
all of them. A server that waits uses no processor. Prompts have a common beginning of the cell's context, which every slot
reads once. Speed is that of decoding: tokens by the time from an answer's first token to its last, times slots.

    make tools llama-fetch llama llama-patched
    make models NAME=qwen-1.5b && make models NAME=qwen-0.5b && make models NAME=smollm2
    bench/llama_auto.py --list
    bench/llama_auto.py 'qwen-*/c100/s1/t2/T0' >output.txt

smollm2-eagle3 runs in specrt-llama, for the server's draft-specrt takes draft models only: one slot, temperature 0."""
import argparse, fnmatch, json, os, socket, statistics, subprocess, sys, tempfile, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PAIRS = {  # target, drafter (None: EAGLE-3), the type that the target is converted to, tokens a second of plain decoding
    "sample": ("data/sample/target.gguf", "data/sample/draft-small.gguf", None, 1200),
    "qwen-q4": ("models/qwen-1.5b.gguf", "models/qwen-0.5b.gguf", None, 15),
    "qwen-q8": ("models/qwen-1.5b.gguf", "models/qwen-0.5b.gguf", "q8_0", 11),
    "qwen-bf16": ("models/qwen-1.5b.gguf", "models/qwen-0.5b.gguf", "bf16", 7),
    "smollm2-self": ("models/smollm2.gguf", "models/smollm2.gguf", "bf16", 63),
    "smollm2-eagle3": ("models/smollm2.gguf", None, "bf16", 63),
}
KINDS = ["qa", "code", "math", "technical"]
OWN = ["--spec-type", "draft-specrt"]
WAYS = {  # what a server is given beside its target; "{d}": the drafter
    "plain": [],
    "draft": ["-md", "{d}", "--spec-type", "draft-simple"],
    "draft p-min 0.75": ["-md", "{d}", "--spec-type", "draft-simple", "--spec-draft-p-min", "0.75"],
    "ngram-simple": ["--spec-type", "ngram-simple"],
    "ngram-mod": ["--spec-type", "ngram-mod"],
    "microspec 1": ["-md", "{d}", *OWN, "--spec-specrt-policy", "microspec", "--spec-draft-n-max", "1"],
    "microspec 3": ["-md", "{d}", *OWN, "--spec-specrt-policy", "microspec", "--spec-draft-n-max", "3"],
    "auto": ["-md", "{d}", *OWN, "--spec-draft-n-max", "4"],
}


def cells():
    for pair in PAIRS:
        for context in (100, 3000):
            for slots in (1, 3):
                for threads in (2, 1):
                    for temperature in (0, 0.7):
                        if PAIRS[pair][1] or (slots == 1 and temperature == 0):
                            if pair != "sample" or context == 100:  # it was trained with 2,048 positions
                                yield f"{pair}/c{context}/s{slots}/t{threads}/T{temperature:g}"


def fields(cell):
    pair, context, slots, threads, temperature = cell.split("/")
    return pair, int(context[1:]), int(slots[1:]), int(threads[1:]), float(temperature[1:])


def estimate(cell, o):
    """Minutes: tokens of all ways by plain decoding's speed, and each server's reading of the context."""
    pair, context, slots, threads, _ = fields(cell)
    speed = PAIRS[pair][3] * threads / 2
    ways = len(o.ways)
    return ((o.rounds + 1) * ways * len(KINDS) * o.prompts * (o.tokens / speed + 100 / (4 * speed)) +
            ways * slots * context / (4 * speed)) / 60


def convert(o, path, kind):
    if kind is None:
        return path
    out = o.build / "models" / f"{path.stem}-{kind}.gguf"
    if not out.exists():
        part = out.with_suffix(".part")
        subprocess.run([o.build / "tests" / "llama_convert", kind, path, part], check=True)
        part.rename(out)
    return out


def find(o, pair):
    """@return target and drafter of a pair."""
    def at(path):
        if path is None:
            return None
        found = Path(path) if path.startswith("data/") else o.build / path
        if not found.exists():
            sys.exit(f"llama_auto.py: {found}: expected a model, found none; make models NAME={found.stem}")
        return found
    target, draft, kind, _ = PAIRS[pair]
    return convert(o, at(target), kind), at(draft)


def prompts(o, context, turn):
    """A round's prompts, round 0 to warm up. None comes twice: n-gram drafts would have seen its answer.
    @return a common beginning of about so many tokens (4 characters each), and what follows it."""
    asked = []
    for kind in KINDS if turn else ["prose", "medical"]:
        lines = open(f"data/prompts/{kind}.jsonl").read().splitlines()
        if o.rounds * o.prompts > len(lines):
            sys.exit(f"llama_auto.py: --rounds times --prompts: expected at most {len(lines)}, "
                     f"found {o.rounds * o.prompts}")
        asked += [json.loads(line)["prompt"] for line in lines[max(0, turn - 1) * o.prompts :][: o.prompts]]
    text = " ".join(json.loads(line)["prompt"] for kind in ("prose", "legal", "medical")
                    for line in open(f"data/prompts/{kind}.jsonl"))
    room = max(0, 4 * (context - 40))
    text = (text * (room // len(text) + 1))[:room]
    return text, ["\n\nQuestion: " + p + "\nAnswer:" for p in asked]


class Server:
    def __init__(self, o, cell, way, target, draft, log):
        _, context, slots, threads, self.temperature = fields(cell)
        self.way, self.slots, self.tokens = way, slots, o.tokens
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        room = context + o.tokens + 400
        self.log = open(log / f"{way.replace(' ', '-')}.log", "w")
        self.process = subprocess.Popen(
            [o.build / "llama/patched/build/bin/llama-server", "-m", target, "-np", str(slots), "-c", str(slots * room),
             "-t", str(threads), "--host", "127.0.0.1", "--port", str(self.port),
             *[a.format(d=draft) for a in WAYS[way]]], stdout=self.log, stderr=self.log)

    def ask(self, prompt, slot, n, **more):
        body = {"prompt": prompt, "n_predict": n, "temperature": self.temperature, "seed": 1, "id_slot": slot,
                "return_tokens": True, "cache_prompt": True, "ignore_eos": True, **more}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=3600))

    def start(self, beginning):
        for _ in range(3000):
            if self.process.poll() is not None:
                sys.exit(f"llama_auto.py: {self.way}: the server ended; see {self.log.name}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health")
                break
            except OSError:
                time.sleep(0.2)
        for slot in range(self.slots):
            self.ask(beginning, slot, 1)

    def answer(self, group):
        """Prompts in all slots at once. @return their answers"""
        with ThreadPoolExecutor(len(group)) as pool:
            return list(pool.map(lambda job: self.ask(job[1], job[0], self.tokens), enumerate(group)))

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def margin(server, prompt, tokens, other):
    """How far apart plain decoding had the last of its tokens and another, in natural logs of their probabilities."""
    got = server.ask([prompt, *tokens[:-1]], 0, 1, n_probs=40, cache_prompt=False)
    top = {p["id"]: p["logprob"] for p in got["completion_probabilities"][0]["top_logprobs"]}
    return top[tokens[-1]] - top[other] if other in top and tokens[-1] in top else float("inf")


def splits(cell, servers, texts, answers):
    """At temperature 0: where an answer is not plain decoding's, and by how much."""
    for way, rows in answers.items():
        for i, row in enumerate(rows):
            plain = answers["plain"][i]
            at = next((k for k in range(min(len(plain), len(row))) if plain[k] != row[k]), None)
            if at is not None:
                apart = margin(servers["plain"], texts[i], plain[: at + 1], row[at])
                print(f"split {cell} {way!r} prompt {i + 1} token {at + 1}: plain decoding had the two {apart:.3g} apart")


def run(o, cell, log):
    pair, context, slots, _, temperature = fields(cell)
    target, draft = find(o, pair)
    beginning = prompts(o, context, 0)[0]
    speeds = {way: [] for way in o.ways}
    notes = {}
    servers = {}
    try:
        for way in o.ways:  # one after the other: a server times its passes as it starts
            servers[way] = Server(o, cell, way, target, draft, log)
            servers[way].start(beginning)
        for turn in range(o.rounds + 1):  # the first one warms up
            sums = {way: [0, 0.0, 0, 0] for way in o.ways}
            answers = {way: [] for way in o.ways}
            texts = [beginning + text for text in prompts(o, context, turn)[1]]
            for first in range(0, len(texts), slots):
                for way in o.ways[turn % len(o.ways):] + o.ways[: turn % len(o.ways)]:
                    for got in servers[way].answer(texts[first: first + slots]):
                        t, s = got["timings"], sums[way]
                        s[0] += t["predicted_n"] - 1
                        s[1] += t["predicted_ms"] / 1000
                        s[2] += t.get("draft_n", 0)
                        s[3] += t.get("draft_n_accepted", 0)
                        answers[way].append(got["tokens"])
                        notes[way] = t.get("draft_note", notes.get(way))
            for way, (n, seconds, drafted, accepted) in sums.items():
                speed = n * slots / seconds
                if turn > 0:
                    speeds[way].append(speed)
                    print(f"round {turn} {cell} {way!r}: {speed:.2f} tokens/s, {drafted} drafted, {accepted} accepted",
                          flush=True)
            if turn > 0 and temperature == 0 and "plain" in servers:
                splits(cell, servers, texts, answers)
    finally:
        for server in servers.values():
            server.stop()
    return speeds, notes


def run_eagle3(o, cell, log):
    """specrt-llama --bench, which alternates its ways, too."""
    pair, context, _, threads, _ = fields(cell)
    target, _ = find(o, pair)
    beginning, asked = prompts(o, context, 1)
    texts, lists, head = log / "prompts.jsonl", log / "lists.specb", log / "eagle3.gguf"
    texts.write_text("".join(json.dumps({"prompt": beginning + text}) + "\n" for text in asked))
    tools = o.build / "bin"
    subprocess.run([tools / "vocabtrim-calibrate", "--tokenizer", target, "--corpus", "data/corpus", "--size", "16384",
                    "--holdout", "0", "-q", "-f", "-o", lists], check=True)
    subprocess.run([tools / "specrt-bundle", "export", lists, "--format", "gguf", "--drafter",
                    "data/smollm2-eagle3/draft.safetensors", "--target", target, "--size", "16384", "-q", "-o", head],
                   check=True)
    out = subprocess.run([tools / "specrt-llama", "-m", target, "-md", head, "-t", str(threads), "-c", str(context + 500),
                          "--prompts", texts, "-n", str(o.tokens), "--bench", "--rounds", str(o.rounds), "--json", "-q",
                          "--policy", "microspec", "--policy", "auto"], check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(out.stdout)
    speeds = {row["policy"]: [row["tokens_per_second"]] for row in found["rows"] if row["domain"] == "all"}
    for way, values in speeds.items():
        print(f"best of {o.rounds} rounds {cell} {way!r}: {values[0]:.2f} tokens/s")
    for s in found["splits"]:
        print(f"split {cell} {s['policy']!r} prompt {s['prompt'] + 1} token {s['token'] + 1}: "
              f"plain decoding had the two {s['plain_margin']:.3g} apart; target repeats it: {s['target_repeats']}")
    return speeds, {}


def table(cell, speeds, notes):
    """Each round has its own prompts, so ratios are taken in a round: their median, and the lowest."""
    def ratio(way, other):
        return statistics.median(a / b for a, b in zip(speeds[way], speeds[other]))

    fixed = [w for w in speeds if w != "auto"]
    best = max(fixed, key=lambda w: statistics.median(speeds[w])) if fixed else None
    print(f"\n{cell}\n{'':18} {'tokens/s':>9} {'x plain':>8} {'lowest':>8} {'x best fixed':>13}")
    for way, values in speeds.items():
        low = min(a / b for a, b in zip(values, speeds["plain"])) if "plain" in speeds else 0
        print(f"{way:18} {statistics.median(values):9.2f} {ratio(way, 'plain') if 'plain' in speeds else 0:8.3f} {low:8.3f} "
              f"{ratio(way, best) if best else 0:13.3f}" + (f"  {notes[way]}" if notes.get(way) else ""))
    print(flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cells", nargs="*")
    p.add_argument("--list", action="store_true", help="cells, and minutes that each takes")
    p.add_argument("--ways", help=f"of {', '.join(WAYS)}; all by default")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--prompts", type=int, default=4, help="of each of four kinds, in a round (4)")
    p.add_argument("--tokens", type=int, default=64, help="of an answer (64)")
    p.add_argument("--build", type=Path, default=Path("build"))
    p.add_argument("--logs", type=Path, help="folder for the servers' logs; removed otherwise")
    o = p.parse_args()
    o.ways = [w.strip() for w in o.ways.split(",")] if o.ways else list(WAYS)
    chosen = [c for c in cells() if not o.cells or any(c.startswith(a.rstrip("/") + "/") or fnmatch.fnmatch(c, a) for a in o.cells)]
    if o.list:
        for cell in chosen:
            print(f"{cell:32} about {estimate(cell, o):6.0f} minutes")
        return
    if not chosen:
        sys.exit("llama_auto.py: expected a cell, found none; --list shows them")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"commit {commit}, {os.cpu_count()} processors, {o.rounds} rounds, {len(KINDS) * o.prompts} prompts, "
          f"{o.tokens} tokens; {' '.join(sys.argv)}")
    for cell in chosen:
        with tempfile.TemporaryDirectory() as folder:
            log = o.logs / cell.replace("/", "_") if o.logs else Path(folder)
            log.mkdir(parents=True, exist_ok=True)
            table(cell, *(run if PAIRS[fields(cell)[0]][1] else run_eagle3)(o, cell, log))


main()
