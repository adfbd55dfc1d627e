"""Quick pictures of one run, as matplotlib figures: `run.plot()`, `run.plot.gain()`, …"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from flockwise.arrays import Floats
from flockwise.errors import DataError
from flockwise.results.metrics import metrics_by_sample_count, size_bins

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flockwise.results.trajectory import Trajectory

NO_TEST = "there was no test set; give simulate test="


class RunPlots:
    """What one run has to show; the report of `flockwise simulate` compares several."""

    def __init__(self, run: Trajectory) -> None:
        self._run = run

    def __call__(self) -> Figure:
        """The main picture: the course of the run."""
        return self.convergence()

    def convergence(self) -> Figure:
        """Objective, and the metric if there was a test set, against updates per agent."""
        run = self._run
        if len(run.records) < 2:
            raise DataError(f"method {run.method!r} was computed at once: there is no course to show")
        updates = run.column("ticks") / len(run.models)
        shown = {"objective": run.column("objective"), run.loss.metric: run.column("metric")}
        shown = {name: values for name, values in shown.items() if not np.isnan(values).all()}
        figure = _figure(4.5 * len(shown))
        for place, (name, values) in enumerate(shown.items(), start=1):
            axes = figure.add_subplot(1, len(shown), place)
            axes.plot(updates, values)
            axes.set(xlabel="updates per agent", ylabel=name)
        return figure

    def agents(self) -> Figure:
        """How many agents reach which metric with the model that they use themselves."""
        figure, scores = _figure(5.0), self._scores()
        axes = figure.add_subplot()
        axes.hist(scores[~np.isnan(scores)], bins=30)
        axes.set(xlabel=f"{self._run.loss.metric} of an agent's own test samples", ylabel="agents")
        return figure

    def gain(self, alone: Trajectory | None = None) -> Figure:
        """How many agents are better off, and by how much, than with the model that they learn alone.

        alone: a run of `Local()` on the same problem; a run that was loaded from a file needs it.
        """
        gains = self._scores() - self._alone(alone)
        gains = gains[~np.isnan(gains)] * (1 if self._run.loss.metric == "accuracy" else -1)
        error = gains.std(ddof=1) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        figure = _figure(5.0)
        axes = figure.add_subplot()
        axes.hist(gains, bins=30)
        axes.axvline(0, color="black", linewidth=1)
        axes.set(
            title=f"{(gains > 0).mean():.0%} of the agents gain; mean {gains.mean():+.3g} ± {error:.2g}",
            xlabel=f"gain in {self._run.loss.metric} over learning alone (more is better)",
            ylabel="agents",
        )
        return figure

    def by_size(self, alone: Trajectory | None = None) -> Figure:
        """The metric of agents with little and with much data, beside that of learning alone."""
        counts = self._run.sample_counts
        if counts is None:
            raise DataError("the file was saved before runs knew how many samples agents have")
        lines = {"together": self._scores()}
        if alone is not None or self._run.alone is not None:
            lines = {"alone": self._alone(alone)} | lines
        figure = _figure(5.0)
        axes = figure.add_subplot()
        for name, scores in lines.items():
            bins = metrics_by_sample_count(counts, scores, bins=size_bins(counts))
            middle = [(row.lowest + row.highest) / 2 for row in bins]
            errors = [row.sd / math.sqrt(row.n_agents) for row in bins]
            axes.errorbar(middle, [row.mean for row in bins], yerr=errors, marker="o", label=name)
        axes.set(xlabel="training samples of the agent", ylabel=self._run.loss.metric)
        axes.legend()
        return figure

    def budget(self) -> Figure:
        """How much an agent can leak at most, against whom."""
        guarantee = self._run.guarantee
        if guarantee is None:
            raise DataError(f"the run of {self._run.method!r} has no budget: it is not private")
        bars = {"guaranteed": max(guarantee.epsilon)}
        if guarantee.if_all_collude is not None:
            bars["if all others collude"] = max(guarantee.if_all_collude)
        figure = _figure(6.5, 1.6 + 0.5 * len(bars))
        axes: Any = figure.add_subplot()
        drawn = axes.barh(list(bars), list(bars.values()))
        axes.bar_label(
            drawn, [f" ε = {value:.4g}: odds change by ×{math.exp(value):.3g}" for value in bars.values()]
        )
        axes.margins(x=0.9)
        axes.invert_yaxis()
        leaks = "; not covered: " + "; ".join(guarantee.not_covered) if guarantee.not_covered else ""
        axes.set(title=f"{guarantee.parameters}: {guarantee.neighboring}{leaks}", xlabel="ε of an agent")
        axes.title.set_size("small")
        return figure

    def _scores(self) -> Floats:
        """With the model that an agent uses itself."""
        run = self._run
        scores = run.agent_metrics if run.own_metrics is None else run.own_metrics
        if scores is None:
            raise DataError(NO_TEST)
        return scores

    def _alone(self, given: Trajectory | None) -> Floats:
        if given is None and self._run.alone is None:
            raise DataError("give alone=, a run of Local() on the same problem with the same test=")
        scores = (
            self._run.alone()
            if given is None and self._run.alone is not None
            else given and given.agent_metrics
        )
        if scores is None or len(scores) != len(self._run.models):
            raise DataError("alone= must be a run of the same agents with test=")
        return scores


def _figure(width: float, height: float = 3.2) -> Figure:
    from matplotlib.figure import Figure  # slow to import

    return Figure(figsize=(width, height), layout="constrained")
