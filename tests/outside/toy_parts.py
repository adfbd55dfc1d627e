"""A package of somebody else: a loss, a mechanism, a statistic, a graph kernel and a method, each registered.

It imports the public names and `flockwise.extend` alone, and nothing in Flockwise knows any of its names.
"""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

import flockwise as fw
from flockwise.extend import (
    Candidate,
    Configured,
    Edges,
    Mechanism,
    Misfit,
    Outcome,
    Part,
    Positive,
    Rounds,
    Rows,
    Say,
    declared_by,
    distinct_budgets,
    draw_fractions,
    finish_own_block,
    has_two_classes,
    release_once,
)


@fw.LOSSES.register
class ToyHinge(NamedTuple):
    """The hinge max(0, 1 − y·s), rounded off by a parabola of this width."""

    rounding: Positive = 0.5
    name = "toy_hinge"
    outputs = 1
    metric = "accuracy"
    expects = "-1 or +1"

    @property
    def curvature(self):
        return 1 / self.rounding

    def value(self, score, target):
        short = 1.0 - target * score
        if short <= 0:
            return 0.0
        if short >= self.rounding:
            return short - 0.5 * self.rounding
        return 0.5 * short * short / self.rounding

    def slope(self, score, target):
        short = 1.0 - target * score
        return -target * min(max(short / self.rounding, 0.0), 1.0)

    def slope_bound(self, norm):
        return 1.0

    def predict(self, scores):
        return np.where(scores[:, 0] >= 0, 1, -1).astype(scores.dtype)

    def valid_targets(self, targets):
        return np.abs(targets) == 1


class ToySampler(NamedTuple):
    """Standard logistic numbers, by the inverse of their distribution."""

    def draw(self, seed, agent, number, size, out):
        draw_fractions(seed, agent, number, 0, out)
        for place in range(size):
            out[place] = math.log(out[place] / (1.0 - out[place]))


@fw.MECHANISMS.register
@dataclass(frozen=True)
class ToyNoise(Mechanism):
    """Logistic noise: the slope of its log-density is at most 1/scale, as that of Laplace noise."""

    name: ClassVar[str] = "toy_noise"
    words: ClassVar[str] = "logistic noise"
    norm: ClassVar[Any] = "l1"
    is_pure: ClassVar[bool] = True
    accountants: ClassVar[tuple[str, ...]] = ("basic", "theorem1", "kov", "zcdp")

    @property
    def rho(self):
        """Half of the Fisher information, 1/(3·scale²), times the squared sensitivity."""
        return self.epsilon**2 / 6

    @property
    def noise_std(self):
        return math.pi / math.sqrt(3) * self.scale

    def log_likelihood(self, noise):
        lengths = np.abs(noise) / self.scale
        return -(lengths + 2 * np.log1p(np.exp(-lengths))).sum(axis=-1)

    @classmethod
    def sampler(cls):
        return ToySampler()


@fw.STATISTICS.register
@dataclass(frozen=True)
class ToyMean:
    """The mean of y·x, clipped in L1."""

    length: Positive = 1.0
    name: ClassVar[str] = "toy_mean"
    mechanism: ClassVar[str] = "toy_noise"
    words: ClassVar[str] = "logistic noise"
    bounded_by_loss: ClassVar[bool] = False

    def misfits(self, objective):
        if not has_two_classes(objective.loss):
            yield Misfit("method.kind", 'got "toy_mean"; it is for two classes')

    def of(self, samples, objective, at=None):
        return Rows.of(self._rows(*samples), self.length)

    def release(self, problem, budgets, seed):
        population = problem.population
        counts = population.sample_counts
        vectors = np.zeros((problem.n_agents, problem.dimension))
        for agent in np.flatnonzero(counts):
            vectors[agent] = self._rows(*population.samples(agent)).mean(axis=0)
        sensitivities = 2 * self.length / np.maximum(counts, 1)
        return release_once(self, vectors, counts, sensitivities, budgets, seed)

    def signal_power(self, dimension):
        return None

    def _rows(self, features, targets):
        rows = np.asarray(targets[:, None] * features, np.float64)
        lengths = np.abs(rows).sum(axis=1, keepdims=True)
        return rows * np.minimum(1.0, self.length / np.where(lengths > 0, lengths, 1.0))


@fw.GRAPHS.register
@dataclass(frozen=True)
class ToyKernel:
    """exp(−‖a − b‖²/(2·width²)), for everyone with everyone."""

    width: Positive = 1.0
    name: ClassVar[str] = "toy_kernel"

    def of_vectors(self, vectors, source, agent_names):
        vectors = np.asarray(vectors, np.float64)
        squares = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=-1)
        first, second = np.triu_indices(len(vectors), 1)
        weights = np.exp(-squares[first, second] / (2 * self.width**2))
        pairs = np.column_stack([first, second])
        return fw.SimilarityGraph.from_edges(
            len(vectors), pairs, weights, source=source, agent_names=agent_names
        )


@fw.METHODS.register
@dataclass(frozen=True)
class ToyMethod:
    """Everyone releases once, and takes the mean of what it and its neighbors released."""

    privacy: Annotated[Any, Configured(None)]
    statistic: Annotated[Any, Part(fw.STATISTICS, "kind")] = field(default_factory=fw.PointMean)
    name: ClassVar[str] = "toy_method"
    label: ClassVar[str] = "toy (mean of releases)"
    rule: ClassVar[type] = Rounds
    needs_graph: ClassVar[bool] = True

    def misfits(self, objective):
        yield from self.statistic.misfits(objective)

    def prepare(self, problem, seed):
        released = self.statistic.release(problem, self.privacy, seed)

        def converse(position, number, weights):
            heard = yield Say("released", released.vectors[position])
            return np.mean([released.vectors[position], *(heard[other] for other in sorted(heard))], axis=0)

        def collect(results, traffic):
            models = released.vectors.copy()
            for agent, model in results.items():
                models[agent] = model
            return Outcome(models, np.ones(problem.n_agents, np.int64), traffic)

        parts = (self, self.statistic, fw.MECHANISMS[self.statistic.mechanism])
        guarantee = fw.Guarantee.of(
            distinct_budgets(self.privacy, problem.n_agents)[0],
            mechanism=self.statistic.words,
            accountant=released.accountant,
            plan=released.plan,
            dimension=problem.dimension,
            origins=problem.origins,
            declared=filter(None, map(declared_by, parts)),
        )
        rule = Rounds(np.arange(problem.n_agents), Edges.of(problem.neighbors), converse, collect)

        def finish(models, details):
            finite = np.where(np.isfinite(released.variances), released.variances, 1e6)
            return finish_own_block(problem, models, finite)

        return fw.Prepared(rule, fw.CollaborativeObjective(problem), guarantee, finish)

    @classmethod
    def candidates(cls, facts):
        if facts.graph is not None and has_two_classes(facts.objective.loss):
            yield Candidate("toy", cls(facts.budgets))
