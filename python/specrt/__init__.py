"""specrt: vocabulary-pruned speculative decoding, from Python.

    Bundle                       what is in a .specb file: lists, d2t and t2d, where it comes from
    read_map, write_map          token maps in the formats of other engines
    calibrate, prepare           from text to a bundle; from a target, its drafter and text to what an engine loads; each
                                 gives a Report, which a notebook shows as a page
    recut, check                 drafters' folders, cut for an engine and examined
    TrimmedHead                  an LM head of PyTorch that scores a list's rows alone
    Head, Policy, Session        policies that follow the text, for drafters in numpy or PyTorch on the CPU
    expand_batch, Stock          a pass of several sessions, and the rows that they hold together, read once
    Metrics                      sums of sessions by policy, as JSON and Prometheus text
    TraceWriter                  decoding cycles of any stack, for `specrt-eval replay` and `plan`

All of it is libspecrt.so or a command-line tool: nothing is computed here. What either refuses raises
SpecrtError, whose one line says what was expected, what was found and what to do. A session's call in the wrong order
raises OrderError, which is one of them.
"""
from __future__ import annotations

from typing import Any

from ._lib import Library, OrderError, SpecrtError, library
from .bundle import Bundle
from .drafters import ENGINES, Finding, check, recut
from .maps import FORMATS, read_map, write_map
from .metrics import Metrics
from .publish import Report, calibrate, prepare
from .session import (Beam, Draft, End, Head, Policy, Sampling, Session, Stats, Stock, StockStats, Tree, Verdict,
                      expand_batch)
from .trace import TraceWriter

__version__ = "1.0.0-rc1"
__all__ = ["Beam", "Bundle", "Draft", "ENGINES", "End", "FORMATS", "Finding", "Head", "Library", "Metrics", "OrderError",
           "Policy", "Report", "Sampling", "Session", "SpecrtError", "Stats", "Stock", "StockStats", "TraceWriter", "Tree",
           "Verdict", "calibrate", "check", "expand_batch", "library", "prepare", "read_map", "recut", "write_map"]


def __getattr__(name: str) -> Any:
    if name == "TrimmedHead":  # loads PyTorch, and so is not in __all__
        from .torch import TrimmedHead
        return TrimmedHead
    raise AttributeError(f"module 'specrt' has no attribute '{name}'")
