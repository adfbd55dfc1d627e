"""Differential privacy on its own: imports nothing of Flockwise but errors and randomness."""

from flockwise.privacy.accounting import ACCOUNTANTS, Accountant, accountant_by_name, calibrate
from flockwise.privacy.budget import Budget, default_delta
from flockwise.privacy.filters import GdpFilter, PureFilter, ZcdpFilter, filter_from_json
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.mechanisms import Gaussian, KNorm, Laplace, Mechanism
from flockwise.privacy.plan import Plan

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Budget",
    "Gaussian",
    "GdpFilter",
    "Guarantee",
    "KNorm",
    "Laplace",
    "Mechanism",
    "Plan",
    "PureFilter",
    "ZcdpFilter",
    "accountant_by_name",
    "calibrate",
    "default_delta",
    "filter_from_json",
]
