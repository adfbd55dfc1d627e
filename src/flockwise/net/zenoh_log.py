"""What zenoh says of connections that it refused: it tells nobody but its log.

zenoh's log goes to the standard output of the process and to nowhere else. A process that runs agents
and nothing else takes it from there (`RefusedConnections`); a program that embeds an agent keeps its
output, and does not learn how many strangers knocked. Either way none of them gets in.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from typing import Final

from flockwise.errors import MissingExtra

try:
    import zenoh
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

STANDARD_OUTPUT: Final = 1
WATCHED: Final = "zenoh_link_tls=warn"
COLORS: Final = re.compile(rb"\x1b\[[0-9;]*m")
REFUSAL: Final = re.compile(rb"WARN .*zenoh_link_tls::unicast: (?P<why>.*?)(\. Hint: .*)?$")
AT_A_STRETCH: Final = 2**16
MAX_LINE: Final = 2**12


class RefusedConnections:
    """Counts the connections that zenoh refused; one for the whole process, made before any session opens.

    What the program itself prints still goes where it went before.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, note: Callable[[str], None]) -> None:
        self.count = 0
        self._loop = loop
        self._note = note
        self._rest = b""
        sys.stdout.flush()
        self._reading, writing = os.pipe()
        # A log that nobody reads must not make zenoh wait: what does not fit is lost.
        os.set_blocking(self._reading, False)
        os.set_blocking(writing, False)
        self._before = os.dup(STANDARD_OUTPUT)
        os.dup2(writing, STANDARD_OUTPUT)
        os.close(writing)
        self._stdout = sys.stdout
        sys.stdout = os.fdopen(
            self._before, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False
        )
        zenoh.init_log_from_env_or(WATCHED)
        loop.add_reader(self._reading, self._read)

    def close(self) -> None:
        """Give the process its output back."""
        self._loop.remove_reader(self._reading)
        sys.stdout.flush()
        sys.stdout.close()
        sys.stdout = self._stdout
        os.dup2(self._before, STANDARD_OUTPUT)
        os.close(self._before)
        os.close(self._reading)

    def _read(self) -> None:
        *lines, rest = (self._rest + os.read(self._reading, AT_A_STRETCH)).split(b"\n")
        self._rest = rest[:MAX_LINE]
        for line in lines:
            found = REFUSAL.search(COLORS.sub(b"", line))
            if found is not None:
                self.count += 1
                self._note(found["why"].decode("utf-8", "replace"))
