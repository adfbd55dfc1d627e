"""One configuration file: read, checked, and made into an experiment."""

from flockwise.config.experiment import Experiment, build, plan_of
from flockwise.config.schema import Config

__all__ = ["Config", "Experiment", "build", "plan_of"]
