"""Where a descent starts: from a public point, from local models, or from models that were released."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.errors import PrivacyError, SimulationError
from flockwise.objective import Problem
from flockwise.privacy.origin import Origin
from flockwise.privacy.tracked import origin_of
from flockwise.release.model import OutputPerturbation
from flockwise.solve.local import solve_local_models

Start: TypeAlias = str | NDArray[Any]


@dataclass(frozen=True, eq=False)
class PublicModels:
    """Models to start a private run from: public ones, or what an earlier run released (`run.models`).

    source: what the models are, for models that were known beforehand, such as "a model published in 2019".
    Those of a run know it themselves, and the guarantee adds up what was spent on them. Of models without a
    source the origin is unknown, and the guarantee says that it does not cover them.
    """

    models: ArrayLike
    source: str | None = None

    def __post_init__(self) -> None:
        origin = origin_of(self.models)
        if origin is not None and origin.status == "private":
            raise PrivacyError(
                f"{origin.what}: they are not a start for a private run; start from the released ones "
                "(run.models of a private run)"
            )

    @property
    def origin(self) -> Origin:
        """What a guarantee says of the start."""
        known = origin_of(self.models)
        if known is not None:
            return replace(known, what=f"the start, {known.what}")
        if self.source is None:
            return Origin("the start", "unknown")
        return Origin(f"the start, {self.source}", "public")


def seeds_before(method: Any) -> frozenset[int]:
    """The seeds that drew the noise of what a method starts from."""
    start = getattr(method, "start", None)
    return start.origin.seeds if isinstance(start, PublicModels) else frozenset()


@dataclass(frozen=True)
class WarmStart:
    """Everyone's local model, released as the first release of its plan; the descent starts from it.

    cost: its relative ε, where an update costs 1 unless the allocation says otherwise.
    """

    statistic: OutputPerturbation
    cost: float = 1.0


def starting_models(problem: Problem, start: Any) -> tuple[NDArray[Any], bool]:
    """Θ(0), and whether it is known to all without a message."""
    shape, dtype = (problem.n_agents, problem.dimension), problem.population.dtype
    if isinstance(start, str):
        if start == "zeros":
            return np.zeros(shape, dtype), True
        if start == "local":
            return solve_local_models(problem).astype(dtype), False
        raise SimulationError(f"start must be 'zeros', 'local' or an array of models, got start={start!r}")
    models = np.array(start, dtype)
    if models.shape != shape:
        raise SimulationError(f"start must have one row per agent, shape {shape}, got shape {models.shape}")
    if not np.isfinite(models).all():
        agent = int(np.flatnonzero(~np.isfinite(models).all(axis=1))[0])
        raise SimulationError(f"start of agent {agent} has a value that is not finite")
    return models, False
