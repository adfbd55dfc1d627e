"""Parts of another package whose sensitivity or noise is not what they say: the audit catches them.

Nothing in Flockwise knows these names; the audit walks the registries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import flockwise as fw
from flockwise.audit import audit_one, every_attack
from flockwise.data import Population
from flockwise.graph import GraphSource, SimilarityGraph
from flockwise.method import ReleaseOnce
from flockwise.method.release_once import Propagation
from flockwise.objective import CappedLogistic
from flockwise.privacy.gate import Bounded
from flockwise.privacy.mechanisms import Laplace
from flockwise.randomness.noise import draw_fractions
from flockwise.release.mean import unit_rows
from flockwise.release.statistic import release_once


class QuietSampler(NamedTuple):
    """Laplace numbers of a third of their scale."""

    def draw(self, seed, agent, number, size, out):
        draw_fractions(seed, agent, number, 0, out)
        for place in range(size):
            side = out[place] - 0.5
            out[place] = -math.copysign(math.log(1.0 - 2.0 * abs(side)), side) / 3.0


@dataclass(frozen=True)
class QuietNoise(Laplace):
    """Draws less than it states."""

    name: ClassVar[str] = "quiet_noise"

    @classmethod
    def sampler(cls) -> Any:
        return QuietSampler()


@dataclass(frozen=True)
class WrongNorm(Laplace):
    """Laplace noise that says that it hides changes in L2."""

    name: ClassVar[str] = "wrong_norm"
    norm: ClassVar[Any] = "l2"


@dataclass(frozen=True)
class WrongSensitivity:
    """The mean of y·x/‖x‖, which moves by 2/m, and is said to move by a quarter of that."""

    name: ClassVar[str] = "wrong_sensitivity"
    mechanism: ClassVar[str] = "gaussian"
    words: ClassVar[str] = "Gaussian noise"
    bounded_by_loss: ClassVar[bool] = False

    def misfits(self, objective):
        yield from ()

    def of(self, samples, objective, at=None):
        rows = unit_rows(*samples)
        return Bounded(rows.mean(axis=0), 0.5 / len(rows))

    def release(self, problem, budgets, seed):
        population, counts = problem.population, problem.population.sample_counts
        vectors = np.array([unit_rows(*population.samples(i)).mean(axis=0) for i in range(problem.n_agents)])
        return release_once(self, vectors, counts, 0.5 / counts, budgets, seed)

    def signal_power(self, dimension):
        return 0.5 / dimension


@pytest.fixture(params=[QuietNoise, WrongNorm, WrongSensitivity], ids=lambda part: part.name)
def liar(request):
    part = request.param
    registry = fw.STATISTICS if part is WrongSensitivity else fw.MECHANISMS
    registry.register(part)
    yield part
    registry.unregister(part.name)


def test_the_audit_attacks_a_part_of_another_package_and_finds_that_it_lies(liar):
    """Of the attacks on this part alone, at least one measures more than is claimed."""
    attacks = every_attack(with_secure_noise=False)
    own = [attack for attack in attacks if liar.name in attack.name and "descent" not in attack.name]
    assert own
    assert not all(audit_one(attack, n_rows=len(attacks)).holds for attack in own)


class FromElsewhere(CappedLogistic):
    """A loss whose bound on gradients is the word of another package."""

    name = "from elsewhere"


@pytest.mark.parametrize(
    ("statistic", "loss", "is_declared"),
    [
        (fw.PointMean(), CappedLogistic(), False),
        (fw.PointMean(), FromElsewhere(), False),
        (fw.OutputPerturbation(), CappedLogistic(), False),
        (fw.OutputPerturbation(), FromElsewhere(), True),
        (WrongSensitivity(), CappedLogistic(), True),
    ],
    ids=lambda part: getattr(part, "name", str(part)),
)
def test_the_guarantee_says_whose_word_the_sensitivity_is(statistic, loss, is_declared):
    """That of the statistic, of its noise, and of the loss where the statistic relies on its bounds."""
    samples = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    population = Population.packed(*samples, np.array([0, 1, 2]))
    graph = SimilarityGraph.from_edges(2, np.array([[0, 1]]))
    problem = fw.Problem(population, graph, fw.Objective(loss, l2=1.0, feature_bound=1.0))
    guarantee = ReleaseOnce(fw.Budget(1.0, 1e-5), statistic).prepare(problem, 0).guarantee
    assert guarantee is not None
    assert ("Sensitivity as declared by tests" in guarantee.explain()) == is_declared


@dataclass(frozen=True)
class Elsewhere(fw.ReleaseOnce):
    """A method of another package."""


@dataclass(frozen=True)
class SmootherElsewhere(Propagation):
    """A smoother of another package."""


@pytest.mark.parametrize(
    ("kind", "smoother", "is_declared"),
    [
        (fw.ReleaseOnce, Propagation(), False),
        (Elsewhere, Propagation(), True),
        (fw.ReleaseOnce, SmootherElsewhere(), True),
    ],
    ids=["ours", "method", "smoother"],
)
def test_a_run_says_whose_word_its_guarantee_is_and_so_does_one_that_starts_from_it(
    kind, smoother, is_declared
):
    samples = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    graph = SimilarityGraph.from_edges(2, np.array([[0, 1]]), source=GraphSource("edges", private=False))
    objective = fw.Objective(l2=1.0, feature_bound=1.0)
    problem = fw.Problem(Population.packed(*samples, np.array([0, 1, 2])), graph, objective)
    budget = fw.Budget(1.0, 1e-5)
    run = fw.simulate(problem, kind(budget, smoother=smoother), engine="reference", updates=1)
    descent = fw.CoordinateDescent(fw.PublicModels(run.models), fw.PrivateUpdates(budget, 1))
    after = fw.simulate(problem, descent, engine="reference", seed=1)
    for made in (run, after):
        assert made.guarantee is not None
        assert made.guarantee.declared == (("tests",) if is_declared else ())
        for words in (made.guarantee.label, repr(made), made._repr_html_()):
            assert ("sensitivity as declared by tests" in words) == is_declared
    assert after.guarantee is not None
    assert after.guarantee.epsilon == (2.0, 2.0)
