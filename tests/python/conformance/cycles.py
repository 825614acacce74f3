"""cycles.py : random cycles, which a session and a reference both see, and the files that tools read.

A reference has begin(prompt, logits) and observe(cycle). Logits are multiples of 1/1024 of a small range, so that ties are
frequent: specrt's rule is that the lower id comes first, where the papers have none.
"""
from __future__ import annotations

import json
import os
import sys
from typing import NamedTuple

import numpy as np

import specrt


class Cycle(NamedTuple):
    """What the target made of a draft."""
    draft: specrt.Draft
    verdict: specrt.Verdict
    logits: np.ndarray         # float32 [n, n_vocab] of the target at the draft's nodes
    hidden: np.ndarray | None  # float32 [n, d] there


def seeds(n):
    """n of them, or as many as the argument SEEDS=N says; a quarter in `make test`, which sets TEST_QUICK."""
    asked = [a.removeprefix("SEEDS=") for a in sys.argv if a.startswith("SEEDS=")]
    return range(int(asked[0]) if asked else -(-n // 4) if os.environ.get("TEST_QUICK") else n)


def best(logits, k):
    """T_K of the papers: the tokens of the k largest logits, best first."""
    return np.argsort(-logits, kind="stable")[:k].tolist()


def random_logits(rng, n, n_vocab):
    return (rng.integers(4 * n_vocab, size=(n, n_vocab)) / 1024).astype(np.float32)


def random_states(rng, n, width):
    return rng.standard_normal((n, width)).astype(np.float32)


def random_tree(rng, root, pool):
    """A tree of our own of up to 20 nodes, whose tokens are of the pool and differ among siblings only."""
    tokens, parents, depths, masks = [root], [-1], [0], [1]
    for _ in range(int(rng.integers(1, 20))):
        parent, token, i = int(rng.integers(len(tokens))), int(rng.choice(pool)), len(tokens)
        if depths[parent] < 6 and token not in [t for t, p in zip(tokens, parents) if p == parent]:
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
            masks.append(masks[parent] | 1 << i)
    return specrt.Draft(tokens, parents, depths, np.array(masks, np.uint64), np.zeros(len(tokens), np.float32))


def drafted_tree(rng, session):
    """A tree of the session's own, from random states."""
    beam = session.beam()
    while len(beam.tokens):
        beam = session.expand(random_states(rng, len(beam.tokens), session.width))
    return session.finish()


def decode(rng, session, reference, n_cycles, pool, states=None):
    """A random prompt and random cycles, told to session and reference alike; yields before the first cycle and after each.

    pool(): the tokens of trees that are not the session's. states(n): the target's hidden states; None: there are none.
    """
    n_vocab = session.n_logits
    prompt = rng.integers(n_vocab, size=int(rng.integers(12, 60))).tolist()
    logits = random_logits(rng, len(prompt), n_vocab)
    session.begin()
    at = 0
    while at < len(prompt):
        n = int(rng.integers(1, 30))
        session.prefill(prompt[at:at + n], logits[at:at + n])
        at += n
    reference.begin(prompt, logits)
    last = int(session.first(logits[-1]).tokens[0])
    yield
    for _ in range(n_cycles):
        draft = drafted_tree(rng, session) if rng.random() < 0.5 else random_tree(rng, last, pool())
        logits = random_logits(rng, len(draft.tokens), n_vocab)
        for token, parent in zip(draft.tokens[1:], draft.parents[1:]):
            if rng.random() < 0.4:
                logits[parent, token] = logits[parent].max() + 20  # else no draft would be accepted
        hidden = states(len(draft.tokens)) if states else None
        verdict = session.accept(draft, logits, hidden)
        reference.observe(Cycle(draft, verdict, logits, hidden))
        last = int(verdict.tokens[-1])
        yield


def members(session):
    """The shortlist as a set; each token must be in it once."""
    ids = session.shortlist().tolist()
    assert len(ids) == len(set(ids)), ids
    return set(ids)


def write_ids(path, tokens, bytes=2):
    """A corpus of token ids, as tools read it with --tokenizer none."""
    np.asarray(tokens, f"<u{bytes}").tofile(path)


def write_weights(path, **tensors):
    """float16 matrices as safetensors; "__" in a name stands for "."."""
    header, at = {}, 0
    for name, x in tensors.items():
        header[name.replace("__", ".")] = {"dtype": "F16", "shape": x.shape, "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for x in tensors.values():
            file.write(x.astype("<f2").tobytes())
