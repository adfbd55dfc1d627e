"""The privacy audit: everything that claims a budget, attacked; what it claims beside what was measured."""

from flockwise.audit.suite import every_attack

__all__ = ["every_attack"]
