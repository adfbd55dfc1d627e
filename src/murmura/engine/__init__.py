"""The simulated driver: exact asynchronous runs, on a plain event queue or compiled."""

from murmura.engine.conditions import Conditions
from murmura.engine.run import simulate

__all__ = ["Conditions", "simulate"]
