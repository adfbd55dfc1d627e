"""How long a start takes: the README's first examples in a second process, and `flockwise --help`."""

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
# By the heading above them in the README.
EXAMPLES = {"five_lines": "Five lines of Python", "ten_lines": "Ten lines of Python"}
MEANINGS = {
    "*_first_seconds": "processor time of the first process on one thread, which compiles",
    "*_next_seconds": "that of later ones, imports included; median",
}


def run(repeats: int = REPEATS) -> dict:
    """Seconds of processor time on one thread: the first process compiles, later ones load (median)."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder, "examples"))
        for name, heading in EXAMPLES.items():
            first, *later = (_seconds(Path(folder), "-c", example(heading)) for _ in range(1 + repeats))
            found |= {f"{name}_first_seconds": first, f"{name}_next_seconds": median(later)}
        helps = [_seconds(Path(folder), "-m", "flockwise.cli", "--help") for _ in range(repeats)]
    return found | {"help_seconds": median(helps)}


def example(heading: str) -> str:
    """The Python under a heading of the README."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split(f"\n## {heading}\n")[1]
    found = re.search(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert found is not None
    return found[1]


def _seconds(folder: Path, *arguments: str) -> float:
    """What one process takes, with compiled code in the folder."""
    settings = {
        "FLOCKWISE_CACHE": str(folder / "cache"),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
        "NUMBA_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    before = _children()
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=os.environ | settings, check=True, capture_output=True
    )
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
