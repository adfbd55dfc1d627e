"""The privacy audit: everything that claims a budget, attacked; what it claims beside what was measured."""

from flockwise.audit.bounds import (
    CONFIDENCE,
    Attack,
    AuditRow,
    Scores,
    audit_one,
    epsilon_lower_bound,
    failed,
)
from flockwise.audit.gate import GateAttack
from flockwise.audit.suite import every_attack

__all__ = [
    "CONFIDENCE",
    "Attack",
    "AuditRow",
    "GateAttack",
    "Scores",
    "audit_one",
    "epsilon_lower_bound",
    "every_attack",
    "failed",
]
