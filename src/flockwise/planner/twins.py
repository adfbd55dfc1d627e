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
from flockwise.privacy.budget import Budget

# How much of a model's power varies along the graph; the rest is the agent's own.
SHARES: Final = (1.0, 0.5, 0.0)
TWINS_PER_SHARE: Final = 3
TEST_SAMPLES: Final = 300
# Far from the seeds that anyone compares.
FIRST_SEED: Final = 1_000_000
# Standard deviation of a score θᵀx: about 5 % of two classes' labels are then on the wrong side.
SCORE_SPREAD: Final = 10.0
# Of a larger network a part stands for the whole.
MOST_AGENTS: Final = 400


class Twin(NamedTuple):
    """A problem that could be the real one, samples to judge by, and how far its graph can be trusted."""

    problem: Problem
    test: Population
    share: float
    seed: int


def graph_of(facts: PublicFacts) -> SimilarityGraph:
    """The graph, or one without edges where there is none."""
    if facts.graph is not None:
        return facts.graph
    return SimilarityGraph.from_edges(facts.n_agents, np.empty((0, 2), np.int64), source="random")


def agents_to_simulate(facts: PublicFacts) -> NDArray[np.int64]:
    """Everyone, or 400 agents around a random one, so most neighbors of each are among them.

    Of those outside the one with the largest weights to those inside joins next. A network of 400
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


def facts_of_part(facts: PublicFacts, agents: NDArray[np.int64]) -> PublicFacts:
    """Those of some agents, with the edges between them."""
    graph, budgets, l2 = facts.graph, facts.budgets, facts.objective.l2
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


def plausible_shares(facts: PublicFacts, field: SmoothField) -> tuple[float, ...]:
    """Of all shares, those that the graph does not speak against: edges at random promise nothing."""
    is_random = facts.graph is None or facts.graph.source.kind == "random" or not field.has_structure
    return (0.0,) if is_random else SHARES


def twins(facts: PublicFacts, field: SmoothField, shares: tuple[float, ...]) -> Iterator[Twin]:
    """As many of each share; a twin does not depend on the other shares."""
    for share in shares:
        for number in range(TWINS_PER_SHARE):
            yield _twin(facts, field, share, FIRST_SEED + number)


def _twin(facts: PublicFacts, field: SmoothField, share: float, seed: int) -> Twin:
    generator = np.random.default_rng([seed, round(100 * share)])
    dimension = facts.objective.loss.outputs * facts.n_features
    along, own = field.draw(dimension, generator), generator.standard_normal((facts.n_agents, dimension))
    models = np.sqrt(share) * along + np.sqrt(1 - share) * own
    # Everyone's scores vary alike: a longer model would be an easier task.
    models /= np.linalg.norm(models, axis=1, keepdims=True) / np.sqrt(facts.objective.loss.outputs)
    population = _samples(facts, models, facts.sample_counts, generator)
    test = _samples(facts, models, np.full(facts.n_agents, TEST_SAMPLES), generator)
    return Twin(Problem(population, facts.graph, facts.objective), test, share, seed)


def _samples(
    facts: PublicFacts,
    models: NDArray[np.float64],
    counts: NDArray[np.int64],
    generator: np.random.Generator,
) -> Population:
    offsets = np.concatenate(([0], np.cumsum(counts)))
    features = _features(facts, int(offsets[-1]), generator)
    # Of scores of a model of length 1; a coordinate has variance E‖x‖²/p.
    spread = np.sqrt(np.mean(features**2)) if features.size else 1.0
    blocks = models.reshape(len(models), facts.objective.loss.outputs, -1)
    scores = np.einsum("kf,kof->ko", features, np.repeat(blocks, counts, axis=0)) / spread
    return Population.packed(features, _targets(facts, scores, generator), offsets)


def _features(facts: PublicFacts, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Uniform in [−1, 1]^p, or of lengths from half the bound to the bound in all directions alike."""
    if facts.objective.feature_bound is None:
        return generator.uniform(-1, 1, (count, facts.n_features))
    directions = generator.standard_normal((count, facts.n_features))
    # Rounding must not carry a sample beyond the bound.
    lengths = facts.objective.feature_bound * generator.uniform(0.5, 0.999, (count, 1))
    return directions * (lengths / np.linalg.norm(directions, axis=1, keepdims=True))


def _targets(
    facts: PublicFacts, scores: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float64]:
    """By the loss's own law, P(y) ∝ exp(−ℓ): labels by the logistic law, numbers with normal errors."""
    if facts.objective.loss.metric == "rmse":
        # As much of a number is explained by the model as is not.
        return (facts.residual_scale or 1.0) * (scores[:, 0] + generator.standard_normal(len(scores)))
    if facts.objective.loss.outputs == 1:
        errors = generator.logistic(size=len(scores))
        return np.where(SCORE_SPREAD * scores[:, 0] + errors >= 0, 1.0, -1.0)
    # The largest of scores with Gumbel errors follows the softmax law.
    errors = generator.gumbel(size=scores.shape)
    return (SCORE_SPREAD * scores + errors).argmax(axis=1).astype(np.float64)
