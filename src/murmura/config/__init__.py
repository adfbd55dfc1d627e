"""One configuration file: read, checked, and made into an experiment."""

from murmura.config.build import Experiment, build
from murmura.config.schema import Config

__all__ = ["Config", "Experiment", "build"]
