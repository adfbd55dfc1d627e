"""Generated kinds of population that the planner is judged on; its twins are drawn in other ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population, linear_classification
from flockwise.graph import SimilarityGraph, angular_graph, complete_graph, random_graph
from flockwise.objective import Logistic, Objective, Problem, Quadratic

Edges: TypeAlias = Literal["none", "complete", "random", "profiles", "wrong profiles"]

TEST_ROWS = 50
NOISE = 0.3
DEGREE = 10
# First word of the seed of an instance.
INSTANCE = 307


class Instance(NamedTuple):
    """A problem, and rows to judge by."""

    problem: Problem
    test: Population


@dataclass(frozen=True)
class Law:
    """How the models of a population differ; standard deviations in units of the targets' own errors.

    slopes: of the common model. intercept_sd, slope_sd: of agents around it. tails: t with 3 degrees of
    freedom, for errors too. outliers: a share of agents with models of their own. groups: so many groups of
    agents, each with another common model. scales: one feature of ten times the scale of the others.
    skewed: features are mostly small.
    """

    words: str
    slopes: float = 0.7
    intercept_sd: float = 0.3
    slope_sd: float = 0.1
    tails: bool = False
    outliers: float = 0.0
    groups: int = 1
    scales: bool = False
    skewed: bool = False


LAWS = (
    Law("as grouped data usually are"),
    Law("all agents alike", intercept_sd=0.0, slope_sd=0.0),
    Law("intercepts only", intercept_sd=0.4, slope_sd=0.0),
    Law("features say nothing", slopes=0.0, intercept_sd=0.3, slope_sd=0.05),
    Law("features say much", slopes=1.5),
    Law("slopes differ, too", slope_sd=0.3),
    Law("heavy tails", tails=True),
    Law("features on different scales", scales=True),
    Law("skewed features", skewed=True),
    Law("a tenth are outliers", outliers=0.1),
    Law("two groups", groups=2),
    Law("no common mean", slopes=0.0, intercept_sd=0.7, slope_sd=0.7),
)


@dataclass(frozen=True)
class Kind:
    """A kind of population: its law, its sizes, its graph and the budget of its agents."""

    law: Law
    agents: int
    samples: int
    features: int
    epsilon: float
    two_classes: bool = False
    edges: Edges = "none"

    @property
    def words(self) -> str:
        return f"{self.law.words}, {self.setting}"

    @property
    def setting(self) -> str:
        """All that is public about it."""
        target = "two classes" if self.two_classes else "numbers"
        edges = "no graph" if self.edges == "none" else f"graph: {self.edges}"
        sizes = f"n = {self.agents}, m ≈ {self.samples}, p = {self.features + 1}"
        return f"{target}, {sizes}, {edges}, ε = {self.epsilon:g}"

    def instance(self, seed: int) -> Instance:
        """Sample counts are those of the kind; all else is of the seed."""
        random = np.random.default_rng([INSTANCE, seed, self.agents, self.samples])
        counts = np.random.default_rng([INSTANCE, self.agents]).integers(
            self.samples // 2, 3 * self.samples // 2, self.agents, endpoint=True
        )
        models = self._models(random)
        test_counts = np.full(self.agents, TEST_ROWS)
        train, test = (self._draw(models, each, random) for each in (counts, test_counts))
        # Features lie within ±1, and the intercept is one of them.
        bound = float(np.sqrt(self.features + 1))
        if self.two_classes:
            objective = Objective(Logistic(), feature_bound=bound)
        else:
            objective = Objective(Quadratic(), feature_bound=bound, target_range=(-1.0, 1.0))
        return Instance(Problem(train, self._graph(models, random), objective), test)

    def _models(self, random: np.random.Generator) -> NDArray[np.float64]:
        law, size = self.law, (self.agents, self.features + 1)
        spreads = np.full(size[1], law.slope_sd)
        spreads[-1] = law.intercept_sd
        commons = law.slopes * random.standard_normal((law.groups, size[1])) / np.sqrt(self.features / 2)
        drawn = random.standard_t(3, size) / np.sqrt(3) if law.tails else random.standard_normal(size)
        models = commons[random.integers(law.groups, size=self.agents)] + spreads * drawn
        strange = random.random(self.agents) < law.outliers
        models[strange] = random.standard_normal(size)[strange]
        return models

    def _draw(
        self, models: NDArray[np.float64], counts: NDArray[np.int64], random: np.random.Generator
    ) -> Population:
        total = int(counts.sum())
        features = random.uniform(-1, 1, (total, self.features))
        features[:, ::2] = np.where(features[:, ::2] > 0, 1.0, 0.0)  # every other one is an indicator
        if self.law.skewed:
            features = np.sign(features) * np.abs(features) ** 4
        if self.law.scales:
            features[:, 1:] *= 0.1
        own = np.repeat(models, counts, axis=0)
        scores = (features * own[:, :-1]).sum(axis=1) + own[:, -1]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        if self.two_classes:
            targets = np.where(2 * scores + random.logistic(size=total) >= 0, 1.0, -1.0)
        else:
            errors = (
                random.standard_t(3, total) / np.sqrt(3) if self.law.tails else random.standard_normal(total)
            )
            targets = NOISE * (scores + errors)
        return Population.packed(features, targets, offsets).with_intercept()

    def _graph(self, models: NDArray[np.float64], random: np.random.Generator) -> SimilarityGraph | None:
        if self.edges == "none":
            return None
        if self.edges == "complete":
            return complete_graph(self.agents)
        if self.edges == "random":
            return random_graph(self.agents, DEGREE, int(random.integers(2**31)))
        order = random.permutation(self.agents) if self.edges == "wrong profiles" else np.arange(self.agents)
        return angular_graph(models[order], threshold=0.1, source="profiles")


@dataclass(frozen=True)
class PaperTask(Kind):
    """The paper's task, with profiles that are right, or those of other agents."""

    @property
    def words(self) -> str:
        return f"{self.law.words}, {self.setting}"

    def instance(self, seed: int) -> Instance:
        task = linear_classification(
            self.agents, self.features + 1, seed=seed, min_samples=self.samples, max_samples=self.samples
        )
        random = np.random.default_rng([INSTANCE, seed])
        order = random.permutation(self.agents) if self.edges == "wrong profiles" else np.arange(self.agents)
        graph = angular_graph(task.profiles[order], source="profiles")
        objective = Objective(Logistic(), feature_bound=float(np.sqrt(self.features + 1)))
        return Instance(Problem(task.train, graph, objective), task.test)


