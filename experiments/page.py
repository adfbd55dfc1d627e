"""report.html of a reproduction: a section per experiment, each published value beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from experiments.counted import OUTCOMES, counted, in_words, of_the_paper, outcomes
from flockwise.files import write_whole
from flockwise.report.page import templates
from flockwise.report.theme import Picture, inline_svg

# The keys that every row of a result has; what else it has says where it belongs.
COMMON = frozenset(
    (
        *("what", "agents", "dimension", "variant", "model", "epsilon", "delta"),
        *("metric", "paper", "ours", "sd", "runs", "verdict", "guarantee", "reached", "x", "noisy", "value"),
    )
)
SIZES = ("agents", "dimension")
DECIMALS = {"accuracy": 3, "gain": 3, "rmse": 4}


@dataclass(frozen=True, eq=False)
class ExperimentSection:
    """One experiment: its words, its picture, and its numbers as NAME.json holds them."""

    title: str
    story: str
    caption: str
    figure: Figure
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.document["name"]

    @property
    def compared(self) -> list[dict[str, str]]:
        """The one row of each published value."""
        return [self._shown(row) for row in of_the_paper([self.document])]

    @property
    def not_counted(self) -> list[dict[str, str]]:
        """What else stands beside a published value."""
        rows = self.document["rows"]
        return [self._shown(row) for row in rows if row["verdict"] and "value" not in row]

    @property
    def others(self) -> list[dict[str, str]]:
        return [self._shown(row) for row in self.document["rows"] if not row["verdict"]]

    @property
    def tally(self) -> str:
        """How many published values hold, and how many do not."""
        found = of_the_paper([self.document])
        return tally(found) if found else "No published value is judged here."

    @property
    def setting(self) -> str:
        """What is the same for all rows."""
        rows = self.document["rows"]
        return ", ".join(f"{key} {rows[0][key]}" for key in SIZES if not _varies(rows, key))

    def _shown(self, row: Mapping[str, Any]) -> dict[str, str]:
        """A row as its cells."""
        metric = row["metric"]
        return {
            "what": row["what"].replace("_", " "),
            "kind": row["variant"] if is_private(row) else "",
            "model": row["model"],
            "where": place(row, self.document["rows"]),
            "metric": metric.replace("_", " "),
            "paper": number(row["paper"], metric),
            "beside": beside(row),
            "ours": value_and_spread(row),
            "runs": str(row["runs"]),
            "verdict": in_words(row["verdict"], metric),
        }

    @property
    def svg(self) -> Markup:
        return Markup(inline_svg(Picture(self.name, self.title, self.caption, self.figure)))

    @property
    def minutes(self) -> str:
        seconds = self.document["seconds"]
        return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The page: what held and what did not, then a section per experiment."""

    sections: Sequence[ExperimentSection]
    version: str

    def write(self, path: Path) -> None:
        """The whole page, or nothing."""
        text = self.render()
        write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))

    def render(self) -> str:
        return (
            templates(Path(__file__).parent / "templates")
            .get_template("reproduction.html")
            .render(
                page=self,
                held=list(self._claims("paper", True)),
                failed=list(self._claims("paper", False)),
                causes=list(self._claims("cause", True)),
                no_causes=list(self._claims("cause", False)),
                better=list(self._claims("ours", True)),
                missed=list(self._claims("ours", False)),
            )
        )

    @property
    def counted(self) -> list[tuple[str, int, list[int]]]:
        """Of all sections, each published value once; kinds that there are."""
        found = counted([section.document for section in self.sections])
        return [line for line in found if line[1]]

    def _claims(self, about: str, holds: bool) -> Iterator[tuple[str, str, bool]]:
        """Section, words, and whether they rest on a quick run."""
        for section in self.sections:
            for claim in section.document["claims"]:
                if claim["about"] == about and claim["holds"] == holds:
                    yield section.name, claim["words"], bool(section.document["quick"])


def is_private(row: Mapping[str, Any]) -> bool:
    """False for a run that carries the label of one without a guarantee."""
    return row["variant"] != "published" or "guarantee" not in row


def place(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Where a row belongs: its budget, the sizes that differ between rows, and what it alone has."""
    sizes = {key: row[key] for key in SIZES if _varies(rows, key)}
    budget = {} if row["epsilon"] is None else {"ε": row["epsilon"]}
    if _varies([other for other in rows if other["delta"] is not None], "delta"):
        budget |= {} if row["delta"] is None else {"δ": row["delta"]}
    more = {key: value for key, value in row.items() if key not in COMMON}
    words = (f"{key.replace('_', ' ')} {_word(value)}" for key, value in (budget | sizes | more).items())
    return ", ".join(words)


def beside(row: Mapping[str, Any]) -> str:
    """Ours as it stands beside a published value: accuracies on noisy test labels, as verdicts are made."""
    return number(row.get("noisy", row["ours"]), row["metric"])


def tally(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of rows that reproduce one published value each."""
    words = dict(zip(OUTCOMES, ("hold", "ours higher", "ours lower", "cannot be compared"), strict=True))
    found = dict(zip(OUTCOMES, outcomes(rows), strict=True))
    counts = ", ".join(f"{found[outcome]} {words[outcome]}" for outcome in OUTCOMES if found[outcome])
    return f"Published values, each counted once: {len(rows)}; {counts}."


def number(value: float | None, metric: str) -> str:
    """As tables show it."""
    if value is None or math.isnan(value):
        return "–"
    digits = DECIMALS.get(metric)
    if digits is not None:
        return f"{value:+.{digits}f}" if metric == "gain" else f"{value:.{digits}f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def value_and_spread(row: Mapping[str, Any]) -> str:
    """Ours, and its standard deviation over instances; of a count that was not reached, what it exceeds."""
    metric = row["metric"]
    if row.get("reached") is False:
        return f"> {number(row['ours'], metric)}"
    spread = "" if row["sd"] is None else f" ± {number(row['sd'], metric).lstrip('+')}"
    return number(row["ours"], metric) + spread


def _varies(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return len({row[key] for row in rows}) > 1


def _word(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
