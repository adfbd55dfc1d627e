"""`flockwise bench`: the programs in benchmarks/, which stay outside the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flockwise.cli.console import RESULTS, print_table, step
from flockwise.cli.reproduce import load
from flockwise.errors import ConfigError
from flockwise.files import write_json

bench = typer.Typer(
    no_args_is_help=True, help="Measure the engine, the network and the estimators on this machine."
)

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the numbers to this file.")]


def _measure(name: str, json_file: Path | None, **options: Any) -> None:
    program = load(f"benchmarks.{name}")
    with step(f"measuring {name}: nothing else should run on this machine"):
        result = program.run(**options)
    numbers = ((key, value) for key, value in result.items() if not isinstance(value, list))
    rows = [(key, _shown(value)) for key, value in numbers]
    print_table(("what", "measured"), rows, words=("what", "measured"))
    for key, meaning in getattr(program, "MEANINGS", {}).items():
        RESULTS.print(f"{key}: {meaning}", soft_wrap=True)
    for row in result.get("rows", []):
        RESULTS.print("  ".join(f"{k} {_shown(v)}" for k, v in row.items()))
    if json_file is not None:
        write_json(json_file, result)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


@bench.command()
def gpu(
    cases: Annotated[
        list[str] | None, typer.Argument(help="Which to measure; all, if none is named.")
    ] = None,
    agents: Annotated[int, typer.Option(min=1000, help="Of the cases with 100 features.")] = 1_000_000,
    tuning: Annotated[
        list[str] | None, typer.Option(help='To compare, like "rows=8,programs=16"; may be repeated.')
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Updates a second on a GPU as a share of its bandwidth, and whether they are those of the CPU."""
    named: dict[str, Any] = {"cases": cases} if cases else {}
    _measure("gpu", json_file, agents=agents, tunings=tuning or (), **named)


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
def estimators(
    data: Annotated[
        list[str] | None,
        typer.Argument(help="Chem97 Hsb82 Exam Contraception MovieLens; all of them if none is named."),
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="How often rows are drawn for training and test.")] = 5,
    json_file: JsonFile = None,
) -> None:
    """The scikit-learn estimators as they come, against settings tuned by hand on the test rows."""
    program = load("benchmarks.estimators")
    names = data or list(program.NAMES)
    unknown = [name for name in names if name not in program.NAMES]
    if unknown:
        raise ConfigError(f"there is no data set {unknown[0]!r} here; there are {', '.join(program.NAMES)}")
    with step(f"fitting {', '.join(names)}, {splits} splits"):
        rows = program.run(names, splits)
    lines = ("metric", program.OURS, *program.KINDS, "above the best")
    cells = [[line, *(_cell(row[line], line) for row in rows)] for line in lines]
    print_table(("", *(row["data"] for row in rows)), cells, words=("",))
    if json_file is not None:
        write_json(json_file, {"splits": splits, "rows": rows})


def _cell(value: str | float, line: str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:+.2%}" if line == "above the best" else f"{value:.4f}"


@bench.command()
def start(json_file: JsonFile = None) -> None:
    """Processor time of a first run in a new process, with and without compiled code on disk."""
    _measure("start", json_file)


@bench.command()
def growth(
    threads: Annotated[
        int | None, typer.Option(min=1, help="As many as pay, if not given; 1 counts processor time.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """The cost of an update, of a start and of memory at 10 thousand, 100 thousand and a million agents."""
    _measure("growth", json_file, threads=threads)


@bench.command()
def peers(
    agents: Annotated[int, typer.Option(min=12, help="On a ring, with 10 neighbors each.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Timed updates of an agent.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="By turns; medians are shown.")] = 3,
    json_file: JsonFile = None,
) -> None:
    """The same job in NumPy, gossipy, pfl-research and Flower, which are installed into .venv-peers."""
    program = load("benchmarks.peers")
    with step("measuring the cpu engine and other software: nothing else should run on this machine"):
        result = program.run(agents, rounds, repeats)
    ran = [row for row in result["rows"] if "failure" not in row]
    cells = [
        (
            row["software"],
            next(iter(row["versions"].values())),
            _shown(row["updates_per_processor_second"]),
            _shown(row["updates_per_second"]),
            f"{row['loss']:.3f}",
        )
        for row in ran
    ]
    print_table(
        ("updates in a second of", "version", "a processor", "time", "loss"),
        cells,
        words=("updates in a second of",),
    )
    for row in result["rows"]:
        RESULTS.print(f"{row['software']}: {row.get('failure', row['update'])}", soft_wrap=True)
    if json_file is not None:
        write_json(json_file, result)


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
