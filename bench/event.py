#!/usr/bin/env python3
"""event.py LIST.json TARGET.gguf <TRACE : what bench/reproduce.sh evospec-fig6 shows of EvoSpec's
events. TRACE is the text of tests/programs/trace.c --tops, of a policy that adds a cache to the
static list; LIST.json has the list's ids. A token outside the list that was drafted and accepted
came from the cache. Its event is the last cycle before that missed a token and had this one: as the
missed token itself, or among the target's ten best there."""
import json
import struct
import sys

SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # GGUF: bytes
STRING, ARRAY = 8, 9


def texts(path):
    """The tokens of a GGUF file."""
    with open(path, "rb") as f:
        def number(kind):
            return struct.unpack("<" + kind, f.read(struct.calcsize(kind)))[0]

        def value(kind):
            if kind == STRING:
                return f.read(number("Q"))
            if kind == ARRAY:
                inner, n = number("I"), number("Q")
                return [value(inner) for _ in range(n)]
            return f.read(SCALARS[kind])

        f.seek(16)  # magic, version, number of tensors
        for _ in range(number("Q")):
            key, kind = value(STRING), number("I")
            found = value(kind)
            if key == b"tokenizer.ggml.tokens":
                return [t.decode("utf-8", "replace").replace("\u0120", " ").replace("\u010a", "\\n")
                        for t in found]
    sys.exit(f"{path}: tokenizer.ggml.tokens: expected a GGUF with its tokenizer, found none")


def ids(text):
    return [int(word) for word in text.split()]


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        fixed = set(json.load(f))
    token = texts(sys.argv[2])
    counts = dict.fromkeys(("itself", "best", "other"), 0)
    n_events, n_cycles, example = 0, 0, None
    for line in sys.stdin:
        kind, _, rest = line.partition(" ")
        if kind == "s":
            events, answer, first = [], [], ids(rest.split(":")[1])
            seen = set(first)
        if kind != "c":
            continue
        emitted, best = (ids(part) for part in rest.split(":")[:2])
        n_cycles += 1
        for at, drafted in enumerate(emitted[:-1]):
            if drafted in fixed:
                continue
            with_it = [e for e in events if drafted == e[1] or drafted in e[2]]
            itself = any(drafted == e[1] for e in with_it)
            counts["itself" if itself else "best" if with_it else "other"] += 1
            if with_it and not itself and drafted not in seen and not example:
                place, missed, brought = with_it[-1]
                text = "".join(token[t] for t in answer[place:] + emitted[:at + 1])
                example = (missed, [t for t in brought if t not in fixed], text, drafted)
        answer += emitted
        seen.update(emitted)
        if emitted[-1] not in fixed:
            n_events += 1
            events.append((len(answer) - 1, emitted[-1], best))
    print(f"{n_cycles} cycles; {n_events} ended with a token outside the list")
    print(f"accepted drafts outside the list: {sum(counts.values())}")
    print(f"  missed before in the answer {counts['itself']}, among the target's ten best at an "
          f"earlier miss {counts['best']}, from graph or index {counts['other']}")
    if example:
        missed, brought, text, drafted = example
        print(f"for example: missed '{token[missed]}'")
        print("  which brought, of the target's ten best: " +
              ", ".join(f"'{token[t]}'" for t in brought))
        print(f"  the answer from there on: {text!r}, drafted '{token[drafted]}'")


main()
