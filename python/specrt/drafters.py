"""Drafters as engines load them: cut to a bundle's list, and checked."""
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from . import _tool
from .bundle import Bundle

ENGINES = ("vllm", "sglang", "specforge", "speculators", "llama.cpp", "specrt", "exllamav3", "mtplx", "text")


@dataclass(frozen=True)
class Finding:
    """What an engine would load otherwise than it is meant. engines: those concerned; empty: all."""
    code: str
    engines: tuple[str, ...]
    what: str
    fix: str


def recut(drafter: str | os.PathLike[str], bundle: Bundle | str | os.PathLike[str], n: int,
          out: str | os.PathLike[str], engine: str = "vllm", force: bool = False,
          target: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Writes what an engine takes for a drafter: its whole folder with its head cut to the bundle's n best ids that
    it has rows for; for MTP layers a list, and for a GGUF a GGUF, each in the file `out`.

    n: 0: the calibrated size. engine: one of ENGINES. target: the model whose rows a drafter without lm_head.weight
    takes. @return n_rows that the drafter has now, of n_rows_before; cut: whether these are fewer; coverage: the
    share of the counted tokens that they cover; of a folder n_missing, same_weights, token_map; of a file format.
    """
    return _tool.report("export", _tool.file(bundle), "--drafter", _tool.file(drafter), "--for", engine, "-o", _tool.file(out),
                        *(["--size", n] if n else []), *(["-f"] if force else []),
                        *(["--target", _tool.file(target)] if target else []))


def check(drafter: str | os.PathLike[str], target: str | os.PathLike[str] | None = None,
          engine: str | None = None, keep_bytes: bool = False,
          bundle: Bundle | str | os.PathLike[str] | None = None) -> list[Finding]:
    """What goes wrong silently with a drafter's folder, a cut GGUF or a list, each with its fix; an empty list is what
    to hope for.

    target: folder or GGUF of the model it drafts for. engine: only what concerns this one. bundle: whose list of that
    size it must have.
    """
    flags = ["--target", _tool.file(target)] if target else []
    flags += ["--for", engine] if engine else []
    flags += ["--keep", "bytes"] if keep_bytes else []
    if bundle is not None:
        flags += ["--bundle", _tool.file(bundle)]
    said = _tool.report("check", _tool.file(drafter), *flags, codes=(0, 3))
    return [Finding(f["code"], tuple((f["engines"] or "").split()), f["what"], f["fix"])
            for f in said["findings"]]
