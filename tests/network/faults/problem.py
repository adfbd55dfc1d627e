"""Small tasks with a known solution: least squares, so that the minimum of Eq. (2) is one linear solve."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from flockwise.net.store import Batch
from flockwise.net.task import Task
from flockwise.net.wire import PrivacyLabel

MAX_SAMPLES = 4


def task_of(privacy: PrivacyLabel) -> Task:
    return Task("quadratic", 1.0, MAX_SAMPLES, privacy, feature_bound=1.0)


# The same whether agents are private or not.
SETTINGS = task_of("none").learning()

# Weights of the edges, by their two ends.
Ties: TypeAlias = Mapping[frozenset[str], float]


def random_points(chance: random.Random, dimension: int, least: int) -> Batch:
    count = chance.randint(least, MAX_SAMPLES)
    features = np.array([[chance.uniform(-1, 1) for _ in range(dimension)] for _ in range(count)])
    features = features.reshape(count, dimension) / dimension**0.5
    return Batch(features, np.array([chance.gauss(1, 1) for _ in range(count)]))


def random_ties(chance: random.Random, names: list[str]) -> dict[frozenset[str], float]:
    """A connected graph: a random tree, and some more edges."""
    ties = {}
    for i in range(1, len(names)):
        ties[frozenset((names[i], names[chance.randrange(i)]))] = chance.uniform(0.2, 2)
        other = names[chance.randrange(i)]
        if chance.random() < 0.5:
            ties[frozenset((names[i], other))] = chance.uniform(0.2, 2)
    return ties


class Roster:
    """Who is tied to whom in one version of the network."""

    def __init__(self, ties: Ties) -> None:
        self.ties = ties
        self._neighbors: dict[str, dict[str, float]] = {}
        for one, other, weight in sorted((*sorted(edge), weight) for edge, weight in ties.items()):
            self._neighbors.setdefault(one, {})[other] = weight
            self._neighbors.setdefault(other, {})[one] = weight

    @property
    def members(self) -> list[str]:
        return sorted(self._neighbors)

    def neighbors_of(self, name: str) -> dict[str, float]:
        return self._neighbors.get(name, {})


class Quadratics:
    """Eq. (2) of agents with these points and ties: ½ΘᵀHΘ − bᵀΘ + constant."""

    def __init__(self, points: Mapping[str, Batch], ties: Ties) -> None:
        self.names = sorted(points)
        place = {name: i for i, name in enumerate(self.names)}
        p = next(iter(points.values())).features.shape[1]
        weights = np.zeros((len(place), len(place)))
        for edge, weight in ties.items():
            one, other = sorted(edge)
            if one in place and other in place:
                weights[place[one], place[other]] = weights[place[other], place[one]] = weight
        degrees = weights.sum(axis=1)
        self._hessian = np.kron(np.diag(degrees) - weights, np.eye(p))
        self._slope = np.zeros(len(place) * p)
        self._constant = 0.0
        for name, i in place.items():
            x, y = points[name].features, points[name].targets
            problem = SETTINGS.problem(x, y)
            pull, penalty, m = degrees[i] * problem.pulls[0], problem.l2_penalties[0], max(len(y), 1)
            block = slice(i * p, (i + 1) * p)
            self._hessian[block, block] += pull * (2 * x.T @ x / m + 2 * penalty * np.eye(p))
            self._slope[block] += pull * 2 * x.T @ y / m
            self._constant += pull * float(y @ y) / m
        optimum = np.linalg.solve(self._hessian, self._slope)
        self.least = self._value(optimum)

    def gap(self, models: Mapping[str, np.ndarray]) -> float:
        """(Q − Q*)/Q*."""
        return self.value(models) / self.least - 1

    def value(self, models: Mapping[str, np.ndarray]) -> float:
        return self._value(np.concatenate([models[name] for name in self.names]))

    def _value(self, flat: np.ndarray) -> float:
        return float(0.5 * flat @ self._hessian @ flat - self._slope @ flat) + self._constant
