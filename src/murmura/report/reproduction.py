"""report.html of a reproduction: a section per experiment, each published value beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from murmura.files import write_whole
from murmura.report.plots import Picture
from murmura.report.svg import inline_svg

# The keys that every row of a result has; what else it has says where it belongs.
COMMON = frozenset(
    (
        *("what", "agents", "dimension", "variant", "model", "epsilon", "delta"),
        *("metric", "paper", "ours", "sd", "runs", "verdict", "guarantee"),
    )
)
PERCENT = frozenset({"accuracy", "gain"})
SIZES = ("agents", "dimension")


@dataclass(frozen=True, eq=False)
class Section:
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
        """Rows that have a published value."""
        return [self._shown(row) for row in self.document["rows"] if row["paper"] is not None]

    @property
    def others(self) -> list[dict[str, str]]:
        return [self._shown(row) for row in self.document["rows"] if row["paper"] is None]

    @property
    def setting(self) -> str:
        """What is the same for all rows."""
        rows = self.document["rows"]
        return ", ".join(f"{key} {rows[0][key]}" for key in SIZES if not _varies(rows, key))

    def _shown(self, row: Mapping[str, Any]) -> dict[str, str]:
        """A row as its cells."""
        metric = row["metric"]
        spread = "" if row["sd"] is None else f" ± {number(row['sd'], metric)}"
        return {
            "what": row["what"].replace("_", " "),
            "kind": row["variant"] if "guarantee" not in row else "",
            "model": row["model"],
            "where": place(row, self.document["rows"]),
            "metric": metric.replace("_", " "),
            "paper": number(row["paper"], metric),
            "ours": number(row["ours"], metric) + spread,
            "runs": str(row["runs"]),
            "verdict": row["verdict"],
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

    sections: Sequence[Section]
    version: str

    def write(self, path: Path) -> None:
        """The whole page, or nothing."""
        text = self.render()
        write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))

    def render(self) -> str:
        environment = Environment(
            loader=PackageLoader("murmura.report"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        return environment.get_template("reproduction.html").render(
            page=self,
            held=list(self._claims("paper", True)),
            failed=list(self._claims("paper", False)),
            better=list(self._claims("ours", True)),
            missed=list(self._claims("ours", False)),
        )

    def _claims(self, about: str, holds: bool) -> Iterator[tuple[str, str]]:
        for section in self.sections:
            for claim in section.document["claims"]:
                if claim["about"] == about and claim["holds"] == holds:
                    yield section.name, claim["words"]


def place(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Where a row belongs: its budget, the sizes that differ between rows, and what it alone has."""
    sizes = {key: row[key] for key in SIZES if _varies(rows, key)}
    budget = {} if row["epsilon"] is None else {"ε": row["epsilon"]}
    more = {key: value for key, value in row.items() if key not in COMMON}
    words = (f"{key.replace('_', ' ')} {_word(value)}" for key, value in (budget | sizes | more).items())
    return ", ".join(words)


def number(value: float | None, metric: str) -> str:
    """As tables show it."""
    if value is None or math.isnan(value):
        return "–"
    if metric in PERCENT:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _varies(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return len({row[key] for row in rows}) > 1


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
