"""chi_square.py : whether tokens were drawn by a distribution, from counts of (token, next) beside those of a Markov chain."""
import numpy as np

LEAST = 5  # expected of a cell
Z = 4.75   # of a normal: one chance in a million


def softmax(logits):
    """Probabilities [..., n], in double."""
    x = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def draw(distribution, n, seed):
    """n tokens of plain sampling: distribution [n_vocab, n_vocab] of the next token by the last."""
    rng, ends, out = np.random.default_rng(seed), distribution.cumsum(-1), [0]
    for x in rng.random(n - 1):
        out.append(min(int(np.searchsorted(ends[out[-1]], x)), len(distribution) - 1))
    return out


def count(sequences, n_vocab):
    """How often each token followed each: int64 [n_vocab, n_vocab]."""
    out = np.zeros((n_vocab, n_vocab), np.int64)
    for tokens in sequences:
        np.add.at(out, (tokens[:-1], tokens[1:]), 1)
    return out


def cells(expected):
    """A cell for each token, such that all of them expect enough: rare tokens share one, or the last large one."""
    order = np.argsort(-expected, kind="stable")
    large = int((expected >= LEAST).sum())
    if large and expected[order[large:]].sum() < LEAST:
        large -= 1
    out = np.empty(len(expected), np.int64)
    out[order] = np.minimum(np.arange(len(order)), large)
    return out


def statistic(found, expected, cell):
    """Pearson's of one row."""
    seen, wanted = np.bincount(cell, found), np.bincount(cell, expected)
    return float(((seen - wanted) ** 2 / wanted).sum())


def fit(found, distribution):
    """Pearson's statistic of counts [n, n] beside the distribution [n, n] of each row, and its degrees of freedom."""
    total, freedom = 0.0, 0
    for row, p in zip(found, distribution):
        cell = cells(row.sum() * p)
        if cell.max() > 0:
            total, freedom = total + statistic(row, row.sum() * p, cell), freedom + int(cell.max())
    return total, freedom


def compare(a, b):
    """The same of two samples, counts [n, n] each, beside the distribution of both together."""
    total, freedom = 0.0, 0
    for one, other in zip(a, b):
        if not one.sum() or not other.sum():
            continue
        p = (one + other) / (one + other).sum()
        cell = cells(min(one.sum(), other.sum()) * p)
        if cell.max() > 0:
            total += statistic(one, one.sum() * p, cell) + statistic(other, other.sum() * p, cell)
            freedom += int(cell.max())
    return total, freedom


def bound(freedom):
    """What chance exceeds once in a million (Wilson and Hilferty 1931)."""
    c = 2 / (9 * freedom)
    return freedom * (1 - c + Z * c ** 0.5) ** 3
