"""Ctrl-C during a run: the first asks it to stop at the next barrier, the second stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # what shells give a program that Ctrl-C ended
SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it
STOPPING = b"\nStopping at the next barrier, then saving; press Ctrl-C again to stop at once.\n"


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether Ctrl-C was pressed."""
    asked = threading.Event()

    def handle(signum: int, frame: FrameType | None) -> None:
        if asked.is_set():
            _leave()
        asked.set()
        # Straight to the terminal: a handler may run in the middle of another write to a console.
        os.write(2, STOPPING)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _leave() -> NoReturn:
    """End the process here: an exception would have to unwind compiled code, which can crash instead."""
    if os.isatty(2):
        os.write(2, SHOW_CURSOR)
    os._exit(INTERRUPTED)
