"""`flockwise reproduce`: the experiments of the paper in experiments/, which stay outside the package."""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from flockwise.cli.console import NOTES, RESULTS, SECONDS_BETWEEN_LINES, say, say_error, step, version
from flockwise.cli.files import output_folder, write_json
from flockwise.cli.interrupt import INTERRUPTED, stop_on_interrupt
from flockwise.errors import ConfigError, FlockwiseError
from flockwise.files import write_whole

REPOSITORY = Path(__file__).resolve().parents[3]

# After a claim, by what it is about.
WHOSE = {"paper": "", "ours": " (ours)", "cause": " (why)"}

# Steps done, steps in all if known, and the name of the next one; as experiments/workbook.py calls it.
Report: TypeAlias = Callable[[int, int | None, str], None]


class _Stopped(Exception):
    """Ctrl-C was pressed; what is computed is on disk."""


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="fig1 fig2a fig2b fig2c fig3 fig4 table1 prop1 thm2 scaling, or all.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder for NAME.json, the pictures and report.html.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Few instances and points: a look at everything in two minutes.")
    ] = False,
    docs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="Write the story of all results in --out to this file, and its numbers to a folder FILE.",
        ),
    ] = None,
) -> None:
    """Run the paper's experiments and put each published value beside ours.

    A run that was interrupted goes on where it was when the same command is given again.
    """
    experiments = _experiments()
    chosen = _chosen(names, experiments.NAMES)
    modules = [importlib.import_module(f"experiments.{name}") for name in chosen]
    folder = output_folder(out)
    try:
        failed = _run_all(modules, folder, quick)
    except _Stopped:
        _write_report(folder, experiments.NAMES)
        command = f"flockwise reproduce {' '.join(names)} --out {out}" + (" --quick" if quick else "")
        say(f"Stopped. The same command goes on from here: {command}")
        raise typer.Exit(INTERRUPTED) from None
    _write_report(folder, experiments.NAMES)
    if docs is not None:
        _write_story(folder, experiments.NAMES, docs)
    say(f"\nThe report is {folder / 'report.html'}")
    if failed:
        raise FlockwiseError(f"not reproduced: {', '.join(failed)} (see above)")


def _experiments() -> Any:
    if not (REPOSITORY / "experiments" / "__init__.py").is_file():
        raise FlockwiseError("the experiments are kept in the repository: run this command from a clone of it")
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    return importlib.import_module("experiments")


def _chosen(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """In the order of the paper, each once."""
    unknown = [name for name in names if name not in (*known, "all")]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is no experiment; there are {', '.join(known)} and all")
    return [name for name in known if name in names or "all" in names]


def _run_all(modules: Sequence[Any], folder: Path, quick: bool) -> list[str]:
    """One after the other; what one of them lacks, such as a data set, does not keep the others waiting."""
    failed = []
    for module in modules:
        try:
            document = _run(module, folder, quick)
        except FlockwiseError as error:
            if len(modules) == 1:
                raise
            say_error(f"{module.NAME}: {error}")
            failed.append(module.NAME)
        else:
            _print(document)
    return failed


def _run(module: Any, folder: Path, quick: bool) -> dict[str, Any]:
    workbook = importlib.import_module("experiments.workbook")
    scale = importlib.import_module("experiments.scale").Scale(quick)
    with stop_on_interrupt() as stop_wanted, _steps(module.NAME) as show:

        def report(done: int, total: int | None, key: str) -> None:
            if stop_wanted():
                raise _Stopped
            show(done, total, key)

        book = workbook.Workbook(folder, f"{module.NAME}-quick" if quick else module.NAME, report)
        result = module.run(scale, book)
    about = {"quick": quick, "seconds": round(book.seconds, 1), "version": version()}
    document = result.document() | about
    _save_picture(module, result, folder)
    # Last: where there is a document, there is all that belongs to it.
    write_json(folder / f"{module.NAME}.json", document)
    return document


def _save_picture(module: Any, result: Any, folder: Path) -> None:
    from flockwise.report.plots import Picture
    from flockwise.report.svg import PIXELS_PER_INCH, save_picture

    figure = module.picture(result)
    save_picture(Picture(module.NAME, module.TITLE, "", figure), folder)
    write_whole(
        folder / f"{module.NAME}.png",
        lambda part: figure.savefig(part, format="png", dpi=PIXELS_PER_INCH),
    )


def _documents(folder: Path, known: Sequence[str]) -> list[dict[str, Any]]:
    """What has been run in this folder, now or before, in the order of the paper."""
    files = [folder / f"{name}.json" for name in known]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]


