"""Which private method to run, chosen before anyone looks at the data."""

from flockwise.planner.facts import PublicFacts
from flockwise.planner.plan import Plan, plan_run

__all__ = ["Plan", "PublicFacts", "plan_run"]
