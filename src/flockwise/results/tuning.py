"""Choice of the trade-off μ, and with it of the penalties λ_i, on validation data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from flockwise.data.population import Population
from flockwise.errors import ObjectiveError
from flockwise.objective import Problem
from flockwise.objective.losses import loss_name
from flockwise.privacy.origin import Origin
from flockwise.results.frames import in_order_of
from flockwise.results.metrics import agent_losses, agent_metrics, mean_metric
from flockwise.solve.optimum import solve_optimum
from flockwise.solve.penalty import ChosenPenalties, penalties_of

Judge: TypeAlias = Literal["loss", "metric"]

# κ of penalties λ_i = κ/m_i, where these are chosen as well.
WEIGHTS: Final = tuple(4.0**power for power in range(-4, 4))
CHOSEN: Final = Origin("the trade-off, chosen on held-out samples of the agents", "private")
LOSS_WORDS: Final = {"logistic": "log loss", "softmax": "log loss", "quadratic": "squared error"}


class ChosenTradeoff(float):
    """A μ that knows, wherever it is used, that it was chosen on samples."""

    origin = CHOSEN


@dataclass(frozen=True)
class TradeoffScore:
    """What one trade-off reaches: the mean over problems, and each problem's mean over agents.

    weight: the κ of penalties λ_i = κ/m_i that is best with it; None if penalties were given.
    """

    tradeoff: float
    score: float
    problem_scores: tuple[float, ...]
    weight: float | None = None


@dataclass(frozen=True)
class TradeoffChoice:
    """The best trade-off, and the whole table in ascending order of the trade-off.

    judged_by: what scores are: "log loss", "squared error", the name of another loss, "accuracy" or "rmse".
    weight: κ of the penalties that were chosen with it; None if penalties were given.
    """

    best: float
    judged_by: str
    table: tuple[TradeoffScore, ...]
    weight: float | None = None

    @property
    def cost(self) -> str:
        """The cost of the choice in privacy."""
        if not isinstance(self.best, ChosenTradeoff):
            return "The validation samples are public, so the choice costs no privacy."
        return (
            "The choice looks at held-out samples of the agents, and no budget pays for that: the guarantee "
            "of a private run with it names it as not covered."
        )

    def applied(self, problem: Problem) -> Problem:
        """The problem with the chosen trade-off, and the chosen penalties if there are any."""
        if self.weight is None:
            return problem.with_tradeoff(self.best)
        penalties = penalties_of(self.weight, problem.population)
        if isinstance(self.best, ChosenTradeoff):
            penalties = ChosenPenalties(penalties)
        return problem.with_objective(tradeoff=self.best, l2=penalties)


def choose_tradeoff(
    trials: Sequence[tuple[Problem, Population]],
    grid: Iterable[float],
    *,
    judged_by: Judge = "loss",
    public: bool = False,
    tolerance: float = 1e-6,
) -> TradeoffChoice:
    """The μ of the grid whose optimum of Eq. (2) is best on validation data, on average over trials.

    Problems with l2="auto" have their penalties λ_i = κ/m_i chosen together with it, from 1/256 to 64.

    trials: problems with the validation samples of their agents, found by name; each problem's own μ is
        ignored.
    judged_by: the loss of the problems (log loss, squared error), or the metric that runs show. Accuracy
        does not see how sure a model is: many trade-offs look alike to it, and it takes the best of them by
        luck.
    public: whether the validation samples are public; the choice then costs no privacy.
    tolerance: how exactly each optimum is solved (relative gap); a choice needs little.
    Of trade-offs with the same score the smallest is taken.
    """
    values = sorted({float(value) for value in grid})
    weights = _checked_weights(trials, values)
    trials = [(problem, _same_agents(problem.population, held_out)) for problem, held_out in trials]
    # Trade-offs × weights × problems.
    scores = np.array(
        [
            [_scores_along(*trial, values, weight, judged_by, tolerance) for trial in trials]
            for weight in weights
        ]
    ).transpose(2, 0, 1)
    words = _words(trials[0][0], judged_by)
    sign = -1 if words == "accuracy" else 1
    table = []
    for value, of_weights in zip(values, scores, strict=True):
        layer = int(np.argmin(sign * of_weights.mean(axis=1)))
        found = of_weights[layer]
        table.append(TradeoffScore(value, float(found.mean()), tuple(found.tolist()), weights[layer]))
    best = min(table, key=lambda row: sign * row.score)
    tradeoff = best.tradeoff if public else ChosenTradeoff(best.tradeoff)
    return TradeoffChoice(tradeoff, words, tuple(table), best.weight)


def _scores_along(
    problem: Problem,
    held_out: Population,
    values: Sequence[float],
    weight: float | None,
    judged_by: Judge,
    tolerance: float,
) -> list[float]:
    """The mean score for each μ; each solution starts from the one before."""
    if weight is not None:
        problem = problem.with_objective(l2=penalties_of(weight, problem.population))
    scores, models = [], None
    for value in values:
        models = solve_optimum(problem.with_tradeoff(value), tolerance=tolerance, start=models).models
        judge = agent_losses if judged_by == "loss" else agent_metrics
        scores.append(mean_metric(judge(problem.loss, held_out, models)))
    return scores


def _words(problem: Problem, judged_by: Judge) -> str:
    if judged_by == "metric":
        return problem.loss.metric
    name = loss_name(problem.loss)
    return LOSS_WORDS.get(name, f"loss {name!r}")


def _checked_weights(
    trials: Sequence[tuple[Problem, Population]], values: Sequence[float]
) -> tuple[float | None, ...]:
    """κ to try."""
    if not trials or not values:
        raise ObjectiveError("choosing a trade-off needs at least one problem and one value in the grid")
    losses = [(type(problem.loss), problem.loss) for problem, _ in trials]
    if losses != losses[:1] * len(losses):
        raise ObjectiveError("the problems are judged by different losses; use one kind of loss")
    if any(held_out.n_samples == 0 for _, held_out in trials):
        raise ObjectiveError("the validation data has no samples, so nothing can be judged")
    chooses = [problem.objective.l2 == "auto" for problem, _ in trials]
    if any(chooses) and not all(chooses):
        raise ObjectiveError(
            'l2="auto" has one weight chosen for all problems; give it to all of them or none'
        )
    return WEIGHTS if all(chooses) else (None,)


def _same_agents(train: Population, held_out: Population) -> Population:
    held_out = in_order_of(train, held_out)
    if held_out.n_agents != train.n_agents:
        raise ObjectiveError(
            f"the validation data has {held_out.n_agents} agents and the problem {train.n_agents}"
        )
    return held_out
