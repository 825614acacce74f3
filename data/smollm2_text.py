"""Prompts for the drafter of SmolLM2: what real users asked, without what evaluation sets hold."""
import gzip
import json
import os
import re
import struct
import subprocess

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
WORD = re.compile(r"\w+")
RUN = 13             # words in a row that an evaluation set and a text do not share by chance
LEAST_RUN = 6        # words of a document that is shorter, below which to find it says nothing
N_HELD_OUT = 150     # WildChat prompts kept for evaluation
LEAST_WORDS = 3
MOST_TOKENS = 128    # of a prompt in its template
MOST_ANSWER = 384    # tokens of an answer that others gave
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
START, END = 1, 2    # <|im_start|>, <|im_end|>


def fit(text):
    """SmolLM2 reads English; what is no ASCII is mostly another language."""
    return text.isascii() and len(text.split()) >= LEAST_WORDS and len(text) < 5 * MOST_TOKENS


def unique(prompts):
    return list(dict.fromkeys(p.strip() for p in prompts if fit(p.strip())))


def wildchat(path):
    """-> (prompts to train on, prompts held out)."""
    made = json.load(open(path, encoding="utf-8"))
    prompts = unique(row["input"] for part in ("dev", "test") for row in made[part])
    return prompts[:-N_HELD_OUT], prompts[-N_HELD_OUT:]


def sharegpt(path):
    """What conversations begin with; nothing of the answers."""
    made = json.load(open(path, encoding="utf-8"))
    first = (c["conversations"][0] for c in made if c["id"].endswith("_0") and c["conversations"])
    return unique(turn["value"] for turn in first if turn["from"] == "human")


def sharegpt_answers(path):
    """-> (prompt, answer) of the first exchange of conversations, both fit to be read; each once."""
    made = json.load(open(path, encoding="utf-8"))
    turns = (c["conversations"] for c in made if c["id"].endswith("_0"))
    pairs = {t[0]["value"].strip(): t[1]["value"].strip() for t in turns
             if len(t) > 1 and t[0]["from"] == "human" and t[1]["from"] == "gpt"}
    return [(p, a) for p, a in pairs.items() if fit(p) and a.isascii() and len(a.split()) >= LEAST_WORDS]


def write(path, prompts, domain):
    with open(path + ".part", "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"prompt": p, "domain": domain}) + "\n" for p in prompts)
    os.replace(path + ".part", path)


def evaluation_sets(shared, held_out, more):
    """NAME: paths of everything that the drafter may be evaluated on."""
    folder = os.path.join(shared, "data", "prompts")
    sets = {name: [os.path.join(folder, name)] for name in sorted(os.listdir(folder))}
    sets.update({"own": [os.path.join(HERE, "prompts")], "held-out": [held_out]})
    sets.update({os.path.basename(path): [path] for path in more})
    return sets


def strings(value):
    """All strings of a record, but not its keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def words(text):
    return WORD.findall(text.lower())


def runs(pieces):
    """13 words in a row; a document that has none, by the longest piece."""
    found = {tuple(piece[i:i + RUN]) for piece in pieces for i in range(len(piece) - RUN + 1)}
    longest = tuple(max(pieces, key=len, default=()))
    return found or ({longest} if len(longest) >= LEAST_RUN else set())


def documents(path):
    """Records of a file of JSON Lines, or of all files of a folder."""
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            yield from documents(os.path.join(path, name))
    elif path.removesuffix(".gz").endswith(".jsonl"):
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as f:
            yield from (json.loads(line) for line in f if line.strip())


class Evaluation:
    """What a text may not share with the evaluation sets."""

    def __init__(self, sets):
        self.runs = set()
        for paths in sets.values():
            for path in paths:
                for record in documents(path):
                    self.runs |= runs([words(s) for s in strings(record)])
        self.lengths = sorted({len(run) for run in self.runs})

    def holds(self, text):
        found = words(text)
        return any(tuple(found[i:i + n]) in self.runs
                   for n in self.lengths for i in range(len(found) - n + 1))


class Encoder:
    """The engine's own tokenizer, by tests/programs/encode.c."""

    def __init__(self, program, model):
        self.program, self.model = program, model

    def __call__(self, texts):
        """-> a list of i32 arrays."""
        raw = b"".join(struct.pack("<I", len(t)) + t for t in (s.encode() for s in texts))
        out = subprocess.run([self.program, self.model], input=raw, stdout=subprocess.PIPE,
                             check=True).stdout
        found, at = np.frombuffer(out, np.int32), 0
        ids = []
        while at < len(found):
            ids.append(found[at + 1:at + 1 + found[at]])
            at += 1 + found[at]
        return ids


def read(paths):
    return [json.loads(line)["prompt"] for path in paths for line in open(path, encoding="utf-8")]


def conversations(encode, prompts, limit=MOST_TOKENS):
    """The model's own template around each prompt -> (how many ids all begin with; lists of ids, up to
    where the answer begins)."""
    system, between, user, answer = encode(["system\n" + SYSTEM, "\n", "user\n", "assistant\n"])
    asked = encode(["user\n" + p for p in prompts])
    begin = [START, *system, END, *between, START]
    end = [END, *between, START, *answer]
    made = [np.array([*begin, *ids, *end], np.int32) for ids in asked]
    prefix = len(begin) + len(user)
    return prefix, [ids for ids in made if prefix < len(ids) <= limit]


def exchanges(encode, pairs):
    """Like conversations(), with the answers that others gave, MOST_ANSWER tokens of each -> (prefix;
    lists of ids; where each answer begins)."""
    prefix, asked = conversations(encode, [p for p, _ in pairs], limit=10 ** 6)
    answered = [np.append(ids, END)[:MOST_ANSWER] for ids in encode([a for _, a in pairs])]
    both = [(np.concatenate((q, a)).astype(np.int32), len(q)) for q, a in zip(asked, answered)]
    return prefix, [ids for ids, _ in both], [start for _, start in both]


class Decoder:
    """Ids to text, by the tokens in the GGUF, whose characters stand for bytes (GPT-2)."""

    def __init__(self, model):
        field = gguf.GGUFReader(model).get_field("tokenizer.ggml.tokens")
        plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
        shifted = [b for b in range(256) if b not in plain]
        self.bytes = {chr(b): b for b in plain}
        self.bytes.update({chr(256 + i): b for i, b in enumerate(shifted)})
        self.tokens = field.contents()

    def __call__(self, ids):
        raw = bytes(self.bytes[c] for i in ids for c in self.tokens[i])
        return raw.decode("utf-8", "replace")


def batches(conversations, n, length=len):
    """Of like lengths, in an order that has all lengths early."""
    shuffled = [conversations[i] for i in np.random.default_rng(0).permutation(len(conversations))]
    return [part for at in range(0, len(shuffled), 8 * n)
            for part in split(sorted(shuffled[at:at + 8 * n], key=length), n)]


def split(values, n):
    return [values[i:i + n] for i in range(0, len(values), n)]
