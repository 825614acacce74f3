"""What an operator watches while an engine serves: whether the draft vocabulary still fits the traffic.

    metrics = Metrics()
    metrics.add("static:8192+window:3072", session.stats())
    metrics.json(), metrics.prometheus()

Sums by policy. Accept length is emitted_tokens over cycles, coverage covered_tokens over emitted_tokens; when coverage
falls, calibrate with today's text (`specrt bundle drift` says by how much).
"""
from __future__ import annotations

import json
import os
import time
from typing import Any, Callable

from .session import Stats

SUMS = {
    "cycles": "passes of the target",
    "plain_cycles": "passes of the target without drafts",
    "emitted_tokens": "tokens that the target emitted",
    "covered_tokens": "emitted tokens that the draft vocabulary had",
    "drafted_tokens": "tokens that were drafted",
    "scored_rows": "rows of the LM head in the draft vocabulary, added up over cycles",
    "read_bytes": "bytes read to draft",
    "packed_rows": "rows copied from the LM head",
}


def sums(stats: Stats, n_plain: int = 0) -> dict[str, int]:
    """A session's statistics by the names of SUMS. n_plain: its cycles without drafts."""
    return dict(zip(SUMS, (stats.n_cycles, n_plain, stats.n_emitted, stats.n_covered, stats.n_drafted, stats.n_rows,
                           stats.n_bytes, stats.n_copied)))


class Metrics:
    """Sums of many sequences, by policy. One thread at a time."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}

    def add(self, policy: str, stats: Stats | dict[str, int]) -> None:
        """Adds what one sequence did: a session's stats(), or numbers by names of SUMS."""
        total = self._sums.setdefault(policy, dict.fromkeys(SUMS, 0))
        for name, n in (sums(stats) if isinstance(stats, Stats) else stats).items():
            total[name] += n

    def json(self) -> str:
        """{"policies": {TEXT: {cycles, ..., accept_length, coverage, rows_per_cycle}}}; null where nothing was emitted."""
        def ratio(a: int, b: int) -> float | None:
            return a / b if b else None
        return json.dumps({"policies": {policy: {
            **s, "accept_length": ratio(s["emitted_tokens"], s["cycles"]),
            "coverage": ratio(s["covered_tokens"], s["emitted_tokens"]),
            "rows_per_cycle": ratio(s["scored_rows"], s["cycles"])} for policy, s in self._sums.items()}})

    def prometheus(self) -> str:
        """Counters specrt_NAME_total{policy="TEXT"} in Prometheus' text format."""
        lines = []
        for name, what in SUMS.items():
            lines += [f"# HELP specrt_{name}_total {what}", f"# TYPE specrt_{name}_total counter"]
            for policy, s in self._sums.items():
                label = policy.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
                lines.append(f'specrt_{name}_total{{policy="{label}"}} {s[name]}')
        return "\n".join(lines) + "\n"


class Exporter:
    """Writes a file of metrics, JSON where its name ends so, else Prometheus text. "{pid}" in the name is the process.

    collect: gives the metrics; called by the thread that calls tick() or write().
    """

    def __init__(self, path: str, collect: Callable[[], Metrics], seconds: float = 5) -> None:
        self.path, self._collect, self.seconds = path.replace("{pid}", str(os.getpid())), collect, seconds
        self._written = float("-inf")

    def tick(self) -> None:
        """Writes if the last time is `seconds` ago."""
        if time.monotonic() - self._written >= self.seconds:
            self.write()

    def write(self) -> None:
        """The file appears whole: a reader never sees a part of it."""
        metrics = self._collect()
        new = f"{self.path}.{os.getpid()}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(metrics.json() + "\n" if self.path.endswith(".json") else metrics.prometheus())
        os.replace(new, self.path)
        self._written = time.monotonic()
