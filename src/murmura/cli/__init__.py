"""The `murmura` command."""

from murmura.cli.app import main

__all__ = ["main"]
