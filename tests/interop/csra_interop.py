#!/usr/bin/env python3
"""CORAL's cross-step representation alignment of data/sample_model.py beside its definition, written
out position by position. Opt-in; needs torch, and says so when it is missing."""
import math
import pathlib
import sys

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch, or apt-get install python3-torch")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "data"))
import sample_model as model

TEMPERATURE = .07


def cosine(a, b):
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def by_definition(steps):
    """The mean over pairs of steps, windows and positions of -log of the positive's share."""
    total = n = 0
    for s in range(len(steps)):
        for t in range(len(steps)):
            for a, b in zip(steps[s], steps[t]) if s != t else ():
                for i in range(len(a)):
                    scores = [cosine(a[i], b[j]) / TEMPERATURE for j in range(len(b))]
                    most = max(scores)
                    total += most + math.log(sum(math.exp(x - most) for x in scores)) - scores[i]
                    n += 1
    return total / n


def check(name, good):
    print(f"{'ok' if good else 'FAIL'} {name}")
    return good


torch.manual_seed(5)
steps = [torch.randn(2, 7, 12, dtype=torch.float64).requires_grad_() for _ in range(3)]
loss = model.cross_step_alignment(steps, TEMPERATURE)
results = [check("three steps as by definition",
                 abs(loss.item() - by_definition([s.detach() for s in steps])) < 1e-9)]
loss.backward()
moved = [(s - 1e-2 * s.grad).detach() for s in steps]
results.append(check("every step has a gradient", all(s.grad.abs().max() > 1e-4 for s in steps)))
results.append(check("along which the loss falls",
                     model.cross_step_alignment(moved, TEMPERATURE) < loss))
one = torch.eye(7, 12).repeat(2, 1, 1)
results.append(check("equal steps of distinct positions leave next to nothing",
                     model.cross_step_alignment([one, one], TEMPERATURE).item() < 1e-5))
same = torch.ones(2, 7, 12)
alike = model.cross_step_alignment([same, same], TEMPERATURE)
results.append(check("equal positions are one in seven", abs(alike - math.log(7)) < 1e-5))
print(f"{sum(results)} passed, {len(results) - sum(results)} failed, 0 skipped")
sys.exit(not all(results))
