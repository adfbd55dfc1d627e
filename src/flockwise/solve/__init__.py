"""Exact minima, by second-order methods that share nothing with the engines."""

from flockwise.solve.local import solve_anchored_models, solve_local_models
from flockwise.solve.mixed import MixedModel, fit_mixed_model
from flockwise.solve.optimum import Gap, Optimum, certified_gap, solve_global_model, solve_optimum
from flockwise.solve.penalty import choose_l2, resolve_l2
from flockwise.solve.prior import Prior, model_intervals, model_spreads, posterior_models, shrinkage

__all__ = [
    "Gap",
    "MixedModel",
    "Optimum",
    "Prior",
    "certified_gap",
    "choose_l2",
    "fit_mixed_model",
    "model_intervals",
    "model_spreads",
    "posterior_models",
    "resolve_l2",
    "shrinkage",
    "solve_anchored_models",
    "solve_global_model",
    "solve_local_models",
    "solve_optimum",
]
