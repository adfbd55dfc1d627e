"""The paper's synthetic task: every agent separates samples by a hyperplane of its own.

Where the paper leaves a choice open, it is a named parameter of `linear_classification`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flockwise.arrays import Floats
from flockwise.data.checks import float_dtype
from flockwise.data.population import Population
from flockwise.errors import DataError

FeatureLaw: TypeAlias = Literal["uniform", "gaussian"]

# Samples are drawn for this many agents at a time, each chunk from a child seed of its own. The
# number is part of what a seed means: another one gives other samples.
AGENTS_PER_CHUNK = 1024

# First word of a child seed, by what is drawn from it.
TARGETS, SAMPLE_COUNTS, ROTATION, TRAIN, TEST, PROFILES = range(6)


@dataclass(frozen=True, eq=False)
class LinearTask:
    """Training and test samples of all agents, and the separators that labelled them.

    profiles: what the task takes as public about each agent, one row of `informative` numbers.
    """

    train: Population
    test: Population
    targets: Floats
    profiles: Floats
    rotation: Floats | None
    features: FeatureLaw
    informative: int
    label_noise: float
    noisy_test: bool
    seed: int

    @property
    def rotated(self) -> bool:
        """Whether features and targets were turned; then no coordinate is special."""
        return self.rotation is not None


def linear_classification(
    n_agents: int = 100,
    dimension: int = 100,
    *,
    seed: int = 0,
    min_samples: int = 10,
    max_samples: int = 100,
    test_samples: int = 100,
    label_noise: float = 0.05,
    noisy_test: bool = False,
    features: FeatureLaw = "uniform",
    informative: int = 2,
    rotated: bool = False,
    profile_noise: float = 0.2,
    dtype: DTypeLike = "float64",
) -> LinearTask:
    """Section 5.1: labels sign(target·x) in {−1, +1} of random samples, some of them flipped.

    min_samples, max_samples: an agent's number of training samples is uniform between them (10 to 100).
    test_samples: test samples per agent. Left open by the paper.
    label_noise: the probability that a label is flipped (0.05).
    noisy_test: flip test labels too. Left open by the paper; the group's later code does.
    features: "uniform" in [−1, 1]^p, or "gaussian", N(0, ½I) as in the group's later code. The paper
        says "uniformly around the origin".
    informative: the leading coordinates of a target are this many standard normals, the rest are 0.
        Left open by the paper; 2 fits its results.
    rotated: turn features and targets by one random orthogonal matrix. Not in the paper: it takes
        away the zeros, from which a sparse method would profit without any collaboration.
    profile_noise: profiles are the informative coordinates of the target and normal noise of this standard
        deviation. Not in the paper, whose graph is made from the targets themselves, which nobody knows.
    dtype: of the samples; float32 and float64 use different draws.
    """
    if n_agents < 1:
        raise DataError(f"n_agents must be at least 1, got {n_agents}")
    if not 0 <= min_samples <= max_samples:
        raise DataError(
            f"min_samples and max_samples must satisfy 0 ≤ min ≤ max, got {min_samples} and {max_samples}"
        )
    if test_samples < 0:
        raise DataError(f"test_samples must not be negative, got {test_samples}")
    if not 0 <= label_noise <= 1:
        raise DataError(f"label_noise is a probability between 0 and 1, got {label_noise}")
    if not profile_noise >= 0:
        raise DataError(f"profile_noise must not be negative, got {profile_noise}")
    if not 1 <= informative <= dimension:
        raise DataError(f"informative must lie between 1 and dimension = {dimension}, got {informative}")
    if features not in get_args(FeatureLaw):
        raise DataError(f"features must be one of {get_args(FeatureLaw)}, got {features!r}")
    coefficients = _generator(seed, TARGETS).standard_normal((n_agents, informative))
    rotation = _random_rotation(dimension, _generator(seed, ROTATION)) if rotated else None
    sampler = _Sampler(coefficients, dimension, rotation, features, float_dtype(dtype), seed)
    counts = _generator(seed, SAMPLE_COUNTS).integers(min_samples, max_samples, n_agents, endpoint=True)
    return LinearTask(
        train=sampler.draw(TRAIN, counts, label_noise),
        test=sampler.draw(TEST, np.full(n_agents, test_samples), label_noise if noisy_test else 0.0),
        targets=_targets(coefficients, dimension, rotation),
        profiles=coefficients
        + profile_noise * _generator(seed, PROFILES).standard_normal(coefficients.shape),
        rotation=rotation,
        features=features,
        informative=informative,
        label_noise=label_noise,
        noisy_test=noisy_test,
        seed=seed,
    )


@dataclass(frozen=True)
class _Sampler:
    """Draws samples straight into the arrays of a Population, a chunk of agents at a time."""

    coefficients: Floats
    dimension: int
    rotation: Floats | None
    law: FeatureLaw
    dtype: np.dtype[Any]
    seed: int

    def draw(self, stream: int, counts: NDArray[np.int64], label_noise: float) -> Population:
        offsets = np.concatenate(([0], np.cumsum(counts)))
        features = np.empty((offsets[-1], self.dimension), dtype=self.dtype)
        labels = np.empty(offsets[-1], dtype=self.dtype)
        for chunk, first in enumerate(range(0, len(counts), AGENTS_PER_CHUNK)):
            agents = slice(first, min(first + AGENTS_PER_CHUNK, len(counts)))
            rows = slice(offsets[agents.start], offsets[agents.stop])
            owned = np.repeat(self.coefficients[agents], counts[agents], axis=0)
            generator = _generator(self.seed, stream, chunk)
            self._fill(features[rows], labels[rows], owned, label_noise, generator)
        return Population.packed(features, labels, offsets)

    def _fill(
        self,
        features: NDArray[Any],
        labels: NDArray[Any],
        coefficients: Floats,
        label_noise: float,
        generator: np.random.Generator,
    ) -> None:
        if self.law == "uniform":
            generator.random(out=features, dtype=features.dtype.type)
            features *= 2
            features -= 1
        else:
            generator.standard_normal(out=features, dtype=features.dtype.type)
            features *= np.sqrt(0.5)
        scores = np.einsum("ij,ij->i", features[:, : coefficients.shape[1]], coefficients)
        flipped = generator.random(len(labels)) < label_noise
        labels[:] = np.where((scores >= 0) ^ flipped, 1, -1)
        if self.rotation is not None:
            # After labelling: turning both sides of target·x leaves it as it is.
            features[:] = features @ self.rotation.T.astype(self.dtype)


def _generator(seed: int, *stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=stream))


def _random_rotation(dimension: int, generator: np.random.Generator) -> Floats:
    """A uniformly random orthogonal matrix: QR of a normal one, with the signs of R made positive."""
    orthogonal, triangular = np.linalg.qr(generator.standard_normal((dimension, dimension)))
    return orthogonal * np.sign(np.diag(triangular))


def _targets(coefficients: Floats, dimension: int, rotation: Floats | None) -> Floats:
    informative = coefficients.shape[1]
    if rotation is not None:
        return coefficients @ rotation[:, :informative].T
    targets = np.zeros((len(coefficients), dimension))
    targets[:, :informative] = coefficients
    return targets
