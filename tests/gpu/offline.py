"""Kernels compiled for an H100 or H200 (sm_90) on a machine without one, and what ptxas says about them."""

# pyright: reportMissingImports=false

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from flockwise.engine.gpu.clocks import count_earlier, count_fires
from flockwise.engine.gpu.descent import DeviceEdges, DeviceNoise, DeviceSamples, Form, Queue, Tuning
from flockwise.engine.gpu.fire import fire
from flockwise.engine.gpu.noise import draw_laplaces, draw_normals
from flockwise.engine.gpu.records import Agents
from flockwise.engine.gpu.slopes import logistic, softmax

HOPPER = GPUTarget("cuda", 90, 32)
SAMPLES = DeviceSamples("*fp32", "*fp32", "*fp32")
EDGES = DeviceEdges("*i32", "*fp32")
AGENTS = Agents("*fp32", "*i64", "*i32", "*i32", "*i64", "*i32", "*fp32")
NOISE = DeviceNoise("*fp64", "*i32", "*fp64", "*fp64")
QUEUE = Queue("*i32", "*i32", "*fp32")
FORMS = {
    "p = 100": Form(logistic, 0, None, None, 104, 100, 100, 100, 1, 1, 4, 4, 104),
    "p = 100, Gaussian": Form(logistic, 0, "l2", draw_normals, 104, 100, 100, 100, 1, 1, 4, 4, 104),
    "p = 100, Laplace": Form(logistic, 0, "l1", draw_laplaces, 104, 100, 100, 100, 1, 1, 4, 4, 104),
    "p = 20": Form(logistic, 0, None, None, 24, 20, 20, 20, 1, 1, 1, 1, 24),
    "p = 500": Form(logistic, 0, None, None, 504, 500, 500, 500, 1, 1, 0, 1, 504),
    "p = 100, three classes": Form(softmax, 3, "l2", draw_normals, 304, 300, 100, 100, 3, 4, 0, 1, 304),
}


def arguments_of(name: str) -> tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A kernel, its argument types, its constants, and the compiler's options."""
    if name == "count_fires":
        types = {"agents": AGENTS, "settings": "*i64", "n_agents": "i32", "total": "*i64"}
        return count_fires, types, {"RECORD": 104, "BLOCK": 32}, {"num_warps": 1}
    if name == "count_earlier":
        return (
            count_earlier,
            {"edges": EDGES, "agents": AGENTS, "n_agents": "i32"},
            {"RECORD": 104, "BLOCK": 32},
            {"num_warps": 1},
        )
    types = {"samples": SAMPLES, "edges": EDGES, "agents": AGENTS, "noise": NOISE, "queue": QUEUE}
    types |= {"settings": "*i64", "n_fires": "*i64"}
    tuning = Tuning.of(FORMS[name].TILES)
    constants = FORMS[name]._asdict() | {
        "ROWS": tuning.rows,
        "NEIGHBORS": tuning.neighbors,
        "CONCURRENT": True,
    }
    return fire, types, constants, {"num_warps": 1, "maxnreg": tuning.registers}


def compile_for_hopper(name: str) -> dict[str, int]:
    """Registers of a thread, and bytes that did not fit into them."""
    kernel, types, constants, options = arguments_of(name)
    names = kernel.arg_names
    aligned: dict[tuple[int, ...], Any] = {}
    for key, kind in types.items():
        place = names.index(key)
        parts = kind if isinstance(kind, tuple) else None
        places = [(place,)] if parts is None else [(place, part) for part in range(len(parts))]
        aligned |= {at: [["tt.divisibility", 16]] for at in places}
    aligned = {at: value for at, value in aligned.items() if not _is_number(types, names, at)}
    signature = types | dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        fn=kernel,
        signature={key: signature[key] for key in names},
        constexprs={(names.index(key),): value for key, value in constants.items()},
        attrs=aligned,
    )
    compiled = triton.compile(source, target=HOPPER, options=options)
    return resources(compiled.asm["cubin"])


def _is_number(types: dict[str, Any], names: list[str], at: tuple[int, ...]) -> bool:
    return types[names[at[0]]] == "i32"


def resources(cubin: bytes) -> dict[str, int]:
    """Of a compiled kernel, by the disassembler that comes with Triton."""
    tool = glob.glob(os.path.join(os.path.dirname(str(triton.__file__)), "backends/nvidia/bin/cuobjdump"))[0]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        )
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", run.stdout)}
    return {"registers": found["REG"], "stack": found["STACK"], "local": found["LOCAL"]}


if __name__ == "__main__":
    names = sys.argv[1:] or [*FORMS, "count_fires", "count_earlier"]
    for name in names:
        print(json.dumps({"kernel": name} | compile_for_hopper(name)))
