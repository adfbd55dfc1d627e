"""`flockwise ledger show`: what agents have spent, when and on what, and whether their ledgers are intact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from flockwise.cli.console import RESULTS, print_table
from flockwise.errors import LedgerError, PrivacyError
from flockwise.files import write_json
from flockwise.privacy.gate import check_entries
from flockwise.privacy.ledger import NAME, Entry, read_statement
from flockwise.privacy.plan import Plan

SHOWN_ENTRIES = 20

ledger = typer.Typer(no_args_is_help=True, help="Look into the ledgers of real agents.")


@ledger.callback()
def _group() -> None:
    """Keeps `show` a command of its own."""


@ledger.command()
def show(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of one agent, or one with the folders of many.")
    ],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all entries to this file.")] = None,
) -> None:
    """Show what was spent, when and on what. Ends with code 1 if a ledger is damaged."""
    views = [View.of(file.parent) for file in sorted(directory.rglob(NAME))]
    if not views:
        raise LedgerError(f"{directory}: there is no {NAME} in it or below it; name the folder of an agent")
    for view in views:
        view.print()
    if json_file is not None:
        write_json(json_file, {"ledgers": [view.document() for view in views]})
    if any(view.problems for view in views):
        raise typer.Exit(1)


@dataclass(frozen=True)
class View:
    """One agent's ledger, as far as it can be read and trusted."""

    folder: Path
    agent: str | None
    plan: Plan | None
    entries: tuple[Entry, ...]
    problems: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> View:
        agent = None
        try:
            statement = read_statement(folder)
            agent = statement.account.agent
            if statement.problems:
                return cls(folder, agent, None, (), statement.problems)
            entries = tuple(row.entry() for row in statement.rows)
            granted = statement.account.plan
            plan = None if granted is None else Plan.from_json(granted)
            if plan is not None:
                check_entries(plan, agent, entries)
        except PrivacyError as error:
            return cls(folder, agent, None, (), (str(error),))
        return cls(folder, agent, plan, entries, ())

    @property
    def epsilon_spent(self) -> float:
        return 0.0 if self.plan is None else self.plan.epsilon_after(len(self.entries))

    def print(self) -> None:
        name = "unknown agent" if self.agent is None else f"agent {self.agent}"
        RESULTS.print(Text.assemble((name, "bold"), f"  {self.folder}"), soft_wrap=True)
        for problem in self.problems:
            RESULTS.print(Text.assemble(("DAMAGED  ", "bold red"), problem), soft_wrap=True)
        if self.problems:
            RESULTS.print(Text("Its contents cannot be trusted; the agent must stay silent."), soft_wrap=True)
            return
        RESULTS.print(Text.assemble(("intact  ", "green"), self._summary()), soft_wrap=True)
        if self.entries:
            headings = ("release", "when", "event", "sensitivity", "noise sd", "bytes", "ε so far")
            print_table(headings, self._rows(), words=("when", "event"))

    def _summary(self) -> str:
        if self.plan is None:
            return "nothing is granted yet, and nothing is spent"
        budget = self.plan.budget
        n_lost = sum(entry.payload is None for entry in self.entries)
        summary = (
            f"spent ε = {self.epsilon_spent:.4g} of {budget.epsilon:.4g} at δ = {budget.delta:.4g} "
            f"on {len(self.entries):,} releases (a plan of {len(self.plan):,}, accounted by "
            f"{self.plan.accountant})"
        )
        return f"{summary}, {n_lost} of them lost without a message" if n_lost else summary

    def _rows(self) -> Iterator[tuple[str, ...]]:
        n_hidden = max(len(self.entries) - SHOWN_ENTRIES, 0)
        if n_hidden:
            yield "…", f"{n_hidden:,} earlier ones, in --json"
        for entry in map(self._entry, self.entries[n_hidden:]):
            yield (
                str(entry["number"]),
                entry["recorded"],
                entry["mechanism"],
                f"{entry['sensitivity']:.4g}",
                f"{entry['noise_std']:.4g}",
                "lost" if entry["bytes"] is None else f"{entry['bytes']:,}",
                f"{entry['epsilon_so_far']:.4g}",
            )

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        budget = None if self.plan is None else self.plan.budget
        return {
            "folder": str(self.folder),
            "agent": self.agent,
            "intact": not self.problems,
            "problems": list(self.problems),
            "epsilon": None if budget is None else budget.epsilon,
            "delta": None if budget is None else budget.delta,
            "epsilon_spent": None if self.problems else self.epsilon_spent,
            "entries": [self._entry(entry) for entry in self.entries],
        }

    def _entry(self, entry: Entry) -> dict[str, Any]:
        assert self.plan is not None  # nothing is entered before something is granted
        return {
            "number": entry.number,
            "recorded": entry.recorded,
            "mechanism": entry.event.name,
            "sensitivity": entry.event.sensitivity,
            "noise_scale": entry.event.scale,
            "noise_std": entry.event.noise_std,
            "grid": entry.event.grid,
            "bytes": None if entry.payload is None else len(entry.payload),
            "epsilon_so_far": self.plan.epsilon_after(entry.number),
        }
