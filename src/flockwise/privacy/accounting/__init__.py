"""What releases cost together, under seven proven rules, and the least noise for a budget."""

from flockwise.privacy.accounting.base import Accountant
from flockwise.privacy.accounting.calibration import (
    ACCOUNTANTS,
    accountant_by_name,
    calibrate,
    composed_epsilon,
)

__all__ = ["ACCOUNTANTS", "Accountant", "accountant_by_name", "calibrate", "composed_epsilon"]
