"""What `flockwise reproduce` does: run experiments, keep what they found, and write the report."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

import experiments
from experiments.counted import in_words, of_the_paper
from experiments.page import ExperimentSection, Reproduction, beside, is_private, number, place, tally
from experiments.result import Result
from experiments.scale import Scale
from experiments.story import numbers_text, tell
from experiments.workbook import Workbook
from flockwise import __version__
from flockwise.cli.console import (
    INTERRUPTED,
    RESULTS,
    output_folder,
    progress_bar,
    say,
    say_error,
    step,
    stop_on_interrupt,
)
from flockwise.errors import ConfigError, FlockwiseError
from flockwise.files import write_json, write_whole
from flockwise.report.theme import PIXELS_PER_INCH, Picture, save_picture

# After a claim, by what it is about.
WHOSE = {"paper": "", "ours": " (ours)", "cause": " (why)"}


class _Stopped(Exception):
    """Ctrl-C was pressed; what is computed is on disk."""


def reproduce(names: Sequence[str], out: Path, quick: bool, docs: Path | None) -> None:
    """Run these experiments, or go on with them, and write the report of all that is in the folder."""
    known = (*experiments.NAMES, *experiments.BEYOND)
    chosen = _chosen(names, known)
    modules = [importlib.import_module(f"experiments.{name}") for name in chosen]
    folder = output_folder(out)
    try:
        failed = _run_all(modules, folder, quick)
    except _Stopped:
        _write_report(folder, known)
        command = f"flockwise reproduce {' '.join(names)} --out {out}" + (" --quick" if quick else "")
        say(f"Stopped. The same command goes on from here: {command}")
        raise typer.Exit(INTERRUPTED) from None
    _write_report(folder, known)
    if docs is not None:
        _write_story(folder, experiments.NAMES, docs)
    say(f"\nThe report is {folder / 'report.html'}")
    if failed:
        raise FlockwiseError(f"not reproduced: {', '.join(failed)} (see above)")


def _chosen(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """In the order of the paper, each once."""
    unknown = [name for name in names if name not in (*known, "all")]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is no experiment; there are {', '.join(known)} and all")
    everything = experiments.NAMES if "all" in names else ()
    return [name for name in known if name in names or name in everything]


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
            if hasattr(module, "table"):
                RESULTS.print(module.table(Result.from_document(document)), markup=False, soft_wrap=True)
    return failed


def _run(module: Any, folder: Path, quick: bool) -> dict[str, Any]:
    with stop_on_interrupt() as stop_wanted, progress_bar(module.NAME, "steps") as show:

        def report(done: int, total: int | None, key: str) -> None:
            if stop_wanted():
                raise _Stopped
            show(done, total, key)

        book = Workbook(folder, f"{module.NAME}-quick" if quick else module.NAME, report)
        result = module.run(Scale(quick), book)
    about = {"quick": quick, "seconds": round(book.seconds, 1), "version": __version__}
    document = result.document() | about
    _save_picture(module, result, folder)
    # Last: where there is a document, there is all that belongs to it.
    write_json(folder / f"{module.NAME}.json", document)
    return document


def _save_picture(module: Any, result: Any, folder: Path) -> None:
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
    with step("writing the report"):
        sections = []
        for document in _documents(folder, known):
            module = importlib.import_module(f"experiments.{document['name']}")
            result = Result.from_document(document)
            try:
                story, figure = module.story(result), module.picture(result)
            except LookupError:
                say_error(f"left out: {module.NAME}.json lacks what is told now; run {module.NAME} again")
                continue
            # With the empty cells, which numbers that are kept beside the page have not.
            full = {**document, **result.document()}
            sections.append(ExperimentSection(module.TITLE, story, module.CAPTION, figure, full))
        Reproduction(sections, __version__).write(folder / "report.html")


def _write_story(folder: Path, known: Sequence[str], file: Path) -> None:
    documents = _documents(folder, known)
    quick = [document["name"] for document in documents if document["quick"]]
    if quick:
        raise ConfigError(f"{quick[0]}.json is of a quick run; the story is told from full runs only")
    numbers = output_folder(file.with_suffix(""))
    texts = {numbers / f"{document['name']}.json": numbers_text(document) for document in documents}
    texts[file] = tell(documents)
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
    counted = of_the_paper([document])
    if counted:
        RESULTS.print(f"* {tally(counted)}", highlight=False, markup=False)
    RESULTS.print()


def _table(document: dict[str, Any]) -> Table:
    """The rows that stand beside a published value; all others are in the files."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("what", "where", "metric"):
        table.add_column(heading)
    for heading in ("paper", "ours", "verdict"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in document["rows"]:
        if not row["verdict"]:
            continue
        metric = row["metric"]
        kind = row["model"] if is_private(row) else "not private"
        found = in_words(row["verdict"], metric) + (" *" if "value" in row else "")
        where = place(row, document["rows"])
        table.add_row(
            f"{row['what']} ({kind})", where, metric, number(row["paper"], metric), beside(row), found
        )
    return table
