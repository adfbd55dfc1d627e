"""One configuration file: read, checked, and made into an experiment."""

from flockwise.config.build import Experiment, build
from flockwise.config.schema import Config

__all__ = ["Config", "Experiment", "build"]
