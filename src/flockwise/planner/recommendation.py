"""A recommendation: which private method to run, what to expect of it, and whether to run anything at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from numba import get_num_threads, set_num_threads

from flockwise.method import Candidate, PublicFacts, candidates
from flockwise.planner.field import SmoothField
from flockwise.planner.trials import Expectation, LocalFit, Trial, learned_alone, trial
from flockwise.planner.twins import (
    TWINS_PER_WORLD,
    Twin,
    agents_around,
    agents_to_add_up,
    facts_of_part,
    graph_of,
    plausible_worlds,
    twins,
)

# A run is worth it from half a point of accuracy on, or half a percent of the RMSE.
WORTH: Final = 0.005
# Standard errors by which a gain has to stand out.
CERTAINTY: Final = 2.0
# So many settings are tried on all twins; if there are more, those that are best on a few of them.
FINALISTS: Final = 3

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Group:
    """Candidates that protect against the same adversary, on the same twins, best first.

    sums_only: whether they suppose that nothing but sums over all agents is opened; else they hold against
    whoever sees every message. simulated_agents: of how many agents a twin consists. local: the mean metric
    of the best local models. others: candidates that were tried on a few of the twins, and fell behind there.
    follows_graph: whether there are worlds in which models vary along the graph.
    """

    sums_only: bool
    simulated_agents: int
    local: float
    expectations: tuple[Expectation, ...]
    others: tuple[Expectation, ...] = ()
    follows_graph: bool = False

    @property
    def best(self) -> Expectation:
        return self.expectations[0]

    @property
    def gain_wanted(self) -> float:
        """The least expected gain that makes the best candidate worth a run."""
        return max(WORTH, CERTAINTY * self.best.error)

    @property
    def is_worth_it(self) -> bool:
        return self.best.gain >= self.gain_wanted


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What was compared, in groups of one adversary each, the preferred one first.

    Methods against everybody who sees messages come first where there is a public graph; where there is none,
    the learned prior does, which needs none.
    """

    facts: PublicFacts
    groups: tuple[Group, ...]

    @property
    def group(self) -> Group | None:
        """The first group with something worth a run; if there is none, the first; None if nothing can be
        run.
        """
        return next((one for one in self.groups if one.is_worth_it), next(iter(self.groups), None))

    @property
    def best(self) -> Expectation | None:
        """The candidate of the largest expected gain in that group."""
        return None if self.group is None else self.group.best

    @property
    def chosen(self) -> Candidate | None:
        """What to run, ready for all agents; None advises to keep the local models."""
        group = self.group
        if group is None or not group.is_worth_it:
            return None
        return next(one for one in candidates(self.facts) if one.words == group.best.candidate.words)


def plan_run(facts: PublicFacts, progress: Progress | None = None) -> Recommendation:
    """Try candidates on twins. The same facts give the same recommendation, bit for bit."""
    wanted = [one for one in candidates(facts) if not one.sends_nothing]
    found: list[_Comparison] = []
    for sums_only in (not has_public_graph(facts), has_public_graph(facts)):
        mine = {one.words for one in wanted if one.method.needs_graph != sums_only}
        if mine:
            found.append(_Comparison(facts, sums_only, mine))
    done, total = 0, sum(one.n_trials for one in found)

    def report() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    threads = get_num_threads()
    # A twin is small: threads would wait for each other for longer than they work.
    set_num_threads(1)
    try:
        return Recommendation(facts, tuple(one.group(report) for one in found))
    finally:
        set_num_threads(threads)


def has_public_graph(facts: PublicFacts) -> bool:
    """Whether a public graph says who resembles whom."""
    source = None if facts.graph is None else facts.graph.source
    return source is not None and source.status == "public" and source.neighbors_resemble


class _Comparison:
    """The trials of one group."""

    def __init__(self, facts: PublicFacts, sums_only: bool, words: set[str]) -> None:
        self.sums_only = sums_only
        agents = agents_to_add_up(facts) if sums_only else agents_around(facts)
        self.part = facts_of_part(facts, agents, keep_graph=not sums_only)
        self.wanted = [one for one in candidates(self.part) if one.words in words]
        self.field = None if sums_only else SmoothField(graph_of(self.part))
        self.worlds = plausible_worlds(self.part, self.field)
        self.pairs: list[tuple[Twin, LocalFit]] = []
        self.tried: dict[tuple[str, int], Trial] = {}

    @property
    def n_trials(self) -> int:
        n_twins = TWINS_PER_WORLD * len(self.worlds)
        if len(self.wanted) <= FINALISTS:
            return len(self.wanted) * n_twins
        n_first = sum(world.first for world in self.worlds)
        return len(self.wanted) * n_first + FINALISTS * (n_twins - n_first)

    def group(self, report: Callable[[], None]) -> Group:
        for world in self.worlds:
            weights: tuple[float, ...] | None = None
            for twin in twins(self.part, self.field, world):
                # The best penalty is looked for on the first twin of each world.
                alone = learned_alone(twin) if weights is None else learned_alone(twin, weights)
                weights = (alone.weight,)
                self.pairs.append((twin, alone))
        finalists, others = self.wanted, []
        if len(self.wanted) > FINALISTS:
            first = [place for place, (twin, _) in enumerate(self.pairs) if self._is_first(place, twin)]
            looked = [self._expected(one, first, report) for one in self.wanted]
            looked.sort(key=lambda one: -one.gain)
            finalists, others = [one.candidate for one in looked[:FINALISTS]], looked[FINALISTS:]
        everything = [self._expected(one, range(len(self.pairs)), report) for one in finalists]
        local = sum(alone.metric for _, alone in self.pairs) / len(self.pairs)
        return Group(
            self.sums_only,
            self.part.n_agents,
            local,
            tuple(sorted(everything, key=lambda one: -one.gain)),
            tuple(others),
            any(world.along > 0 for world in self.worlds),
        )

    def _is_first(self, place: int, twin: Twin) -> bool:
        return twin.world.first and (place == 0 or self.pairs[place - 1][0].world is not twin.world)

    def _expected(
        self, candidate: Candidate, places: list[int] | range, report: Callable[[], None]
    ) -> Expectation:
        trials = []
        for place in places:
            key = candidate.words, place
            if key not in self.tried:
                self.tried[key] = trial(candidate, *self.pairs[place])
                report()
            trials.append(self.tried[key])
        return Expectation(candidate, tuple(trials))
