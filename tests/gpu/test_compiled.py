"""The kernels compiled for an H100 or H200 on a machine without one: registers, and what did not fit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu
OFFLINE = Path(__file__).with_name("offline.py")
# Registers and stack bytes of a thread. With 16 programs on a multiprocessor each thread has 128 registers.
BOUNDS = {
    "p = 100": (128, 32),
    "p = 100, Gaussian": (128, 256),
    "p = 100, Laplace": (128, 256),
    "p = 20": (64, 64),
    "p = 500": (128, 64),
    "p = 100, three classes": (128, 128),
    "count_fires": (64, 0),
    "count_earlier": (64, 0),
}


@pytest.mark.parametrize("kernel", BOUNDS)
def test_a_kernel_compiles_for_hopper_within_its_registers(kernel):
    """In a process of its own: the interpreter, which the other tests use, cannot be switched off again."""
    code = f"import json; from offline import compile_for_hopper as c; print(json.dumps(c({kernel!r})))"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=OFFLINE.parent, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    registers, stack = BOUNDS[kernel]
    assert found["registers"] <= registers
    assert found["stack"] + found["local"] <= stack
