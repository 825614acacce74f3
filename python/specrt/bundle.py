"""Bundles: what is in a .specb file."""
from __future__ import annotations

import ctypes as C
import json
import os
from typing import Any

import numpy as np

from . import _tool
from ._lib import CIdent, CRanks, Owner, SpecrtError, array_of, c_text, checked, library


@checked
class Bundle(Owner):
    """A bundle, checked and mapped at opening.

        with Bundle("model.specb") as bundle:
            head = TrimmedHead(model.lm_head, bundle.ids(8192))
    """

    _close = "bundle_close"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._own(library(), (), "bundle_open", c_text(self.path, "path"), None)

    def __fspath__(self) -> str:
        return self.path

    def _ranks(self) -> CRanks:
        ranks = CRanks()
        self._lib.call("bundle_ranks", self.handle, C.byref(ranks))
        return ranks

    def _ident(self) -> CIdent | None:
        ident = self._lib.bundle_ident(self.handle)
        return ident.contents if ident else None

    @property
    def n_vocab(self) -> int:
        """Rows of the target's head, where the bundle records it; else ids of its tokenizer."""
        ident = self._ident()
        return (max(ident.n_vocab, ident.head_rows) if ident else 0) or self._ranks().header.contents.n_vocab

    @property
    def n_default(self) -> int:
        """The size that the list was calibrated for."""
        return self._ranks().header.contents.n_default

    def ids(self, n: int = 0) -> np.ndarray:
        """The list: int32 [n] target ids by rank, forced ones first; 0: the calibrated size. A copy."""
        ranks = self._ranks()
        h = ranks.header.contents
        n = n or h.n_default
        if not h.n_forced <= n <= h.n_valid or n < 1:
            raise SpecrtError(f"{self.path}: size {n}: expected at least {h.n_forced} (the forced ids) and at "
                              f"most {h.n_valid} (the valid ids)")
        return array_of(ranks.ids, n, np.int32).copy()

    def counts(self, n: int = 0) -> np.ndarray:
        """How often each of ids(n) was counted: uint64 [n]."""
        return array_of(self._ranks().counts, len(self.ids(n)), np.uint64).copy()

    def d2t(self, n: int = 0) -> np.ndarray:
        """EAGLE-3's offsets: int64 [n]; row i of the head is token i + d2t[i], ascending."""
        return np.sort(self.ids(n)).astype(np.int64) - np.arange(n or self.n_default)

    def t2d(self, n: int = 0) -> np.ndarray:
        """EAGLE-3's mask: bool [n_vocab], set for the tokens of ids(n)."""
        mask = np.zeros(self.n_vocab, bool)
        mask[self.ids(n)] = True
        return mask

    def sections(self) -> list[str]:
        """The tags of its sections."""
        n = C.c_int32()
        first = self._lib.bundle_sections(self.handle, C.byref(n))
        return [first[i].tag.decode() for i in range(n.value)]

    def report(self) -> dict[str, Any]:
        """Where it comes from: names and sizes of tokenizer and head, and by section the tool, its inputs,
        parameters and figures."""
        n = C.c_size_t()
        data = self._lib.bundle_data(self.handle, b"prov", C.byref(n))
        ident = self._ident()
        out: dict[str, Any] = {"file": self.path, "sections": self.sections(), "tokenizer": None, "head": None}
        if ident:
            out["tokenizer"] = {"name": ident.tokenizer_name.decode(), "n_vocab": ident.n_vocab,
                                "sha256": bytes(ident.tokenizer_sha256).hex()}
            if ident.head_rows:
                out["head"] = {"name": ident.head_name.decode(), "rows": ident.head_rows,
                               "cols": ident.head_cols}
        out["provenance"] = json.loads(C.string_at(data, n.value)) if data else {}
        return out

    def check_tokenizer(self, tokenizer: bytes | str | os.PathLike[str]) -> None:
        """Raises SpecrtError, naming both sides, for a bundle of another tokenizer.

        tokenizer: a tokenizer.json, a GGUF, a tiktoken file or a folder with one; or the digest, 32 bytes.
        """
        if isinstance(tokenizer, bytes) and len(tokenizer) == 32:
            self._lib.call("bundle_check_tokenizer", self.handle, tokenizer)
        else:
            _ = self.handle  # raises where it is closed
            _tool.run("verify", _tool.file(self), "--tokenizer", _tool.file(tokenizer), "-q")
