"""A private fit: what would leak is refused, and what runs is simulated with noise within the budget."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.engine import simulate
from flockwise.errors import PrivacyError, without_advice
from flockwise.estimators.fitting import Alone, alone_models
from flockwise.estimators.rows import FitRows
from flockwise.estimators.validation import AgentGains, HeldOut, Step
from flockwise.graph import SimilarityGraph
from flockwise.method import Candidate, LearnedPrior, PublicFacts
from flockwise.planner import plan_run
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import Guarantee
from flockwise.progress import watched
from flockwise.results import Trajectory

# Targets are scaled to [−1, 1], and so are predictions of any use: residuals are about 1 at most.
RESIDUAL_SCALE: Final = 1.0
SEARCHED: Final = (
    "what a search or a cross-validation chooses by comparing several fits: this estimator is a clone, as "
    "they make them"
)

# What scikit-learn does to the columns before a fit is not seen here.
EACH_ROW_ALONE: Final = (
    "the columns were made from each row alone, or by public rules; a scaler that saw all rows before would "
    "leak"
)
# Standard errors of the mean gain by which a loss has to stand out.
CERTAINTY: Final = 2.0


def check_private(estimator: Any, sample_weight: Any) -> None:
    """Refuse what would tell something of the rows beside what the noise hides."""
    if not isinstance(estimator.budget, Budget):
        raise PrivacyError(f"budget must be a flockwise.Budget, got {estimator.budget!r}")
    if isinstance(estimator.graph, str) and estimator.graph == "models":
        raise PrivacyError(
            'graph="models" would leak: its edges come from the rows; give graph="profiles" with public '
            "profiles, or leave the graph out"
        )
    if sample_weight is not None or getattr(estimator, "class_weight", None) is not None:
        raise PrivacyError(
            "weights of rows or classes would leak, or change how much noise is needed; leave sample_weight "
            "and class_weight out of a private fit"
        )
    if estimator.method == "both":
        raise PrivacyError('method="both" has no private form; say method="prior", "graph" or "auto"')
    if estimator.prepare is None:
        raise PrivacyError('with a budget columns are scaled by their public bounds; leave prepare="auto"')


@dataclass(frozen=True, eq=False)
class PrivateFit:
    """A method that was chosen from public facts alone, and runs of it.

    candidate: None where a plan advises to keep local models. graph: public, or the guarantee says that it
        is not.
    """

    candidate: Candidate | None
    graph: SimilarityGraph | None
    settings: Mapping[str, Any]

    @classmethod
    def planned(
        cls, estimator: Any, rows: FitRows, feature_bound: float, graph: SimilarityGraph | None
    ) -> PrivateFit:
        """The method that a plan recommends, of those that need the graph if they were asked for."""
        settings: dict[str, Any] = {"feature_bound": feature_bound}
        if rows.loss.metric == "rmse":
            settings["target_range"] = (-1.0, 1.0)
        if estimator.tradeoff != "auto":
            settings["tradeoff"] = estimator.tradeoff  # one that was chosen on samples says so
        if estimator.method == "prior":
            return cls(Candidate("learned prior", LearnedPrior(estimator.budget)), None, settings)
        facts = PublicFacts.of(
            rows.problem(graph, **settings),
            estimator.budget,
            chooses_tradeoff=estimator.tradeoff == "auto",
            residual_scale=RESIDUAL_SCALE,
        )
        with watched("planning", "trials") as report, without_advice():
            plan = plan_run(facts, report)
        if estimator.method == "graph":
            plan = replace(plan, groups=tuple(group for group in plan.groups if not group.sums_only))
        return cls(plan.chosen, graph, settings)

    def run(self, rows: FitRows, seed: int) -> Trajectory | None:
        """One run with the noise of this seed."""
        if self.candidate is None:
            return None
        problem = self.candidate.problem(rows.problem(self.graph, **self.settings))
        return simulate(problem, self.candidate.method, seed=seed, **self.candidate.stops)

    def errors(self, rows: FitRows, folds: NDArray[np.int64], alone: Alone, seed: int, step: Step) -> Floats:
        """Of own models on rows that were held out, each run with as much noise, drawn anew."""
        seeds = itertools.count(seed)

        def own_models(known: FitRows) -> list[Floats]:
            with without_advice():
                run = self.run(known, next(seeds))
            assert run is not None
            kept_alone = reason_to_stay_alone(run) is not None
            return [alone_models(known, alone) if kept_alone else np.asarray(run.own_models)]

        return HeldOut(rows, folds, own_models, step).errors[0]


def reason_to_stay_alone(run: Trajectory | None) -> str | None:
    """Why agents keep the models that they learned alone; None if they have better ones."""
    if run is None:
        return 'a plan expects no gain within this budget (method="prior" runs all the same)'
    advice = run.settings.get("advice")
    return None if advice is None else str(advice).removeprefix("keep the local models: ")


def guarantee_of(run: Trajectory, *, is_clone: bool) -> Guarantee:
    """For this one fit; that of a clone does not cover what is chosen among several."""
    made = run.guarantee
    assert made is not None  # a private run without one is refused
    searched = (SEARCHED,) if is_clone else ()
    return replace(made, assumes=(*made.assumes, EACH_ROW_ALONE), not_covered=(*made.not_covered, *searched))


def is_clearly_worse(gain: AgentGains) -> bool:
    """Whether agents lose on average by learning together, by more than chance would have it."""
    known = gain.gain[np.isfinite(gain.gain)]
    return known.size > 1 and known.mean() < -CERTAINTY * known.std(ddof=1) / np.sqrt(known.size)
