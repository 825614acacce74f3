"""From a target, its drafter and text to what an engine loads: the tools vocabtrim-calibrate and `specrt prepare`."""
from __future__ import annotations

import html
import os
import tempfile
from typing import Any, Callable, Iterable, Union

from . import _tool

Path = Union[str, "os.PathLike[str]"]


class Report(dict):  # type: ignore[type-arg]
    """What a tool reports, by its names. A notebook shows the tool's page: coverage by size, plots and tables.

    html: the page, which a browser shows as it is.
    """

    def __init__(self, values: dict[str, Any], page: str) -> None:
        super().__init__(values)
        with open(page, encoding="utf-8") as file:
            self.html = file.read()

    def _repr_html_(self) -> str:
        """In a frame, so that the page's styles stay its own; it has no scripts."""
        return (f'<iframe srcdoc="{html.escape(self.html)}" sandbox style="width:100%;height:640px;border:0">'
                '</iframe>')


def _size(size: int, mass: float) -> list[Any]:
    return ["--size", size] if size else ["--mass", mass] if mass else []


def calibrate(tokenizer: Path, text: Iterable[Path], out: Path, size: int = 0, mass: float = 0, force: bool = False,
              progress: Callable[[str], None] | None = None) -> Report:
    """Writes a bundle `out` with the tokenizer's tokens ranked by how often the text has them.

    text: files and folders. size: tokens of the list; or mass: as few as cover this share of held-out text. progress:
    called with each line that the tool writes while it works, such as `print`.
    @return what `vocabtrim-calibrate --json` prints: n_selected, coverage_holdout, sweep, ...
    """
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        said = _tool.report("--tokenizer", _tool.file(tokenizer), "--corpus", *map(_tool.file, text), *_size(size, mass),
                            *(["-f"] if force else []), "--report", page, "-o", _tool.file(out),
                            tool="vocabtrim-calibrate", progress=progress)
        return Report(said, page)


def prepare(target: Path, drafter: Path, engine: str, out: Path, text: Iterable[Path] = (),
            endpoint: str | None = None, prompts: Iterable[Path] = (), size: int = 0, mass: float = 0,
            sections: str = "graph", progress: Callable[[str], None] | None = None) -> Report:
    """Writes the folder `out`: a bundle, the drafter cut for `engine` and checked, and the command that starts it.

    engine: vllm, sglang, llama.cpp or text (a list of ids). text: files and folders of what the target writes; or endpoint: the URL where it
    is served, which answers the prompts. sections: of the bundle, beside the ranks. progress: as in calibrate(); each
    step has a line. A second call does what is missing.
    @return bundle, drafter (None: it stays as it is), n_selected, cut (False: the drafter had no more rows), n_rows,
    n_rows_before, coverage with its interval coverage_low and coverage_high (None: not of held-out text), command.
    `check()` lists what the engine would load wrongly.
    """
    texts, asked = list(map(_tool.file, text)), list(map(_tool.file, prompts))
    said = _tool.report("prepare", "--target", _tool.file(target), "--drafter", _tool.file(drafter), "--for", engine,
                        *(["--text", *texts] if texts else []), *(["--endpoint", endpoint] if endpoint else []),
                        *(["--prompts", *asked] if asked else []), *_size(size, mass), "--with", sections,
                        "-o", _tool.file(out), codes=(0, 3, 4), tool="specrt", progress=progress)
    return Report(said, os.path.join(_tool.file(out), "coverage.html"))
