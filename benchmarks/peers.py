"""Other people's software beside the cpu engine: the same job on the same machine, by turns.

Each is installed into an environment of its own, in the folder .venv-peers, the first time. What does not
install or run is listed with the reason. A job is a module of benchmarks/peer_jobs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.engine import ONE_THREAD

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venv-peers"
INSTALL_SECONDS, RUN_SECONDS = 1200, 600
# Where an index has it, this is a build for the processor alone; its libraries for GPUs take gigabytes.
TORCH = "torch==2.13.0"

# Flower and Ray would tell their makers.
NO_REPORTS = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class Peer:
    """What to install (nothing: it is here), the module that does the job, and what an update is there."""

    name: str
    module: str
    requirements: tuple[str, ...]
    update: str


PEERS = (
    Peer(
        "Flockwise, cpu engine",
        "flockwise_job",
        (),
        "An agent wakes by its Poisson clock, reads the models of all its neighbors, takes the step of Eq. "
        "(4) on all its samples, and draws its next tick. A model per agent; one thread. It goes "
        "on for half a second of processor time, with more updates than the others.",
    ),
    Peer(
        "NumPy loop",
        "numpy_job",
        (),
        "The same updates in the same order; the clocks are drawn before. A model per agent; one thread. "
        "It goes on for half a second of processor time, too.",
    ),
    Peer(
        "gossipy",
        "gossipy_job",
        (TORCH, "gossipy-dfl==0.0.1"),
        "A node averages the model that one random neighbor pushed with its own, and takes one step of SGD "
        "on all its samples (PyTorch); the pushing is included. A model per node; one thread.",
    ),
    Peer(
        "pfl-research",
        "pfl_job",
        (TORCH, "pfl[pytorch]==0.6.0"),
        "A user of the cohort takes one step of SGD from the server's model on all its samples (PyTorch), "
        "and the server adds up the difference: federated averaging. One model for all; one thread.",
    ),
    Peer(
        "Flower",
        "flower_job",
        ("flwr[simulation]==1.41.0",),
        "A client takes one step from the server's model on all its samples (NumPy) and sends it back: "
        "federated averaging, simulated on Ray. One model for all; a worker on each core.",
    ),
)


def run(agents: int = 200, rounds: int = 10, repeats: int = 3) -> dict:
    """Medians of so many turns; agents have 50 samples of 20 features and 10 neighbors.

    Processor time depends less than the clock on what else runs on the machine.
    """
    job = {"agents": agents, "samples": 50, "features": 20, "neighbors": 10, "rounds": rounds}
    failures: dict[str, str] = {}
    results: dict[str, list[dict]] = {peer.name: [] for peer in PEERS}
    for _ in range(repeats):
        for peer in PEERS:
            if peer.name not in failures:
                try:
                    results[peer.name].append(_one_turn(peer, job))
                except subprocess.SubprocessError as error:
                    failures[peer.name] = _reason(error)
    rows = [_row(peer, results[peer.name], failures.get(peer.name)) for peer in PEERS]
    return {**job, "repeats": repeats, "rows": rows}


def _one_turn(peer: Peer, job: dict) -> dict:
    """Run the job in a process of its own, and read what it printed."""
    command = [_python(peer), "-m", f"benchmarks.peer_jobs.{peer.module}", json.dumps(job)]
    environment = {**os.environ, **ONE_THREAD, **NO_REPORTS, "PYTHONPATH": str(ROOT)}
    done = _run(command, RUN_SECONDS, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])


def _python(peer: Peer) -> str:
    """The interpreter of the peer's environment, which is made if need be."""
    if not peer.requirements:
        return sys.executable
    folder = FOLDER / peer.module.removesuffix("_job")
    python, stamp = folder / "bin" / "python", folder / "installed.json"
    wanted = json.dumps(peer.requirements)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        venv.create(folder, clear=True, with_pip=True)
        _run([str(python), "-m", "pip", "install", "-qq", *peer.requirements], INSTALL_SECONDS)
        stamp.write_text(wanted, encoding="utf-8")
    return str(python)


def _run(
    command: list[str], seconds: int, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=seconds, cwd=ROOT, env=env
    )


def _reason(error: subprocess.SubprocessError) -> str:
    """The last line that it printed."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.strip().splitlines() or [f"it ended with code {error.returncode}"]
        return lines[-1]
    return str(error)


def _row(peer: Peer, turns: list[dict], failure: str | None) -> dict:
    if failure is not None:
        return {"software": peer.name, "update": peer.update, "failure": failure}
    return {
        "software": peer.name,
        "versions": turns[0]["versions"],
        "update": peer.update,
        "updates": turns[0]["updates"],
        "seconds": median(turn["seconds"] for turn in turns),
        "updates_per_processor_second": median(turn["updates"] / turn["processor_seconds"] for turn in turns),
        "updates_per_second": median(turn["updates"] / turn["seconds"] for turn in turns),
        "loss": turns[0]["loss"],
    }
