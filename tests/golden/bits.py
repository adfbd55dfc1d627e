"""Runs of the reference engine, to the last bit: what bits.json keeps of them.

    python -m tests.golden.bits            compare
    python -m tests.golden.bits --write    keep the present bits

NumPy, BLAS and the C library choose faster instructions on newer processors, and these round differently. So
the runs are made in a process that is told to use those that every x86-64 has. Only one kind of processor was
at hand to try that on, so the test compares where that one is, and the versions are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy
from numpy._core._multiarray_umath import __cpu_dispatch__  # pyright: ignore[reportAttributeAccessIssue]

FILE = Path(__file__).with_name("bits.json")
ROOT = FILE.parents[2]
PLAIN = {
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__),
    "OPENBLAS_CORETYPE": "Nehalem",
    "OPENBLAS_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX512F",
}


def processor() -> str:
    """Its name, where the system tells it."""
    told = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", told.read_text(encoding="utf-8")) if told.exists() else None
    return found[1] if found else platform.machine()


# What else the bits may depend on.
MADE_WITH = {
    "processor": processor(),
    "python": ".".join(platform.python_version_tuple()[:2]),
    "numpy": np.__version__,
    "scipy": scipy.__version__,
    "numba": numba.__version__,
}


def bits_of_all_runs() -> dict[str, str]:
    """A hash of every run, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.golden.bits", "--here"],
        cwd=ROOT,
        env={**os.environ, **PLAIN},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def in_this_process() -> dict[str, str]:
    from tests.golden.cases import SEEDS, cases

    return {
        f"{case.name} {seed}": bits_of(case.run("reference", seed))
        for case in cases()
        if "reference" in case.engines
        for seed in SEEDS
    }


def bits_of(run: Any) -> str:
    from tests.golden.freeze import kept

    return hashlib.sha256(json.dumps(kept(run)).encode()).hexdigest()


def main() -> None:
    if "--here" in sys.argv:
        print(json.dumps(in_this_process()))
    elif "--write" in sys.argv:
        document = {"made_with": MADE_WITH, "runs": bits_of_all_runs()}
        FILE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    else:
        frozen, runs = json.loads(FILE.read_text(encoding="utf-8"))["runs"], bits_of_all_runs()
        wrong = [name for name in frozen | runs if frozen.get(name) != runs.get(name)]
        print("\n".join(f"{name}: other bits" for name in wrong) or f"{len(runs)} runs, the same bits")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
