"""report.html: one file with everything in it, that opens offline, in light and dark, and prints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup

from flockwise.files import write_text
from flockwise.report.comparison import Comparison
from flockwise.report.tables import agent_table, results_table, shown_gain, shown_metric, what_ran
from flockwise.report.theme import Picture, inline_svg
from flockwise.report.verdict import promise, verdicts
from flockwise.results.tuning import TradeoffChoice

NOT_PRIVATE = "Not differentially private: this run has privacy = none."


@dataclass(frozen=True, eq=False)
class Page:
    """The page of a comparison, with its title, where the data came from, and all settings.

    plan_lines: what a plan said beforehand, where it chose the method.
    """

    title: str
    comparison: Comparison
    data_description: str
    settings: Mapping[str, Mapping[str, Any]]
    version: str
    choice: TradeoffChoice | None = None
    choice_description: str = ""
    plan_lines: Sequence[str] = ()

    def write(self, path: Path, pictures: Sequence[Picture]) -> None:
        """The whole page, or nothing."""
        write_text(path, self.render(pictures))

    def render(self, pictures: Sequence[Picture]) -> str:
        environment = templates()
        environment.filters |= {
            "count": "{:,}".format,
            "metric": partial(shown_metric, metric=self.comparison.metric),
            "gain": partial(shown_gain, metric=self.comparison.metric),
            "set": _as_set,
            "unbroken": _unbroken,
        }
        problem, graph = self.comparison.problem, self.comparison.problem.graph
        return environment.get_template("report.html").render(
            page=self,
            not_private=NOT_PRIVATE,
            guarantees=[
                (self.comparison.label(name), promise(found), found.explain().splitlines())
                for name, found in self.comparison.guarantees.items()
            ],
            summary=self._summary(),
            rows=results_table(self.comparison),
            verdicts=verdicts(self.comparison),
            agents=agent_table(self.comparison),
            tuned_alone=len(self.comparison.drawn) < len(self.comparison.runs),
            ran=what_ran(self.comparison),
            metric=self.comparison.metric,
            problem=problem,
            sample_counts=_spread(problem.population.sample_counts),
            l2=_spread(problem.l2_penalties),
            graph_lines=[] if graph is None else graph.describe(problem.population.agent_names).splitlines(),
            graph_is_private=graph is not None and not graph.source.origin.is_covered,
            pictures=[(picture, Markup(inline_svg(picture))) for picture in pictures],
        )

    def _summary(self) -> list[tuple[str, str]]:
        """The few numbers that say it all, each with its words."""
        found = self.comparison.gains()
        if found is None or self.comparison.alone is None:
            return []
        metric = partial(shown_metric, metric=self.comparison.metric)
        word = "accuracy" if self.comparison.metric == "accuracy" else "error (RMSE)"
        tiles = [(metric(float(np.nanmean(self.comparison.alone))), f"mean {word}, each agent alone")]
        for name in dict.fromkeys((found[0], *self.comparison.guarantees)):
            scores = self.comparison.agent_scores(name)
            label = self.comparison.label(name, self.comparison.shown_model(name))
            if scores is not None:
                tiles.append((metric(float(np.nanmean(scores))), f"mean {word}, {label}"))
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


def _unbroken(text: str) -> str:
    """With "ε = 1", "+2.1 ± .4" and "1e-05" on one line each."""
    return re.sub(r"(?<=\de)-(?=\d)", "\u2011", re.sub(" ([=±]) ", "\u00a0\\1\u00a0", text))


def _as_set(value: Any) -> str:
    """A setting as it would stand in a configuration file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_as_set(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)
