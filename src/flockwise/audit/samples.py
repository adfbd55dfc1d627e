"""Neighboring data sets at their worst, and as many agents that hold one of them as there are runs.

Agents without neighbors and with the same data are independent runs: their noise comes from streams of
their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flockwise.data import Population
from flockwise.graph import SimilarityGraph
from flockwise.privacy.audit.gate import SAMPLES

# So large that the gradient of the point stays beyond the bound wherever the noise drives the model.
FAR_TARGET = 1e6


@dataclass(frozen=True, eq=False)
class AgentSamples:
    """The data of one agent."""

    features: NDArray[np.float64]
    targets: NDArray[np.float64]


def opposite_targets(direction: NDArray[np.float64]) -> tuple[AgentSamples, AgentSamples]:
    """All points at one place; one has a target far above the others, or as far below."""
    features = np.tile(direction, (SAMPLES, 1))
    above = np.zeros(SAMPLES)
    above[0] = FAR_TARGET
    return AgentSamples(features, above), AgentSamples(features, -above)


def lone_opposites(direction: NDArray[np.float64]) -> tuple[AgentSamples, AgentSamples]:
    """The same with the other points at zero, where they have no gradient."""
    features, above = np.zeros((SAMPLES, len(direction))), np.zeros(SAMPLES)
    features[0], above[0] = direction, FAR_TARGET
    return AgentSamples(features, above), AgentSamples(features, -above)


def present_or_zero(direction: NDArray[np.float64]) -> tuple[AgentSamples, AgentSamples]:
    """One point that is all there is, or zero like the others: whatever looks at lengths tells them apart."""
    nothing = AgentSamples(np.zeros((SAMPLES, len(direction))), np.zeros(SAMPLES))
    return lone_opposites(direction)[0], nothing


def opposite_labels(
    direction: NDArray[np.float64], samples: int = SAMPLES
) -> tuple[AgentSamples, AgentSamples]:
    """One point with one label, or its opposite with the other; the rest at zero."""
    features, labels = np.zeros((samples, len(direction))), np.ones(samples)
    features[0] = direction
    other = labels.copy()
    other[0] = -1.0
    return AgentSamples(features, labels), AgentSamples(features, other)


def repeated(samples: AgentSamples, runs: int) -> tuple[Population, SimilarityGraph]:
    """As many agents as runs, all with these data, and nobody a neighbor of anybody."""
    population = Population.packed(
        np.tile(samples.features, (runs, 1)),
        np.tile(samples.targets, runs),
        np.arange(runs + 1) * len(samples.targets),
    )
    return population, SimilarityGraph.from_edges(runs, np.empty((0, 2), np.int64))
