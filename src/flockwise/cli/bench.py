"""`flockwise bench`: the programs in benchmarks/, which stay outside the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flockwise.cli.console import RESULTS, print_table, step
from flockwise.cli.reproduce import load
from flockwise.files import write_json

bench = typer.Typer(no_args_is_help=True, help="Measure the engine and the network on this machine.")

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the numbers to this file.")]


def _measure(name: str, json_file: Path | None, **options: Any) -> None:
    program = load(f"benchmarks.{name}")
    with step(f"measuring {name}: nothing else should run on this machine"):
        result = program.run(**options)
    numbers = ((key, value) for key, value in result.items() if not isinstance(value, list))
    rows = [(key, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}") for key, value in numbers]
    print_table(("what", "measured"), rows, words=("what", "measured"))
    for row in result.get("rows", []):
        RESULTS.print("  ".join(f"{k} {v:,.4g}" for k, v in row.items()))
    if json_file is not None:
        write_json(json_file, result)


@bench.command()
def engine(
    agents: Annotated[int, typer.Option(min=10)] = 100_000,
    dimension: Annotated[int, typer.Option(min=1)] = 100,
    degree: Annotated[int, typer.Option(min=2, help="Neighbors of an agent; an even number.")] = 10,
    threads: Annotated[int | None, typer.Option(min=1, help="As many as pay, if not given.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Updates a second, as a share of the memory bandwidth and against a NumPy loop, in one run."""
    _measure("engine", json_file, agents=agents, dimension=dimension, degree=degree, threads=threads)


@bench.command()
def start(json_file: JsonFile = None) -> None:
    """Processor time of a first run in a new process, with and without compiled code on disk."""
    _measure("start", json_file)


@bench.command()
def growth(json_file: JsonFile = None) -> None:
    """What one update costs, and the memory, at 10 thousand, 100 thousand and a million agents."""
    _measure("growth", json_file)


@bench.command()
def network(
    agents: Annotated[int, typer.Option(min=10)] = 1000,
    degree: Annotated[int, typer.Option(min=2, help="Neighbors of an agent; an even number.")] = 10,
    dimension: Annotated[int, typer.Option(min=1)] = 100,
    processes: Annotated[int, typer.Option(min=1)] = 4,
    seconds: Annotated[float, typer.Option(min=1, help="How long to measure.")] = 30.0,
    rate: Annotated[float, typer.Option(help="Updates a second of an agent.")] = 1.0,
    private: Annotated[bool, typer.Option("--private", help="With secure noise and a ledger each.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Real agents in real processes: time to start, messages delivered, latency, and what an agent costs."""
    _measure(
        "network",
        json_file,
        agents=agents,
        degree=degree,
        dimension=dimension,
        processes=processes,
        seconds=seconds,
        rate=rate,
        private=private,
    )
