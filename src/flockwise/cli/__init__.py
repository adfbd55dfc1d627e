"""The `flockwise` command."""

from flockwise.cli.app import main

__all__ = ["main"]
