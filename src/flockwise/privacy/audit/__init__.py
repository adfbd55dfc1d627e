"""Attacks on what is claimed: from many runs on two neighboring data sets, how private it can be at most."""

from flockwise.privacy.audit.attack import CONFIDENCE, Attack, Row, audit_one, failed
from flockwise.privacy.audit.bounds import Scores, epsilon_lower_bound
from flockwise.privacy.audit.gate import GateAttack
from flockwise.privacy.audit.support import SupportAttack

__all__ = [
    "CONFIDENCE",
    "Attack",
    "GateAttack",
    "Row",
    "Scores",
    "SupportAttack",
    "audit_one",
    "epsilon_lower_bound",
    "failed",
]
