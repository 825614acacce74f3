"""The command-line tools, run: checks, cuts and file formats are theirs, and there is one of each."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

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
        raise SpecrtError(f"{tool}: not found; `make tools` builds it, SPECRT_TOOLS names its folder")
    return found


def main() -> None:
    """The command `specrt` of an installed wheel becomes the program."""
    program = path("specrt")
    os.execv(program, ["specrt", *sys.argv[1:]])


def run(*args: Any, input: str | None = None, codes: tuple[int, ...] = (0,), tool: str = "specrt-bundle") -> str:
    """What it prints. Another exit code than `codes` raises its message; so does 3 without output."""
    done = subprocess.run([path(tool), *map(str, args)], input=input, capture_output=True, text=True)
    if done.returncode not in codes or (done.returncode and not done.stdout):
        lines = [x for x in done.stderr.splitlines() if ": warning: " not in x] or [f"{tool}: no message"]
        raise SpecrtError(lines[0], done.returncode)
    return done.stdout


def report(*args: Any, codes: tuple[int, ...] = (0,), tool: str = "specrt-bundle") -> dict[str, Any]:
    """The object that --json prints."""
    return json.loads(run(*args, "--json", "-q", codes=codes, tool=tool))
