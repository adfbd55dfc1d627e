"""A recommendation: which private method to run, what to expect of it, and whether to run anything at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from flockwise.method import Candidate, PublicFacts, candidates
from flockwise.planner.field import SmoothField
from flockwise.planner.trials import Expectation, local_metric, trial
from flockwise.planner.twins import agents_to_simulate, facts_of_part, graph_of, plausible_shares, twins

# A run is worth it from half a point of accuracy on, or half a percent of the RMSE.
WORTH: Final = 0.005
# Standard errors by which a gain has to stand out.
CERTAINTY: Final = 2.0

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The expected results of every candidate, best first.

    simulated_agents: of how many agents a twin consists. shares: how much of a twin's models varies
    along its graph; nothing if the edges look random. local: the metric of the twins' local models.
    """

    facts: PublicFacts
    simulated_agents: int
    shares: tuple[float, ...]
    local: float
    expectations: tuple[Expectation, ...]

    @property
    def best(self) -> Expectation | None:
        """The private candidate of the largest expected gain; None if there is none to run."""
        return next((one for one in self.expectations if not one.candidate.sends_nothing), None)

    @property
    def chosen(self) -> Candidate | None:
        """What to run, ready for all agents; None advises to keep the local models."""
        best = self.best
        if best is None or best.gain_by_collaboration < self.gain_wanted:
            return None
        return next(one for one in candidates(self.facts) if one.words == best.candidate.words)

    @property
    def gain_wanted(self) -> float:
        """The least gain by collaboration that makes the best private candidate worth a run."""
        worth = WORTH if self.facts.objective.loss.metric == "accuracy" else WORTH * self.local
        return worth if self.best is None else max(worth, CERTAINTY * self.best.error)


def plan_run(facts: PublicFacts, progress: Progress | None = None) -> Recommendation:
    """Try every candidate on every twin. The same facts give the same recommendation, bit for bit."""
    part = facts_of_part(facts, agents_to_simulate(facts))
    field = SmoothField(graph_of(part))
    shares = plausible_shares(part, field)
    pairs = [(twin, local_metric(twin)) for twin in twins(part, field, shares)]
    wanted = candidates(part)
    expectations = []
    for candidate in wanted:
        trials = []
        for twin, local in pairs:
            trials.append(trial(candidate, twin, local))
            if progress is not None:
                progress(len(expectations) * len(pairs) + len(trials), len(wanted) * len(pairs))
        expectations.append(Expectation(candidate, tuple(trials)))
    return Recommendation(
        facts,
        part.n_agents,
        shares,
        sum(local for _, local in pairs) / len(pairs),
        tuple(sorted(expectations, key=lambda expected: -expected.gain)),
    )
