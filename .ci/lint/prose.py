#!/usr/bin/env python3
"""prose.py PAGE.md... : sentences over 40 words (30 in README.md), pages whose sentences have over 20 words on average,
pages of docs/ over 250 lines or without a first line that names its reader, and phrases that CONTRIBUTING.md bans.
Code, links' targets and what is in backquotes do not count. Closes with 1 if anything was found."""
import re
import sys

LONG = {"docs/FORMAT.md"}  # a table of bytes
BANNED = {
    r"to the letter": "exactly as published",
    r"at hand": "available",
    r"made anew|once more anew": "regenerated",
    r"go(es)? without (a )?draft": "drafts nothing",
    r"as deep as pays|(does|do|did)(n't| not) pay|where (it|drafting) pays|no draft pays": "is faster / is slower",
    r"foretells?|foretold": "predicts",
    r"thrice|twice by the root": "the formula",
    r"mend(s|ed|ing)?": "fixes, fixed",
    r"(is|are|was|were|be) fed|what it was fed": "drafter input hidden state",
    r"told(?! apart)": "passed, reported",
    r"(keeps?|holds?|kept) (~?\d[\d.]*%|its accept length)": "retains",
    r"stands? (in|at|beside|on) ": "is in, is listed in",
    r"too dear|dearer": "slow, large",
    r"others trained": "published (third-party)",
    r"a (line|entry|record) an? (file|line|product|pass|token)": "one ... per ...",
}


def prose(text):
    """The sentences of a page with their lines. Blocks of code are left out; paragraphs, list items and cells end one."""
    text = re.sub(r"^```.*?^```", lambda m: "\n" * m.group().count("\n"), text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->|^ {4}.*$", "", text, flags=re.M)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`(?:[^`\n]|\n(?!\n))*`", lambda m: "CODE" + "\n" * m.group().count("\n"), text)
    block, first, item = [], 1, False
    for n, line in enumerate(text.split("\n") + [""], 1):
        new = re.match(r"\s*([-*>#|]|\d+\.) ?|\s*$", line)
        if block and (new or item):
            yield from sentences(" ".join(block), first)
            block = []
        item = False
        if re.match(r"\s*\|", line):
            for cell in line.strip().strip("|").split("|"):
                yield from sentences(cell, n)
            continue
        if re.match(r"#+ ", line):
            item = True
        first = first if block else n
        line = re.sub(r"^\s*([-*>]|#+|\d+\.)\s+", "", line).strip()
        if line:
            block.append(line)


def sentences(block, line):
    for part in re.split(r"(?<=[.!?:])[)\"*]*\s+(?=[\"(*A-Z0-9])", block):
        words = [w for w in part.split() if re.search(r"[A-Za-z0-9]", w)]
        if words:
            yield line, words


def check(path):
    with open(path) as file:
        text = file.read()
    found, lengths = [], []
    most = 30 if path == "README.md" else 40
    for line, words in prose(text):
        if len(words) > 3:  # a heading or a cell of figures is no sentence
            lengths.append(len(words))
        if len(words) > most:
            found.append(f"{path}:{line}: a sentence of {len(words)} words; expected at most {most}: {' '.join(words[:6])} ...")
        for phrase, better in BANNED.items():
            said = re.search(rf"\b({phrase})\b".replace(r" )\b", r" )"), " ".join(words), flags=re.I)
            if said:
                found.append(f'{path}:{line}: "{said.group().strip()}"; write: {better}')
    mean = sum(lengths) / max(1, len(lengths))
    if mean > 20:
        found.append(f"{path}: sentences of {mean:.1f} words on average; expected at most 20")
    n_lines = text.count("\n")
    if path.startswith("docs/"):
        if n_lines > 250 and path not in LONG:
            found.append(f"{path}: {n_lines} lines; expected at most 250")
        paragraphs = [p for p in text.split("\n\n") if not p.startswith("#")]
        if not re.match(r"For |\*\*(The|What|In) ", paragraphs[0]) and "/decisions/" not in path:
            found.append(f"{path}: expected a first line that names its reader: For ...")
    return found


def main():
    found = [line for path in sys.argv[1:] for line in check(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
