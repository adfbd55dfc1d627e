"""The simulated driver: exact asynchronous runs, on a plain event queue or compiled."""

from flockwise.engine.conditions import Conditions
from flockwise.engine.run import simulate

__all__ = ["Conditions", "simulate"]
