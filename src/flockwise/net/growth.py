"""An agent's samples, and those that come while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from flockwise.agent import Agent
from flockwise.data.samples import Samples, joined
from flockwise.errors import DataError, PrivacyError
from flockwise.net.store import Store
from flockwise.objective import LocalUpdate, Objective

NO_BUDGET: Final = "began without samples and has no budget for new ones; enroll an agent with these samples"


class Growth:
    """What a user's program hands new samples to."""

    def __init__(
        self,
        objective: Objective,
        batches: list[Samples],
        store: Store,
        agent: Agent,
        make_room: Callable[[int], None] | None = lambda place: None,
        joins: Callable[[], None] = lambda: None,
    ) -> None:
        """batches: all samples so far, as they came.

        make_room: what has to be on disk before the store knows of a batch; None: the agent has no budget for
        new samples, and cannot get one while it runs. joins: what to do once a batch is there.
        """
        self._objective = objective
        self._batches = batches
        self._store = store
        self._agent = agent
        self._make_room = make_room
        self._joins = joins

    @property
    def samples(self) -> Samples:
        """All that the agent learns from."""
        return joined(self._batches)

    def add(self, features: ArrayLike, targets: ArrayLike, now: int) -> None:
        """Learn from these samples too; they are on disk when this returns, or refused whole."""
        batch = checked_samples(self._objective, features, targets, self._batches[0].features.shape[1])
        if not len(batch.targets):
            raise DataError("there is no sample in it; add one or more")
        if self._make_room is None:
            raise PrivacyError(f"agent {self._agent.name!r} {NO_BUDGET}")
        self._make_room(len(self._batches))
        self._store.add_batch(batch)
        self._batches.append(batch)
        self._joins()
        self._agent.set_data(LocalUpdate.of(self._objective, self.samples), now)


def checked_samples(
    objective: Objective, features: ArrayLike, targets: ArrayLike, n_features: int
) -> Samples:
    """Samples that fit the network and its loss. What is said of them names no value: it ends in logs."""
    rows, values = np.array(features, np.float64), np.array(targets, np.float64)
    if rows.ndim != 2 or values.shape != rows.shape[:1]:
        raise DataError(
            "samples must have features of shape (samples, features) and targets of shape (samples,), got "
            f"{rows.shape} and {values.shape}"
        )
    if rows.shape[1] != n_features:
        raise DataError(f"a sample has {n_features} features, got {rows.shape[1]}")
    if not (np.isfinite(rows).all() and np.isfinite(values).all()):
        raise DataError("a sample has a value that is infinite or not a number; clean the data first")
    if not objective.loss.valid_targets(values).all():
        raise DataError(f"every target must be {objective.loss.expects}; look at the data")
    return Samples(rows, values)
