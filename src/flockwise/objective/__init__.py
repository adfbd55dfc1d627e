"""What is minimised: losses, Eq. (1) to Eq. (3), their minima, and Prop. 1."""

from flockwise.objective.collaborative import CollaborativeHessian, CollaborativeObjective
from flockwise.objective.local import AnchoredObjective, LocalObjective
from flockwise.objective.local_batch import LocalObjectives
from flockwise.objective.losses import (
    LOSS_NAMES,
    CappedLogistic,
    Huber,
    Logistic,
    Loss,
    Norm,
    Quadratic,
    Softmax,
    gradient_bound,
    loss_by_name,
    public_smoothness,
)
from flockwise.objective.optimum import Optimum, solve_optimum
from flockwise.objective.private_theory import UpdatesChoice, UtilityTheory, best_updates, utility_theory
from flockwise.objective.problem import Problem
from flockwise.objective.propagation import PropagationObjective
from flockwise.objective.solitary import solve_global_model, solve_local_models
from flockwise.objective.theory import ConvergenceTheory, convergence_theory

__all__ = [
    "LOSS_NAMES",
    "AnchoredObjective",
    "CappedLogistic",
    "CollaborativeHessian",
    "CollaborativeObjective",
    "ConvergenceTheory",
    "Huber",
    "LocalObjective",
    "LocalObjectives",
    "Logistic",
    "Loss",
    "Norm",
    "Optimum",
    "Problem",
    "PropagationObjective",
    "Quadratic",
    "Softmax",
    "UpdatesChoice",
    "UtilityTheory",
    "best_updates",
    "convergence_theory",
    "gradient_bound",
    "loss_by_name",
    "public_smoothness",
    "solve_global_model",
    "solve_local_models",
    "solve_optimum",
    "utility_theory",
]
