"""What releases cost together, under seven proven rules, and the least noise for a budget."""

from flockwise.privacy.accounting.base import Accountant
from flockwise.privacy.accounting.calibration import (
    ACCOUNTANTS,
    calibrate,
    composed_epsilon,
    default_accountant,
)

__all__ = ["ACCOUNTANTS", "Accountant", "calibrate", "composed_epsilon", "default_accountant"]
