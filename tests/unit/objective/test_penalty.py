"""l2="auto": penalties by cross-validation inside the agents, against scikit-learn's ridge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from flockwise.data import Population
from flockwise.engine import simulate
from flockwise.errors import ObjectiveError
from flockwise.graph import complete_graph
from flockwise.method import CoordinateDescent, Local, PrivateUpdates
from flockwise.objective import Objective, Problem, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.solve import choose_l2, resolve_l2, solve_local_models
from flockwise.solve.penalty import CHOSEN, HELD_OUT_SHARE, WEIGHTS


def agents(spread: float, noise: float, seed: int = 0, count: int = 40, samples: int = 8) -> Population:
    """Linear targets: each agent's model has coordinates of this spread."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(count * samples, 3))
    models = np.repeat(spread * random.normal(size=(count, 3)), samples, axis=0)
    targets = (features * models).sum(axis=1) + noise * random.normal(size=len(features))
    return Population.packed(features, targets, np.arange(count + 1) * samples)


def ridge_errors(population: Population, splits: int) -> list[float]:
    """The same choice with scikit-learn: the squared error that each weight leaves on the same splits."""
    errors = []
    for weight in WEIGHTS:
        total = 0.0
        for seed in range(splits):
            train, held_out = population.split(HELD_OUT_SHARE, seed)
            for agent in range(population.n_agents):
                # Times m, our mean of squares plus weight/m·‖θ‖² is scikit-learn's sum of squares plus α‖θ‖².
                ridge = Ridge(alpha=weight, fit_intercept=False).fit(*train.samples(agent))
                features, targets = held_out.samples(agent)
                total += float(np.square(ridge.predict(features) - targets).sum())
        errors.append(total)
    return errors


@pytest.mark.parametrize(("spread", "noise"), [(1.0, 0.1), (1.0, 2.0), (0.1, 3.0)])
def test_the_choice_is_that_of_ridge_regressions_on_the_same_splits(spread, noise):
    population = agents(spread, noise)
    chosen = choose_l2(Problem(population, None, Objective(Quadratic(), l2="auto")), splits=2)
    best = WEIGHTS[int(np.argmin(ridge_errors(population, 2)))]
    assert chosen.l2_penalties == pytest.approx(best / 8)


def test_more_noise_asks_for_a_larger_penalty():
    def weight(noise: float) -> float:
        problem = Problem(agents(1.0, noise), None, Objective(Quadratic(), l2="auto"))
        return float(choose_l2(problem).l2_penalties[0])

    assert weight(0.05) < weight(1.0) < weight(10.0)


def test_a_run_chooses_before_it_starts():
    population = agents(1.0, 4.0)
    problem = Problem(population, None, Objective(Quadratic(), l2="auto"))
    run = simulate(problem, Local())
    assert run.models == pytest.approx(solve_local_models(choose_l2(problem)), rel=1e-12)
    default = simulate(Problem(population, None, Objective(Quadratic())), Local())
    assert not np.allclose(run.models, default.models)


def test_a_guarantee_names_the_choice_as_not_covered():
    problem = Problem(agents(1.0, 1.0), None, Objective(Quadratic(), l2="auto"))
    chosen = choose_l2(problem)
    assert CHOSEN in chosen.origins
    assert CHOSEN in Problem(problem.population, None, chosen.objective).origins
    assert CHOSEN in Problem(problem.population, None, Objective(Quadratic(), l2=chosen.objective.l2)).origins
    assert CHOSEN in chosen.with_tradeoff(2.0).origins
    assert CHOSEN not in chosen.with_objective(l2=1.0).origins
    assert not CHOSEN.is_covered


def test_agents_with_one_sample_each_cannot_choose():
    population = agents(1.0, 1.0, samples=1)
    with pytest.raises(ObjectiveError, match="no agent has two samples"):
        choose_l2(Problem(population, None, Objective(Quadratic(), l2="auto")))


def test_an_agent_alone_chooses_from_its_own_samples_only():
    population = agents(1.0, 1.0)
    problem = Problem(population, None, Objective(Quadratic(), l2="auto"))
    chosen = choose_l2(problem, alone=True).l2_penalties
    only = Problem(population.select([3]), None, problem.objective)
    assert len(set(chosen)) > 1
    # Others' samples may be anything.
    targets = population.targets.copy()
    targets[: population.offsets[3]] *= -100
    other = Problem(population.with_samples(population.features, targets), None, problem.objective)
    assert choose_l2(other, alone=True).l2_penalties[3:].tolist() == chosen[3:].tolist()
    assert choose_l2(only).l2_penalties.shape == (1,)


def test_no_chosen_penalty_enters_what_a_private_run_sends():
    budget = PrivateUpdates(Budget(1.0, 1e-3), updates=3, clip=1.0)
    sent = []
    for seed in (1, 2):
        population = agents(1.0, 1.0, seed)
        graph = complete_graph(population.n_agents)
        objective = Objective(Quadratic(), l2="auto", feature_bound=3.0, target_range=(-3.0, 3.0))
        problem = Problem(population, graph, objective)
        assert len(set(choose_l2(problem, alone=True).l2_penalties)) > 1
        run = simulate(problem, CoordinateDescent(privacy=budget), updates=3)
        default = simulate(problem.with_objective(l2=None), CoordinateDescent(privacy=budget), updates=3)
        np.testing.assert_array_equal(run.models, default.models)
        assert run.guarantee is not None
        assert not any("l2" in words for words in run.guarantee.not_covered)
        rule: Any = CoordinateDescent(privacy=budget).prepare(resolve_l2(problem, is_private=True), 0).rule
        sent.append((rule.local.l2_penalties, rule.step_sizes, rule.pulls, rule.noise.stds()))
    for one, other in zip(*sent, strict=True):
        np.testing.assert_array_equal(one, other)
