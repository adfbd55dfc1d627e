"""How long a start takes: the README's first example in a second process, and `flockwise --help`."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 5


def run() -> dict:
    """Seconds of processor time on one thread: the first process compiles, later ones load (median)."""
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder, "examples"))
        first, *later = (_seconds(Path(folder), "-c", code) for _ in range(1 + REPEATS))
        helps = [_seconds(Path(folder), "-m", "flockwise.cli", "--help") for _ in range(REPEATS)]
    return {
        "first_start_seconds": first,
        "next_start_seconds": median(later),
        "help_seconds": median(helps),
    }


def _seconds(folder: Path, *arguments: str) -> float:
    """What one process takes, with compiled code in the folder."""
    settings = {"FLOCKWISE_CACHE": str(folder / "cache"), "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    before = _children()
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=os.environ | settings, check=True, capture_output=True
    )
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
