"""What a host writes down while it runs: one JSON object per line, and never anything about the data.

An event has a name and a few fields, all from the list below and all text or whole numbers. There is no
field for a model, a gradient, a loss or a prediction, and none that would take a real number: what is
not on the list cannot be logged, by mistake or otherwise.
"""

from __future__ import annotations

import json
import logging
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, TextIO

from flockwise.errors import FlockwiseError, NetworkError
from flockwise.net.rate import Bucket, RateLimit
from flockwise.net.time import RealTime, Time

FIELDS: Final = frozenset(
    [
        "address",
        "agent",
        "agents",
        "error",
        "host",
        "listen",
        "neighbor",
        "network",
        "number",
        "obstacle",
        "path",
        "pid",
        "place",
        "port",
        "reason",
        "signal",
        "suppressed",
        "text",
        "version",
    ]
)
MAX_TEXT: Final = 500
MAX_BYTES: Final = 10_000_000
N_FILES: Final = 3
# Of one event: strangers at the door must not fill the disk.
RATE: Final = RateLimit(per_second=0.5, burst=50)

Level = int
INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR


class EventLog:
    """Writes events, each at most as often as the rate allows; says how many it left out."""

    def __init__(self, handler: logging.Handler, *, time: Time | None = None) -> None:
        self._handler = handler
        self._time = RealTime() if time is None else time
        self._lock = threading.Lock()  # zenoh's threads have something to tell as well
        self._buckets: dict[str, Bucket] = {}
        self._suppressed: Counter[str] = Counter()

    @classmethod
    def to_file(cls, path: Path) -> EventLog:
        """A file that is put aside when it is full; the last few are kept."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return cls(RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=N_FILES, encoding="utf-8"))

    @classmethod
    def to_stream(cls, stream: TextIO) -> EventLog:
        return cls(logging.StreamHandler(stream))

    @classmethod
    def to_nowhere(cls) -> EventLog:
        return cls(logging.NullHandler())

    def __call__(self, event: str, level: Level = INFO, **fields: str | int | None) -> None:
        for name, value in fields.items():
            if name not in FIELDS or not isinstance(value, str | int | None):
                raise NetworkError(
                    f"log event {event!r}: the field {name!r} of type {type(value).__name__} is not one that "
                    "may be logged; see flockwise.net.logs"
                )
        with self._lock:
            if not self._may_pass(event):
                self._suppressed[event] += 1
                return
            if left_out := self._suppressed.pop(event, 0):
                fields["suppressed"] = left_out
        self._handler.handle(_record(level, _line(event, level, fields)))

    def failure(self, event: str, error: BaseException, **fields: str | int | None) -> None:
        """An error: in its own words if it is one of ours, else only where it happened."""
        text = str(error) if isinstance(error, FlockwiseError) else None
        self(event, ERROR, error=type(error).__name__, text=text, place=place_of(error), **fields)

    def close(self) -> None:
        self._handler.close()

    def _may_pass(self, event: str) -> bool:
        now = self._time.now()
        bucket = self._buckets.setdefault(event, Bucket(RATE, now))
        return bucket.take(now)


def _line(event: str, level: Level, fields: Mapping[str, Any]) -> str:
    values = {name: _short(value) for name, value in fields.items() if value is not None}
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": time, "level": logging.getLevelName(level).lower(), "event": event, **values})


def _short(value: str | int) -> str | int:
    return value[:MAX_TEXT] if isinstance(value, str) else value


def _record(level: Level, line: str) -> logging.LogRecord:
    return logging.LogRecord("flockwise.net", level, "", 0, line, None, None)


def place_of(error: BaseException) -> str | None:
    """The file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None


Log = Callable[..., None]
