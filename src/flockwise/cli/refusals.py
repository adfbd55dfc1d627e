"""How a refusal ends a command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from flockwise.errors import FlockwiseError


@contextmanager
def refusals() -> Iterator[None]:
    """What Flockwise refuses ends the command with a line and code 1, and Ctrl-C as shells have it."""
    try:
        yield
    except FlockwiseError as error:
        _end(str(error))
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _end(words: str) -> None:
    from flockwise.cli.console import say_error  # what draws on the terminal is large

    say_error(words)
    sys.exit(1)
