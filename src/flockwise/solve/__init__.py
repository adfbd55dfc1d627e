"""Exact minima, by second-order methods that share nothing with the engines."""

from flockwise.solve.local import solve_anchored_models, solve_local_models
from flockwise.solve.optimum import Optimum, solve_global_model, solve_optimum
from flockwise.solve.penalty import choose_l2

__all__ = [
    "Optimum",
    "choose_l2",
    "solve_anchored_models",
    "solve_global_model",
    "solve_local_models",
    "solve_optimum",
]
