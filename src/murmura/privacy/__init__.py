"""Differential privacy on its own: imports nothing of Murmura but errors and randomness."""

from murmura.privacy.accounting import ACCOUNTANTS, Accountant, accountant_by_name, calibrate
from murmura.privacy.budget import Budget, default_delta
from murmura.privacy.filters import GdpFilter, PureFilter, ZcdpFilter, filter_from_json
from murmura.privacy.guarantee import Guarantee
from murmura.privacy.mechanisms import Gaussian, KNorm, Laplace, Mechanism
from murmura.privacy.plan import Plan

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
