"""Readers of the packages' contents: each takes the folder or file of a source and yields
(name, document), a document being a text or a pair [question, answer]."""
import ast
import glob
import gzip
import inspect
import json
import os
import re
import tarfile
import xml.etree.ElementTree as xml

import text_shapes as shape

MB = 1 << 20


def read_text(path):
    opener = {".gz": gzip.open, ".dz": gzip.open}.get(os.path.splitext(path)[1], open)
    with opener(path, "rb") as f:
        return f.read().decode("utf-8", "replace").replace("\r\n", "\n")


def find(root, *patterns, skip=None):
    """Files below root in name order; plain ones only (a manual page has many links)."""
    found = set()
    for pattern in patterns:
        found.update(glob.glob(os.path.join(root, pattern), recursive=True))
    for path in sorted(found):
        plain = os.path.isfile(path) and not os.path.islink(path)
        if plain and not (skip and re.search(skip, path[len(root):])):
            yield os.path.relpath(path, root), path


def files(*patterns, skip=None, unwrap=False):
    def read(root):
        for name, path in find(root, *patterns, skip=skip):
            if os.path.getsize(path) < 2 * MB:
                text = read_text(path)
                yield name, shape.unwrap(text) if unwrap else shape.tidy(text)
    return read


def pages(*patterns, start=r"<h1", end=r"</body", drop=None, skip=None, question=False):
    """HTML pages as Markdown; with `question`, their sections headed by a question instead."""
    def read(root):
        for name, path in find(root, *patterns, skip=skip):
            text = shape.markdown(read_text(path), start, end, drop)
            if not question:
                yield name, text
            else:
                for pair in questions(text):
                    yield name, pair
    return read


def questions(text):
    """[question, answer] of every section whose heading ends in a question mark."""
    sections = re.split(r"(?m)^(?:#+ (?:[\d.]+\s+)?|\*\*\(\d+\) )(.*)$", text)
    for heading, body in zip(sections[1::2], sections[2::2]):
        question = re.sub(r"^(Q\. |… )", "", heading.strip("* "))
        if question.endswith("?") and len(body) > 80:
            yield [question[0].upper() + question[1:], body.strip()]


def manuals(pattern):
    """Manual pages as Markdown, by the mandoc that is unpacked beside the package."""
    def read(root):
        mandoc = os.path.join(os.path.dirname(root), "mandoc/usr/bin/mandoc")
        for name, path in find(root, pattern):
            yield name, shape.manual(mandoc, path)
    return read


def r_books(path):
    def read(root):
        for number, strings in enumerate(shape.r_strings(os.path.join(root, path))):
            text = max(strings, key=len) if max(map(len, strings)) > 100000 else "\n".join(strings)
            yield f"{path}:{number}", shape.unwrap(book_body(text))
    return read


def book_body(text):
    """Public-domain text of an etext without its distributor's header and footer."""
    text = text.replace("\r\n", "\n")
    start = re.search(r"(?m)^\*\*\* ?START OF TH.*$", text)
    end = re.search(r"(?m)^(End of (the )?Project|\*\*\* ?END OF TH).*$", text)
    return text[start.end() if start else 0:end.start() if end else len(text)]


def gutenberg(path, title):
    """One book of a file that holds several."""
    def read(root):
        text = read_text(os.path.join(root, path))
        start = re.search(r"(?m)^\*\*\* ?START OF TH.*" + title + r".*$", text)
        yield f"{path}: {title.title()}", shape.unwrap(book_body(text[start.start():]))
    return read


def dictionary(path):
    def read(root):
        yield path, shape.unwrap(read_text(os.path.join(root, path)))
    return read


def licences(root):
    """Licence texts of a licence collection, proprietary and commercial ones left out."""
    folder = "licensedcode/data/licenses"
    for name, path in find(root, folder + "/*.LICENSE"):
        _, head, text = (read_text(path) + "\n---\n").split("---\n", 2)
        category = re.search(r"(?m)^category: (.*)$", head).group(1)
        if category in ("Permissive", "Copyleft", "Copyleft Limited", "Public Domain",
                        "Patent License", "CLA") and "\nlanguage:" not in head:
            yield name, shape.tidy(text)


LEGAL_LICENCE = re.compile(r"\*\*License\*\*: \[?(CC BY 4\.0|MIT)\b", re.I)


def legal_tasks(archive):
    """Task descriptions and worked examples of LegalBench tasks under CC BY 4.0 or MIT."""
    texts = tar_texts(archive)
    for name in sorted(texts):
        task = os.path.dirname(name)
        if not name.endswith("base_prompt.txt") or \
           not LEGAL_LICENCE.search(texts.get(task + "/README.md", "")):
            continue
        blocks = re.split(r"\n{2,}", texts[name].strip())
        yield name, shape.tidy("\n\n".join(b for b in blocks if "{{" not in b))


