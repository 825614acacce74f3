"""The command-line tools, run: checks, cuts and file formats are theirs, and there is one of each."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Callable

from ._lib import SpecrtError


def path(tool: str = "specrt-bundle") -> str:
    """The program: SPECRT_TOOLS, the wheel's, build/bin of a checkout, PATH."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (os.environ.get("SPECRT_TOOLS"), os.path.join(here, "bin"),
                   os.path.join(here, "..", "..", "build", "bin")):
        if folder and os.access(os.path.join(folder, tool), os.X_OK):
            return os.path.join(folder, tool)
    found = shutil.which(tool)
    if not found:
        raise SpecrtError(f"{tool}: not found; `make tools` builds it, SPECRT_TOOLS names its folder; wheels of "
                          "`make wheels` have no tools")
    return found


def main() -> None:
    """A command of an installed wheel becomes the program of its name."""
    name = os.path.basename(sys.argv[0])
    os.execv(path(name), [name, *sys.argv[1:]])


def file(path: str | bytes | os.PathLike[str]) -> str:
    """A path as an argument of a tool, which takes one that begins with '-' for an option."""
    name = os.fsdecode(path)
    return "./" + name if name.startswith("-") else name


def _watch(words: list[str], progress: Callable[[str], None]) -> subprocess.CompletedProcess[str]:
    """Runs a tool and passes on each line that it writes to stderr, when it writes it. A progress bar's lines end with
    a carriage return, and begin by clearing the terminal's line."""
    lines: list[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        with subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE, text=True) as child:
            assert child.stderr
            for line in child.stderr:  # universal newlines: a carriage return ends a line, too
                lines.append(line.replace("\033[K", "").rstrip("\n"))
                if lines[-1]:
                    progress(lines[-1])
        out.seek(0)
        return subprocess.CompletedProcess(words, child.returncode, out.read(), "\n".join(lines))


def run(*args: Any, input: str | None = None, codes: tuple[int, ...] = (0,), tool: str = "specrt-bundle",
        progress: Callable[[str], None] | None = None) -> str:
    """What it prints. Another exit code than `codes` raises its message; so does 3 without output."""
    words = [path(tool), *map(str, args)]
    if progress:
        done = _watch(words, progress)
    else:
        done = subprocess.run(words, input=input, capture_output=True, text=True)
    if done.returncode not in codes or (done.returncode and not done.stdout):
        lines = [x for x in done.stderr.splitlines() if ": warning: " not in x] or [f"{tool}: no message"]
        raise SpecrtError(lines[-1 if progress else 0], done.returncode)  # the lines before it said how far it came
    return done.stdout


def report(*args: Any, codes: tuple[int, ...] = (0,), tool: str = "specrt-bundle",
           progress: Callable[[str], None] | None = None) -> dict[str, Any]:
    """The object that --json prints."""
    how = "--progress" if progress else "-q"
    return json.loads(run(*args, "--json", how, codes=codes, tool=tool, progress=progress))
