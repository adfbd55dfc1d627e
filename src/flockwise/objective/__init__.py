"""What is minimized: losses, the public objective, and Eq. (1) to Eq. (3)."""

from flockwise.objective.collaborative import CollaborativeObjective, PropagationObjective
from flockwise.objective.local import AnchoredObjective, LocalObjective, LocalUpdate
from flockwise.objective.local_batch import LocalObjectives
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
