"""Differential privacy on its own: of Flockwise it imports errors, randomness and a few small tools."""

from flockwise.privacy.accounting import ACCOUNTANTS, Accountant, calibrate
from flockwise.privacy.budget import Budget, Budgets, default_delta
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.mechanisms import MECHANISMS, Gaussian, KNorm, Laplace, Mechanism
from flockwise.privacy.origin import Origin
from flockwise.privacy.plan import Plan

__all__ = [
    "ACCOUNTANTS",
    "MECHANISMS",
    "Accountant",
    "Budget",
    "Budgets",
    "Gaussian",
    "Guarantee",
    "KNorm",
    "Laplace",
    "Mechanism",
    "Origin",
    "Plan",
    "calibrate",
    "default_delta",
]
