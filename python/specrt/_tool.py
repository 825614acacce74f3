"""specrt-bundle, run: checks, cuts and file formats are its, and there is one of each."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

from ._lib import SpecrtError


def path() -> str:
    """The program: SPECRT_TOOLS, the wheel's, build/bin of a checkout, PATH."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (os.environ.get("SPECRT_TOOLS"), os.path.join(here, "bin"),
                   os.path.join(here, "..", "..", "build", "bin")):
        if folder and os.access(os.path.join(folder, "specrt-bundle"), os.X_OK):
            return os.path.join(folder, "specrt-bundle")
    found = shutil.which("specrt-bundle")
    if not found:
        raise SpecrtError("specrt-bundle: not found; `make tools` builds it, SPECRT_TOOLS names its folder")
    return found


def run(*args: Any, input: str | None = None, codes: tuple[int, ...] = (0,)) -> str:
    """What it prints. Another exit code than `codes` raises its message; so does 3 without output."""
    done = subprocess.run([path(), *map(str, args)], input=input, capture_output=True, text=True)
    if done.returncode not in codes or (done.returncode and not done.stdout):
        lines = [x for x in done.stderr.splitlines() if ": warning: " not in x] or ["specrt-bundle: no message"]
        raise SpecrtError(lines[0], done.returncode)
    return done.stdout


def report(*args: Any, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """The object that --json prints."""
    return json.loads(run(*args, "--json", "-q", codes=codes))
