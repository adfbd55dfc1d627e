"""report.html: one file with everything in it, that opens offline, in light and dark, and prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup

from flockwise.files import write_whole
from flockwise.report.comparison import PRIVATE, Comparison
from flockwise.report.theme import Picture, inline_svg
from flockwise.results.tuning import TradeoffChoice

NOT_PRIVATE = "Not differentially private: this run has privacy = none."


@dataclass(frozen=True, eq=False)
class Page:
    """The page of a comparison, with its title, where the data came from, and all settings."""

    title: str
    comparison: Comparison
    data_description: str
    settings: Mapping[str, Mapping[str, Any]]
    version: str
    choice: TradeoffChoice | None = None
    choice_description: str = ""

    def write(self, path: Path, pictures: Sequence[Picture]) -> None:
        """The whole page, or nothing."""
        text = self.render(pictures)
        write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))

    def render(self, pictures: Sequence[Picture]) -> str:
        environment = templates()
        environment.filters |= {"count": "{:,}".format, "metric": self._metric, "set": _as_set}
        problem, graph = self.comparison.problem, self.comparison.problem.graph
        return environment.get_template("report.html").render(
            page=self,
            not_private=NOT_PRIVATE,
            guarantees=[found.explain().splitlines() for found in self.comparison.guarantees.values()],
            summary=self._summary(),
            rows=self._table(),
            metric=self.comparison.metric,
            problem=problem,
            sample_counts=_spread(problem.population.sample_counts),
            l2=_spread(problem.l2_penalties),
            graph_lines=[] if graph is None else graph.describe(problem.population.agent_names).splitlines(),
            graph_is_private=graph is not None and not graph.source.origin.is_covered,
            pictures=[(picture, Markup(inline_svg(picture))) for picture in pictures],
        )

    def _metric(self, value: float) -> str:
        if np.isnan(value):
            return "–"
        return f"{100 * value:.1f} %" if self.comparison.metric == "accuracy" else f"{value:.4f}"

    def _table(self) -> list[dict[str, Any]]:
        n_agents = self.comparison.problem.n_agents
        return [
            {
                "label": self.comparison.label(row.method, row.model),
                "color": self.comparison.looks[row.method][0],
                "metric": self._metric(row.metric),
                "spread": self._metric(row.metric_sd),
                "objective": "–" if np.isnan(row.objective) else f"{row.objective:,.4f}",
                "updates": _amount(row.updates / n_agents),
                "vectors": _amount(row.vectors / n_agents),
                "megabytes": _amount(row.bytes / 1e6),
            }
            for row in self.comparison.rows
        ]

    def _summary(self) -> list[tuple[str, str]]:
        """The few numbers that say it all, each with its words."""
        found = self.comparison.gains()
        if found is None:
            return []
        method, gains = found
        by_name = {row.name: row for row in self.comparison.rows}
        known = gains[~np.isnan(gains)]
        word = self.comparison.metric if self.comparison.metric == "accuracy" else "RMSE"
        model = self.comparison.shown_model(method)
        shown = method if model is None else f"{method} ({model})"
        tiles = [
            (self._metric(by_name["local"].metric), f"mean {word}, each agent alone"),
            (self._metric(by_name[shown].metric), f"mean {word}, {self.comparison.label(method, model)}"),
            (f"{100 * float((known > 0).mean()):.0f} %", "of the agents are better off"),
        ]
        own = by_name.get(f"{PRIVATE} (own)")
        if own is not None and shown != own.name:
            tiles.insert(2, (self._metric(own.metric), f"mean {word}, private at ε = {own.epsilon:g}"))
        return tiles


def templates(*folders: Path) -> Environment:
    """Those of the package, and those in further folders."""
    return Environment(
        loader=ChoiceLoader([PackageLoader("flockwise.report"), *map(FileSystemLoader, folders)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _spread(values: np.ndarray) -> str:
    if values.min() == values.max():
        return f"{values.min():.4g} for every agent"
    return f"{values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}"


def _amount(value: float) -> str:
    return f"{value:,.1f}" if value else "0"


def _as_set(value: Any) -> str:
    """A setting as it would stand in a configuration file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_as_set(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)
