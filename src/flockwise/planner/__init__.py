"""Which private method to run, chosen before anyone looks at the data."""

from flockwise.planner.memory import recalled_plan
from flockwise.planner.recommendation import Recommendation, plan_run

__all__ = ["Recommendation", "plan_run", "recalled_plan"]
