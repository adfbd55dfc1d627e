"""Every exception that Flockwise raises on purpose, and its warnings.

Messages name the agent, the field and the value, and say what to do about it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class FlockwiseError(Exception):
    """Base class: catch it to catch everything that Flockwise refuses."""


class DataError(FlockwiseError, ValueError):
    """A table, a sample or a target that cannot be used."""


class GraphError(FlockwiseError, ValueError):
    """Weights or edges that do not make a similarity graph."""


class ObjectiveError(FlockwiseError, ValueError):
    """A loss, penalty or trade-off that does not fit the data."""


class ConfigError(FlockwiseError, ValueError):
    """A configuration file or option that cannot be read."""


class SimulationError(FlockwiseError, ValueError):
    """A run that was asked for something it cannot do."""


class ResumeError(SimulationError):
    """A saved run that does not continue the problem at hand."""


class PrivacyError(FlockwiseError, ValueError):
    """Something that would break a guarantee, or cannot be guaranteed."""


class BudgetSpent(PrivacyError):
    """A release that the budget or the plan does not allow any more."""


class LedgerError(PrivacyError):
    """A ledger that is damaged, in use, or does not belong to the agent."""


class NetworkError(FlockwiseError):
    """An agent, a message or a folder that a real network cannot use."""


class IdentityError(NetworkError):
    """A certificate, a key or a signature that does not hold."""


class MissingExtra(FlockwiseError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part: pip install 'flockwise[{extra}]'")


class FlockwiseWarning(UserWarning):
    """Something that works, but perhaps not as it was meant; the message says what to do."""


@contextmanager
def without_advice() -> Iterator[None]:
    """For runs that are tried and not kept: their warnings are not for the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlockwiseWarning)
        yield
