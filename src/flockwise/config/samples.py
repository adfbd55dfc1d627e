"""The [data] section → training and test samples, and what else the data knows about its agents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.config.sections import DataSection, MovieLensData, SyntheticData, TableData
from flockwise.data import (
    MovieLens,
    Population,
    linear_classification,
    load_movielens,
    ratings_task,
    read_population,
)


@dataclass(frozen=True, eq=False)
class TaskSamples:
    """One population to learn from and one to judge by; the rest only where the source has it."""

    train: Population
    test: Population | None
    description: str
    targets: NDArray[np.float64] | None = None
    profiles: NDArray[np.float64] | None = None
    profile_names: tuple[str, ...] = ()
    rating_matrix: Any = None


def load_samples(section: DataSection, seed: int) -> TaskSamples:
    """Read or generate the samples and hold some out for testing."""
    match section:
        case SyntheticData():
            return _synthetic(section, seed)
        case MovieLensData():
            return _ratings(load_movielens(section.folder), section, seed)
        case _:
            return _table(section, seed)


def validation_samples(section: DataSection, samples: TaskSamples, share: float, seed: int) -> TaskSamples:
    """The training samples split once more, to choose settings by.

    Nothing else may have been learned from the part held out, so movie features, centers and
    the matrix of ratings are made anew without it.
    """
    # Another seed than that of the test split, so the two draws are independent.
    other_seed = (seed + 1) % 2**64
    if isinstance(section, MovieLensData):
        movielens = load_movielens(section.folder)
        train, _ = movielens.split(section.test_share, seed)
        inner = section.model_copy(update={"test_share": share})
        return _ratings(replace(movielens, ratings=train), inner, other_seed)
    fit, held_out = samples.train.split(share, other_seed)
    return replace(samples, train=fit, test=held_out)


def _synthetic(section: SyntheticData, seed: int) -> TaskSamples:
    parameters = section.model_dump(exclude={"source", "agents", "dimension"})
    task = linear_classification(section.agents, section.dimension, seed=seed, **parameters)
    test = task.test if section.test_samples else None
    return TaskSamples(task.train, test, f"The synthetic task, seed {seed}", targets=task.targets)


def _ratings(movielens: MovieLens, section: MovieLensData, seed: int) -> TaskSamples:
    parameters = section.model_dump(exclude={"source", "folder", "dtype"})
    task = ratings_task(movielens, seed=seed, **parameters)
    return TaskSamples(
        train=task.train.astype(section.dtype),
        test=task.test.astype(section.dtype),
        description=task.description,
        profiles=task.user_profiles,
        profile_names=task.profile_names,
        rating_matrix=task.rating_matrix,
    )


def _table(section: TableData, seed: int) -> TaskSamples:
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
        return TaskSamples(everything, None, f"{file}, nothing held out for testing")
    train, test = everything.split(section.test_share, seed)
    return TaskSamples(train, test, f"{file}, {section.test_share:.0%} of each agent's samples for testing")
