"""Twins of a private network: the same sizes, graph and loss, with generated models and samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.method import PublicFacts
from flockwise.objective import Problem
from flockwise.planner.field import SmoothField
from flockwise.planner.worlds import ALONG_GRAPH, WORLDS, World
from flockwise.privacy.budget import Budget

TWINS_PER_WORLD: Final = 2
# Of all agents together, with at least and at most so many for each.
TEST_SAMPLES: Final = 30_000
LEAST_TEST_SAMPLES, MOST_TEST_SAMPLES = 20, 200
# Far from the seeds that anyone compares.
FIRST_SEED: Final = 1_000_000
# Standard deviation of what no model explains: by twin, as a share of half of the range of targets.
NOISE_SHARES: Final = (0.2, 0.4)
# In worlds where models say much: the variance of two classes' scores, over that of their errors. About 5 %
# of the labels are then on the wrong side.
CLEAR_SCORES: Final = 30.0
LOGISTIC_VARIANCE: Final = np.pi**2 / 3
GUMBEL_VARIANCE: Final = np.pi**2 / 6
# Of a larger network with a graph a part stands for the whole; without one, sums decide.
MOST_AGENTS: Final = 200
MOST_SAMPLES: Final = 200_000
SMALLEST_SCALE: Final = 0.1
TAIL_DEGREES: Final = 3


class Twin(NamedTuple):
    """A problem that could be the real one, samples to judge by, and the world that it is from."""

    problem: Problem
    test: Population
    world: World
    seed: int


def graph_of(facts: PublicFacts) -> SimilarityGraph:
    """The graph, or one without edges where there is none."""
    if facts.graph is not None:
        return facts.graph
    return SimilarityGraph.from_edges(facts.n_agents, np.empty((0, 2), np.int64), source="random")


def agents_around(facts: PublicFacts) -> NDArray[np.int64]:
    """Everyone, or 200 agents around a random one, so most neighbors of each are among them.

    Of those outside the one with the largest weights to those inside joins next. A network of 200
    smooths less noise away than a larger one, so a plan made with it promises too little.
    """
    graph = graph_of(facts)
    if graph.n_agents <= MOST_AGENTS:
        return np.arange(graph.n_agents)
    weights_inside = np.zeros(graph.n_agents)
    agent = int(np.random.default_rng(FIRST_SEED).integers(graph.n_agents))
    inside: list[int] = []
    while len(inside) < MOST_AGENTS:
        inside.append(agent)
        neighbors, weights = graph.neighbors_of(agent)
        weights_inside[neighbors] += weights
        weights_inside[inside] = -1.0
        agent = int(np.argmax(weights_inside))
    return np.sort(np.array(inside))


def agents_to_add_up(facts: PublicFacts) -> NDArray[np.int64]:
    """Everyone, or as many agents as have 200,000 samples together: the noise of a sum is for all of them."""
    together = np.cumsum(facts.sample_counts)
    return np.arange(max(1, int(np.searchsorted(together, MOST_SAMPLES, "right"))))


def facts_of_part(facts: PublicFacts, agents: NDArray[np.int64], *, keep_graph: bool = True) -> PublicFacts:
    """Those of some agents, with the edges between them."""
    graph = facts.graph if keep_graph else None
    budgets, l2 = facts.budgets, facts.objective.l2
    if graph is not None:
        graph = SimilarityGraph.from_scipy(graph.to_scipy()[agents][:, agents], source=graph.source)
    if not isinstance(budgets, Budget):
        budgets = tuple(budgets[agent] for agent in agents)
    if isinstance(l2, tuple):
        l2 = tuple(l2[agent] for agent in agents)
    return replace(
        facts,
        sample_counts=facts.sample_counts[agents],
        graph=graph,
        budgets=budgets,
        objective=replace(facts.objective, l2=l2),
    )


def plausible_worlds(facts: PublicFacts, field: SmoothField | None) -> tuple[World, ...]:
    """Of all worlds, those that the graph does not speak against: edges at random promise nothing."""
    resembles = facts.graph is None or facts.graph.source.neighbors_resemble
    if field is None or not resembles or not field.has_structure:
        return tuple(replace(world, along=0.0) for world in WORLDS)
    return ALONG_GRAPH + WORLDS


def twins(facts: PublicFacts, field: SmoothField | None, world: World) -> Iterator[Twin]:
    """The twins of one world; they do not depend on the other worlds."""
    for number in range(TWINS_PER_WORLD):
        yield _Drawing(facts, field, world, number).twin()


class _Drawing:
    """One twin: its models, and samples by them."""

    def __init__(self, facts: PublicFacts, field: SmoothField | None, world: World, number: int) -> None:
        self.facts, self.field, self.world = facts, field, world
        self.seed, self.noise = FIRST_SEED + number, NOISE_SHARES[number % len(NOISE_SHARES)]
        key = [self.seed, *world.words.encode()]
        self.generator = np.random.default_rng(key)
        self.outputs, self.n_features = facts.objective.loss.outputs, facts.n_features
        n_slopes = self.n_features - facts.has_intercept
        scales = np.geomspace(1.0, SMALLEST_SCALE, n_slopes) if n_slopes else np.ones(0)
        self.scales = self.generator.permutation(scales) if world.scales else np.ones(n_slopes)
        self.typical = self._features(10_000)

    def twin(self) -> Twin:
        facts, counts = self.facts, self.facts.sample_counts
        each = int(np.clip(TEST_SAMPLES // facts.n_agents, LEAST_TEST_SAMPLES, MOST_TEST_SAMPLES))
        models = self._models()
        population, test = (self._samples(models, n) for n in (counts, np.full_like(counts, each)))
        return Twin(Problem(population, facts.graph, facts.objective), test, self.world, self.seed)

    def _models(self) -> NDArray[np.float64]:
        """One row per agent and output, in units of the errors' standard deviation."""
        n_agents, world = self.facts.n_agents, self.world
        common = self._scaled(self.generator.standard_normal((self.outputs, self.n_features)), world.common)
        personal = self._scaled(self._personal().reshape(-1, self.n_features), world.personal)
        personal = personal.reshape(n_agents, self.outputs, self.n_features)
        if world.tails:
            draws = self.generator.chisquare(TAIL_DEGREES, n_agents) / (TAIL_DEGREES - 2)
            personal /= np.sqrt(draws)[:, None, None]
        elif world.is_clear:
            # Everyone's scores vary alike: a longer model would be an easier task.
            lengths = np.linalg.norm(personal, axis=(1, 2), keepdims=True)
            personal *= np.sqrt(np.mean(lengths**2)) / np.where(lengths > 0, lengths, 1.0)
        models = common + personal
        return models * np.sqrt(CLEAR_SCORES) if world.is_clear and not self._is_number else models

    def _personal(self) -> NDArray[np.float64]:
        """Each agent's own part, before it is scaled."""
        basis = np.eye(self.n_features * self.outputs)
        if self.world.spread == "intercept":
            last = self.n_features * np.arange(1, self.outputs + 1) - 1
            basis = basis[last] if self.facts.has_intercept else self._directions(1)
        elif self.world.spread == "plane":
            basis = self._directions(min(2, len(basis)))
        share, size = self.world.along, (self.facts.n_agents, len(basis))
        drawn = np.sqrt(1 - share) * self.generator.standard_normal(size)
        if share > 0 and self.field is not None:
            drawn += np.sqrt(share) * self.field.draw(len(basis), self.generator)
        return drawn @ basis

    def _directions(self, count: int) -> NDArray[np.float64]:
        axes = np.linalg.qr(self.generator.standard_normal((self.n_features * self.outputs, count)))[0]
        return axes.T

    def _scaled(self, models: NDArray[np.float64], variance: float) -> NDArray[np.float64]:
        """So long that their predictions vary by so much, on average over models and samples."""
        power = float(np.mean((models @ self.typical.T) ** 2))
        return models * np.sqrt(variance / power) if power > 0 else models

    def _samples(self, models: NDArray[np.float64], counts: NDArray[np.int64]) -> Population:
        offsets = np.concatenate(([0], np.cumsum(counts)))
        features = self._features(int(offsets[-1]))
        scores = np.einsum("kf,kof->ko", features, np.repeat(models, counts, axis=0))
        targets = self._targets(scores)
        if not self.facts.has_intercept:
            return Population.packed(features, targets, offsets)
        return Population.packed(np.ascontiguousarray(features[:, :-1]), targets, offsets).with_intercept()

    def _features(self, count: int) -> NDArray[np.float64]:
        """Slopes in all directions, of lengths from half the bound to the bound, or uniform in [−1, 1]^p."""
        bound, n_slopes = self.facts.objective.feature_bound, len(self.scales)
        if bound is None:
            features = self.generator.uniform(-1, 1, (count, n_slopes)) * self.scales
        else:
            # With an intercept of 1 the rest has to be shorter; rounding must not carry it beyond the bound.
            longest = np.sqrt(max(bound**2 - self.facts.has_intercept, 0.0)) * 0.999
            directions = self.generator.standard_normal((count, n_slopes))
            norms = np.linalg.norm(directions, axis=1, keepdims=True)
            lengths = longest * self.generator.uniform(0.5, 1, (count, 1))
            features = directions * (lengths / np.where(norms > 0, norms, 1.0)) * self.scales
        return np.column_stack([features, np.ones(count)]) if self.facts.has_intercept else features

    def _targets(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """By the loss's own law, P(y) ∝ exp(−ℓ): labels by the logistic law, numbers with normal errors."""
        if self._is_number:
            return self._numbers(scores[:, 0])
        if self.outputs == 1:
            errors = self.generator.logistic(size=len(scores))
            return np.where(np.sqrt(LOGISTIC_VARIANCE) * scores[:, 0] + errors >= 0, 1.0, -1.0)
        # The largest of scores with Gumbel errors follows the softmax law.
        errors = self.generator.gumbel(size=scores.shape)
        return (np.sqrt(GUMBEL_VARIANCE) * scores + errors).argmax(axis=1).astype(np.float64)

    def _numbers(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.world.tails:
            errors = self.generator.standard_t(TAIL_DEGREES, len(scores)) / np.sqrt(TAIL_DEGREES)
        else:
            errors = self.generator.standard_normal(len(scores))
        limits = self.facts.objective.target_range
        if limits is None:
            return (self.facts.residual_scale or 1.0) * (scores + errors)
        center, half = (limits[0] + limits[1]) / 2, (limits[1] - limits[0]) / 2
        return center + half * self.noise * (scores + errors)

    @property
    def _is_number(self) -> bool:
        return self.facts.objective.loss.metric == "rmse"
