"""Quick pictures of one run, as matplotlib figures: `run.plot()`, `run.plot.agents()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flockwise.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flockwise.results.trajectory import Trajectory


class RunPlots:
    """What one run has to show; the report of `flockwise simulate` compares several."""

    def __init__(self, run: Trajectory) -> None:
        self._run = run

    def __call__(self) -> Figure:
        """The main picture: the course of the run."""
        return self.convergence()

    def convergence(self) -> Figure:
        """Objective, and the metric if there was a test set, against updates per agent."""
        from matplotlib.figure import Figure  # slow to import

        run = self._run
        if len(run.records) < 2:
            raise DataError(f"method {run.method!r} was computed at once: there is no course to show")
        updates = run.column("ticks") / len(run.models)
        shown = {"objective": run.column("objective"), run.loss.metric: run.column("metric")}
        shown = {name: values for name, values in shown.items() if not np.isnan(values).all()}
        figure = Figure(figsize=(4.5 * len(shown), 3.2), layout="constrained")
        for place, (name, values) in enumerate(shown.items(), start=1):
            axes = figure.add_subplot(1, len(shown), place)
            axes.plot(updates, values)
            axes.set(xlabel="updates per agent", ylabel=name)
        return figure

    def agents(self) -> Figure:
        """How many agents reach which metric with the model that they use themselves."""
        from matplotlib.figure import Figure  # slow to import

        run = self._run
        scores = run.agent_metrics if run.own_metrics is None else run.own_metrics
        if scores is None:
            raise DataError("there was no test set; give simulate test=")
        figure = Figure(figsize=(5.0, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.hist(scores[~np.isnan(scores)], bins=30)
        axes.set(xlabel=f"{run.loss.metric} of an agent's own test samples", ylabel="agents")
        return figure
