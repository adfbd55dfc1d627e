"""What is minimised: losses, Eq. (1) to Eq. (3), their minima, and Prop. 1."""

from murmura.objective.collaborative import CollaborativeHessian, CollaborativeObjective
from murmura.objective.local import AnchoredObjective, LocalObjective
from murmura.objective.local_batch import LocalObjectives
from murmura.objective.losses import (
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
from murmura.objective.optimum import Optimum, solve_optimum
from murmura.objective.private_theory import UpdatesChoice, UtilityTheory, best_updates, utility_theory
from murmura.objective.problem import Problem
from murmura.objective.propagation import PropagationObjective
from murmura.objective.solitary import solve_global_model, solve_local_models
from murmura.objective.theory import ConvergenceTheory, convergence_theory

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