def tar_texts(archive):
    with tarfile.open(archive) as tar:
        return {m.name: tar.extractfile(m).read().decode("utf-8", "replace")
                for m in tar if m.isfile()}


def medquad(archive):
    texts = tar_texts(archive)
    for name in sorted(texts):
        if not name.endswith(".xml"):
            continue
        for pair in xml.fromstring(texts[name].strip()).iter("QAPair"):
            question, answer = (pair.findtext(tag) or "" for tag in ("Question", "Answer"))
            answer = re.sub(r"[ \t]+", " ", re.sub(r"[ \t]*\n[ \t]*", "\n", answer))
            if answer.strip():
                yield name, [re.sub(r" +\?", "?", " ".join(question.split())), shape.tidy(answer)]


def gsm8k(path):
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        steps, result = re.sub(r"<<.*?>>", "", row["answer"]).split("\n#### ")
        yield os.path.basename(path), [row["question"], f"{steps}\nThe answer is {result}."]


def humaneval(path):
    for line in gzip.open(path, "rt", encoding="utf-8"):
        row = json.loads(line)
        code = (row["prompt"] + row["canonical_solution"]).strip()
        yield row["task_id"], ["Complete this Python function.\n\n```python\n" +
                               row["prompt"].strip() + "\n```", f"```python\n{code}\n```"]


def python_help(root):
    """Questions answered by docstrings, and functions written to their docstrings."""
    for name, path in find(root, "**/*.py", skip=r"/(tests?|testing|idlelib|vendor)/|/_"):
        try:
            source = read_text(path)
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            continue
        module = re.sub(r"^.*/python3[^/]*/", "", name)[:-3].replace("/", ".")
        module = re.sub(r"\.__init__$", "", module)
        for node in tree.body:
            parts = [(module, node)]
            if isinstance(node, ast.ClassDef):
                parts += [(f"{module}.{node.name}", member) for member in node.body]
            for owner, part in parts:
                if isinstance(part, (ast.FunctionDef, ast.ClassDef)) and part.name[0] != "_":
                    yield from function_help(name, owner, part, source)


ASK_ABOUT = ("What does `{0}` do in Python?", "Explain `{0}`.", "How does Python's `{0}` work?",
             "What is `{0}` for?")
ASK_FOR = ("Write a Python function `{0}`. {1}", "Implement `{0}` in Python. {1}",
           "{1} Write it as a Python function called `{0}`.")


def function_help(name, owner, node, source):
    doc = inspect.cleandoc(ast.get_docstring(node) or "")
    if not 80 < len(doc) < 2500:
        return
    pick = shape.hash_text(owner + node.name)
    yield name, [ASK_ABOUT[pick % len(ASK_ABOUT)].format(f"{owner}.{node.name}"), doc]
    code = ast.get_source_segment(source, node) or ""
    if isinstance(node, ast.FunctionDef) and node.col_offset == 0 and 5 < code.count("\n") < 60:
        task = " ".join(doc.split("\n\n")[0].split())
        yield name, [ASK_FOR[pick % len(ASK_FOR)].format(node.name, task),
                     f"```python\n{code}\n```"]


PARTS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
ASK_WORD = ('What does the word "{0}" mean?', 'Define "{0}".', 'What is the meaning of "{0}"?',
            'Can you explain the word "{0}"?')


def wordnet(root):
    """Meanings of words that occur in WordNet's tagged texts, by part of speech."""
    words = {}
    for part, label in PARTS.items():
        folder = os.path.join(root, "usr/share/wordnet")
        glosses = {line[:8]: line.split(" | ", 1)[1].strip()
                   for line in open(f"{folder}/data.{part}") if " | " in line}
        for line in open(f"{folder}/index.{part}"):
            fields = line.split()
            n_senses, pointers = (int(fields[2]), int(fields[3])) if line[0] != " " else (0, 0)
            if n_senses and int(fields[5 + pointers]):
                senses = [glosses[offset] for offset in fields[-n_senses:]]
                words.setdefault(fields[0].replace("_", " "), []).append((label, senses))
    for word, uses in sorted(words.items()):
        ask = ASK_WORD[shape.hash_text(word) % len(ASK_WORD)].format(word)
        yield word, [ask, "\n\n".join(meaning(word, *use) for use in uses)]


def meaning(word, label, senses):
    lines = [re.sub(r'; (?=")', ". For example: ", s, count=1) for s in senses[:5]]
    if len(lines) == 1:
        return f"**{word}** ({label}): {lines[0]}"
    return f"**{word}** ({label}):\n" + "\n".join(f"{i}. {s}" for i, s in enumerate(lines, 1))