def _write_report(folder: Path, known: Sequence[str]) -> None:
    from flockwise.report.reproduction import Reproduction, Section

    read = importlib.import_module("experiments.result").Result.from_document
    with step("writing the report"):
        sections = []
        for document in _documents(folder, known):
            module, result = importlib.import_module(f"experiments.{document['name']}"), read(document)
            try:
                story, figure = module.story(result), module.picture(result)
            except LookupError:
                say_error(f"left out: {module.NAME}.json lacks what is told now; run {module.NAME} again")
                continue
            sections.append(Section(module.TITLE, story, module.CAPTION, figure, document))
        Reproduction(sections, version()).write(folder / "report.html")


def _write_story(folder: Path, known: Sequence[str], file: Path) -> None:
    documents = _documents(folder, known)
    quick = [document["name"] for document in documents if document["quick"]]
    if quick:
        raise ConfigError(f"{quick[0]}.json is of a quick run; the story is told from full runs only")
    story = importlib.import_module("experiments.story")
    numbers = output_folder(file.with_suffix(""))
    texts = {numbers / f"{document['name']}.json": story.numbers_text(document) for document in documents}
    texts[file] = story.tell(documents)
    for path, text in texts.items():
        _write_text(path, text)
    say(f"The story is {file}, its numbers are in {numbers}")


def _write_text(path: Path, text: str) -> None:
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def _print(document: dict[str, Any]) -> None:
    """Which claims hold, and each published value beside ours."""
    RESULTS.print(f"[bold]{document['name']}[/bold]")
    for claim in document["claims"]:
        mark, whose = ("✓" if claim["holds"] else "✗"), WHOSE[claim["about"]]
        RESULTS.print(f"{mark} {claim['words']}{whose}", highlight=False, markup=False)
    table = _table(document)
    if table.row_count:
        RESULTS.print(table)
    RESULTS.print()


def _table(document: dict[str, Any]) -> Table:
    """The rows that have a published value to be judged by; all others are in the files."""
    from flockwise.report.reproduction import VERDICTS, is_private, number, place

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("what", "where", "metric"):
        table.add_column(heading)
    for heading in ("paper", "ours", "verdict"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in document["rows"]:
        if row["verdict"] not in VERDICTS:
            continue
        kind = row["model"] if is_private(row) else "not private"
        values = (number(row[key], row["metric"]) for key in ("paper", "ours"))
        where = place(row, document["rows"])
        table.add_row(f"{row['what']} ({kind})", where, row["metric"], *values, row["verdict"])
    return table


@contextmanager
def _steps(name: str) -> Iterator[Report]:
    """A bar of the steps done, or lines now and then where there is no terminal to move it on."""
    started = time.perf_counter()
    if NOTES.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        with Progress(*columns, console=NOTES, transient=True) as bar:
            task = bar.add_task(name, total=None)
            yield lambda done, total, key: bar.update(
                task, description=f"{name}: {key}", completed=done, total=total
            )
    else:
        yield _lines(name)
    say(f"✓ {name}  {time.perf_counter() - started:.1f} s")


def _lines(name: str) -> Report:
    said = -math.inf

    def report(done: int, total: int | None, key: str) -> None:
        nonlocal said
        if time.perf_counter() - said >= SECONDS_BETWEEN_LINES:
            said = time.perf_counter()
            say(f"{name}: {key}, step {done + 1}" + ("" if total is None else f" of {total}"))

    return report
