"""Small tasks with a known solution: least squares, so the minimum of Eq. (2) is one linear solve."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from flockwise.data import Samples
from flockwise.deploy.settings import NetworkSettings
from flockwise.net.wire import PrivacyLabel
from flockwise.objective import LocalUpdate, Objective, Quadratic

MAX_SAMPLES = 4


OBJECTIVE = Objective(Quadratic(), max_samples=MAX_SAMPLES, feature_bound=1.0)


def settings_of(privacy: PrivacyLabel) -> NetworkSettings:
    return NetworkSettings(OBJECTIVE, privacy)


# Weights of the edges, by their two ends.
Edges: TypeAlias = Mapping[frozenset[str], float]


def random_samples(chance: random.Random, dimension: int, least: int) -> Samples:
    count = chance.randint(least, MAX_SAMPLES)
    features = np.array([[chance.uniform(-1, 1) for _ in range(dimension)] for _ in range(count)])
    features = features.reshape(count, dimension) / dimension**0.5
    return Samples(features, np.array([chance.gauss(1, 1) for _ in range(count)]))


def random_edges(chance: random.Random, names: list[str]) -> dict[frozenset[str], float]:
    """A connected graph: a random tree, and some more edges."""
    edges = {}
    for i in range(1, len(names)):
        edges[frozenset((names[i], names[chance.randrange(i)]))] = chance.uniform(0.2, 2)
        other = names[chance.randrange(i)]
        if chance.random() < 0.5:
            edges[frozenset((names[i], other))] = chance.uniform(0.2, 2)
    return edges


class Roster:
    """The edges of one version of the network."""

    def __init__(self, edges: Edges) -> None:
        self.edges = edges
        self._neighbors: dict[str, dict[str, float]] = {}
        for one, other, weight in sorted((*sorted(edge), weight) for edge, weight in edges.items()):
            self._neighbors.setdefault(one, {})[other] = weight
            self._neighbors.setdefault(other, {})[one] = weight

    @property
    def members(self) -> list[str]:
        return sorted(self._neighbors)

    def neighbors_of(self, name: str) -> dict[str, float]:
        return self._neighbors.get(name, {})


class Quadratics:
    """Eq. (2) of agents with these samples and edges: ½ΘᵀHΘ − bᵀΘ + constant."""

    def __init__(self, samples: Mapping[str, Samples], edges: Edges) -> None:
        self.names = sorted(samples)
        place = {name: i for i, name in enumerate(self.names)}
        p = next(iter(samples.values())).features.shape[1]
        weights = np.zeros((len(place), len(place)))
        for edge, weight in edges.items():
            one, other = sorted(edge)
            if one in place and other in place:
                weights[place[one], place[other]] = weights[place[other], place[one]] = weight
        degrees = weights.sum(axis=1)
        self._hessian = np.kron(np.diag(degrees) - weights, np.eye(p))
        self._slope = np.zeros(len(place) * p)
        self._constant = 0.0
        for name, i in place.items():
            x, y = samples[name]
            update, m = LocalUpdate.of(OBJECTIVE, samples[name]), max(len(y), 1)
            pull, penalty = degrees[i] * update.pull, update.objective.l2_penalty
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