# Drawn up after the rules of the planner and of the learned prior had been set. Rules were changed later,
# after a look at why some of these kinds lost.
SECOND_SIZES = ((60, 60, 5, 0.5), (300, 40, 6, 0.5), (1500, 6, 2, 0.3))
SECOND_LAWS = (
    LAWS[0],
    Law("intercepts far apart", intercept_sd=0.8, slope_sd=0.05),
    Law("slopes alone differ", intercept_sd=0.0, slope_sd=0.35),
    LAWS[3],
    Law("heavy tails and outliers", tails=True, outliers=0.1),
    LAWS[11],
)
# Drawn up before anything was run on them, and before the rules were changed for the last time.
FRESH_SIZES = ((200, 15, 4, 1.0), (600, 20, 5, 0.5))
FRESH_LAWS = (
    LAWS[0],
    Law("agents far apart", intercept_sd=0.6, slope_sd=0.4),
    Law("three groups", groups=3),
    Law("no common mean and heavy tails", slopes=0.0, intercept_sd=0.5, slope_sd=0.5, tails=True),
    Law("features say little", slopes=0.2, intercept_sd=0.2),
    Law("skewed features, and slopes differ", slope_sd=0.25, skewed=True),
)
SIZES = ((120, 25, 3, 1.0), (800, 10, 3, 1.0), (120, 25, 3, 0.2))
USUAL, UNRELATED = LAWS[0], replace(LAWS[-1], words="unrelated agents")
PAPER = Law("the paper's task")
KINDS: tuple[Kind, ...] = (
    *(Kind(law, *size) for size in SIZES for law in LAWS),
    *(Kind(law, 200, 30, 4, 1.0, two_classes=True) for law in (USUAL, LAWS[2], LAWS[10], LAWS[-1])),
    *(Kind(law, 100, 20, 3, 1.0, edges="complete") for law in (LAWS[1], UNRELATED)),
    *(Kind(law, 100, 20, 3, 1.0, edges="random") for law in (USUAL, UNRELATED)),
    *(PaperTask(PAPER, 100, 50, 9, 1.0, True, edges) for edges in ("profiles", "wrong profiles")),
)
SECOND_KINDS: tuple[Kind, ...] = tuple(Kind(law, *size) for size in SECOND_SIZES for law in SECOND_LAWS)
FRESH_KINDS: tuple[Kind, ...] = (
    *(Kind(law, *size) for size in FRESH_SIZES for law in FRESH_LAWS),
    *(Kind(law, 400, 20, 3, 1.0, two_classes=True) for law in FRESH_LAWS[:4]),
)
# By the group under which they are reported.
KINDS_BY_GROUP: Mapping[str, tuple[Kind, ...]] = {
    "generated": KINDS,
    "generated, fresh once": SECOND_KINDS,
    "generated, fresh": FRESH_KINDS,
}
