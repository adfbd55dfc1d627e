"""The paper's theorems, as published and corrected: Prop. 1, Theorem 2 and supplement B."""

from flockwise.theory.convergence import ConvergenceTheory, convergence_theory
from flockwise.theory.utility import UpdatesChoice, UtilityTheory, best_updates, utility_theory

__all__ = [
    "ConvergenceTheory",
    "UpdatesChoice",
    "UtilityTheory",
    "best_updates",
    "convergence_theory",
    "utility_theory",
]
