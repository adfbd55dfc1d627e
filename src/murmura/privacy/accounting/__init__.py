"""What releases cost together, under seven proven rules, and the least noise for a budget."""

from murmura.privacy.accounting.base import Accountant
from murmura.privacy.accounting.calibration import (
    ACCOUNTANTS,
    accountant_by_name,
    calibrate,
    composed_epsilon,
)

__all__ = ["ACCOUNTANTS", "Accountant", "accountant_by_name", "calibrate", "composed_epsilon"]
