#!/usr/bin/env python3
"""errors.py FILE.c... : lists every error text, warning and help text of these files, as PATH:LINE: text.
errors.py --check FILE.c... : only those with a phrase that prose.py bans; closes with 1 if there are any."""
import re
import sys

from prose import BANNED

CALL = re.compile(r"\b(specrt_error_set|specrt__\w*(?:fail|refuse)\w*|sl_cli_(?:usage|fail|warn|flag|strings?|int|real|"
                  r"heading)|sl_corpus_warn|specrt_llama_fail|\w*_?error|refused?|fail|note_failure)\(")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def arguments(text, start):
    """The text of a call's arguments: up to the parenthesis that closes it."""
    depth, i = 1, start
    while depth and i < len(text):
        literal = STRING.match(text, i)
        if literal:
            i = literal.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        i += 1
    return text[start:i - 1]


def texts(path):
    """Line, function and literals, joined, of every call that says something to people."""
    with open(path) as file:
        source = file.read()
    for call in CALL.finditer(source):
        inside = re.sub(r'"\s*(?:PRI\w+)\s*"', lambda m: "N", arguments(source, call.end()))
        joined = re.sub(r'"\s*"', "", inside)
        said = [m.group(1) for m in STRING.finditer(joined) if " " in m.group(1)]
        for text in said:
            yield source.count("\n", 0, call.start()) + 1, call.group(1), text


def faults(text):
    for phrase, better in BANNED.items():
        said = re.search(rf"\b({phrase})\b".replace(r" )\b", r" )"), text, flags=re.I)
        if said:
            yield f'"{said.group().strip()}"; write: {better}'


def main():
    check = sys.argv[1] == "--check"
    bad = False
    for path in sys.argv[1 + check:]:
        for line, _, text in texts(path):
            if not check:
                print(f"{path}:{line}: {text}")
            for fault in faults(text) if check else ():
                bad = True
                print(f"{path}:{line}: {fault}: {text}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
