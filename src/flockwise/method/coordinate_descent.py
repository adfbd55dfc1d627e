"""Asynchronous block coordinate descent: the paper's Section 2.3, and its private form, Section 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import PrivacyError
from flockwise.method.descent import Descent, Start, starting_models
from flockwise.method.finish import finish_own_block, neighbor_mean_variances
from flockwise.method.private_updates import PrivateUpdates, PublicModels, WarmStart, tail_noise_variances
from flockwise.objective import Problem
from flockwise.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class CoordinateDescent:
    """Eq. (4) at each tick, from `start`: "zeros" (public), "local" (Eq. (1)), or an array of models.

    With `privacy` it is Eq. (6): clipped gradients and noise within everyone's budget. It then starts
    from a public point, "zeros" or `PublicModels`, or from a `WarmStart`, released within the same plan.
    """

    start: Start | PublicModels | WarmStart = "zeros"
    privacy: PrivateUpdates | None = None
    name = "cd"

    def prepare(self, problem: Problem) -> Descent:
        if self.privacy is None:
            models, is_public = starting_models(problem, self._start_without_privacy())
            return Descent(problem, models, is_public, problem.step_sizes, problem.pulls)
        plan = self.privacy.plan(problem, self._warm_start)
        if self._warm_start is None:
            models, is_public = self._public_start(problem), True
        else:
            kind, seed = self._warm_start.kind, self._warm_start.noise_seed
            models = kind.release_with(problem, plan.start_multipliers, seed).vectors
            models, is_public = models.astype(problem.population.dtype), False
        return Descent(problem, models, is_public, problem.step_sizes, problem.pulls, noise=plan)

    def finish(self, problem: Problem, models: NDArray[Any]) -> NDArray[np.float64] | None:
        """Everyone's own model by an exact solve on its own data, given what the others released.

        How far it trusts them follows from the public noise in their models. Never to be sent.
        """
        if self.privacy is None:
            return None
        variances = tail_noise_variances(problem, self.privacy.plan(problem, self._warm_start))
        return finish_own_block(problem, models, neighbor_mean_variances(problem.graph, variances))

    def guarantee(self, problem: Problem) -> Guarantee | None:
        """What holds for everything that the agents send; None for a run without privacy."""
        return None if self.privacy is None else self.privacy.guarantee(problem, self._warm_start)

    @property
    def _warm_start(self) -> WarmStart | None:
        return self.start if isinstance(self.start, WarmStart) else None

    def _start_without_privacy(self) -> Start:
        if isinstance(self.start, WarmStart):
            raise PrivacyError("a WarmStart spends a budget: give privacy=PrivateUpdates(...) as well")
        return self.start.models if isinstance(self.start, PublicModels) else self.start

    def _public_start(self, problem: Problem) -> NDArray[Any]:
        if isinstance(self.start, PublicModels):
            return starting_models(problem, self.start.models)[0]
        if isinstance(self.start, str) and self.start == "zeros":
            return starting_models(problem, "zeros")[0]
        what = f"start={self.start!r}" if isinstance(self.start, str) else "an array of models"
        raise PrivacyError(
            f"a private run cannot start from {what}: the first message would give it away without noise; "
            "start from 'zeros', or wrap models that are public or were released as PublicModels(models)"
        )
