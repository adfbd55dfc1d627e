"""The [data] section → training and test samples, and what else the data knows about its agents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.config.sections import Data, MovieLensData, SyntheticData, TableData
from flockwise.data import (
    MovieLens,
    Population,
    linear_classification,
    load_movielens,
    ratings_task,
    read_population,
)
from flockwise.privacy.grid import clip_rows

# What choices of [data] make of other people's ratings, or of all those of an agent at once.
_DERIVED = {
    "als": "the movie features, factors of the agents' own ratings",
    "als_disjoint": "the movie features, factors of the ratings of other users, who are no agents",
    "user_mean": "the targets, centred by each agent's own mean rating",
}


@dataclass(frozen=True, eq=False)
class Samples:
    """One population to learn from and one to judge by; the rest only where the source has it."""

    train: Population
    test: Population | None
    description: str
    targets: NDArray[np.float64] | None = None
    profiles: NDArray[np.float64] | None = None
    profile_names: tuple[str, ...] = ()
    rating_matrix: Any = None
    derived: tuple[str, ...] = ()
    """What in the training samples was computed from private data of others or of the whole agent."""


def load_samples(section: Data, seed: int, feature_bound: float | None = None) -> Samples:
    """Read or generate the samples and hold some out for testing.

    feature_bound: training samples that are longer, in L2, are scaled down to it.
    """
    match section:
        case SyntheticData():
            samples = _synthetic(section, seed)
        case MovieLensData():
            samples = _ratings(load_movielens(section.folder), section, seed)
        case _:
            samples = _table(section, seed)
    return samples if feature_bound is None else _within(samples, feature_bound)


def validation_samples(section: Data, samples: Samples, share: float, seed: int) -> Samples:
    """The training samples split once more, to choose settings by.

    Nothing else may have been learned from the part held out, so that movie features, centres and
    the matrix of ratings are made anew without it.
    """
    # Another seed than that of the test split, so that the two draws are independent.
    other_seed = (seed + 1) % 2**64
    if isinstance(section, MovieLensData):
        movielens = load_movielens(section.folder)
        train, _ = movielens.split(section.test_share, seed)
        inner = section.model_copy(update={"test_share": share})
        return _ratings(replace(movielens, ratings=train), inner, other_seed)
    fit, held_out = samples.train.split(share, other_seed)
    return replace(samples, train=fit, test=held_out)


def _synthetic(section: SyntheticData, seed: int) -> Samples:
    parameters = section.model_dump(exclude={"source", "agents", "dimension"})
    task = linear_classification(section.agents, section.dimension, seed=seed, **parameters)
    test = task.test if section.test_samples else None
    return Samples(task.train, test, f"The synthetic task, seed {seed}", targets=task.targets)


def _ratings(movielens: MovieLens, section: MovieLensData, seed: int) -> Samples:
    parameters = section.model_dump(exclude={"source", "folder", "dtype"})
    task = ratings_task(movielens, seed=seed, **parameters)
    return Samples(
        train=task.train.astype(section.dtype),
        test=task.test.astype(section.dtype),
        description=task.description,
        profiles=task.user_profiles,
        profile_names=task.profile_names,
        rating_matrix=task.rating_matrix,
        derived=tuple(
            _DERIVED[choice] for choice in (section.features, section.centring) if choice in _DERIVED
        ),
    )


def _table(section: TableData, seed: int) -> Samples:
    everything = read_population(
        section.source,
        agent=section.agent,
        target=section.target,
        features=section.features,
        dtype=section.dtype,
    )
    if section.intercept:
        everything = everything.with_intercept()
    file = section.source.name
    if not section.test_share:
        return Samples(everything, None, f"{file}, nothing held out for testing")
    train, test = everything.split(section.test_share, seed)
    return Samples(train, test, f"{file}, {section.test_share:.0%} of each agent's samples for testing")


def _within(samples: Samples, feature_bound: float) -> Samples:
    """Longer samples are scaled and not refused: a refusal would tell that there is one."""
    train = samples.train
    if train.n_samples == 0:
        return samples
    bounded = Population.packed(
        clip_rows(train.features, feature_bound, "l2").astype(train.dtype),
        train.targets,
        train.offsets,
        agent_names=train.given_names,
        feature_names=train.feature_names,
    )
    words = f"training samples longer than {feature_bound:g} are scaled down to it"
    return replace(samples, train=bounded, description=f"{samples.description}; {words}")
