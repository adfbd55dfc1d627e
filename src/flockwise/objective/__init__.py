"""Functions to minimize: losses, the public objective, and Eq. (1) to Eq. (3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockwise.later import names_from
from flockwise.objective.local import AnchoredObjective, LocalObjective, LocalUpdate
from flockwise.objective.losses import (
    LOSSES,
    CappedLogistic,
    Huber,
    Logistic,
    Loss,
    Quadratic,
    Softmax,
    gradient_bound,
    public_smoothness,
)
from flockwise.objective.objective import Objective
from flockwise.objective.problem import Problem

if TYPE_CHECKING:
    from flockwise.objective.collaborative import CollaborativeObjective, PropagationObjective
    from flockwise.objective.local_batch import LocalObjectives

__all__ = [
    "LOSSES",
    "AnchoredObjective",
    "CappedLogistic",
    "CollaborativeObjective",
    "Huber",
    "LocalObjective",
    "LocalObjectives",
    "LocalUpdate",
    "Logistic",
    "Loss",
    "Objective",
    "Problem",
    "PropagationObjective",
    "Quadratic",
    "Softmax",
    "gradient_bound",
    "public_smoothness",
]

# Of all agents together, with SciPy and compiled code: imported when they are used, and by no real agent.
__getattr__ = names_from(__name__)
