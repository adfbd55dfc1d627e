"""The log of a host: one JSON object per line, and never anything about the data.

An event has a name and a few fields, all from the list below and all text or whole numbers. There is no
field for a model, a gradient, a loss or a prediction, and none that takes a real number. Nothing else can be
logged, by mistake or otherwise.
"""

from __future__ import annotations

import json
import logging
import threading
import traceback
from collections import Counter
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from flockwise.errors import FlockwiseError, NetworkError
from flockwise.net.rate import Bucket, RateLimit
from flockwise.net.time import RealTime

FIELDS: Final[dict[str, type]] = {
    **dict.fromkeys(
        ("address", "agent", "error", "host", "network", "obstacle", "place", "signal", "text"), str
    ),
    **dict.fromkeys(("agents", "pid", "port", "suppressed", "version"), int),
}
MAX_TEXT: Final = 500
MAX_BYTES: Final = 10_000_000
N_FILES: Final = 3
# Of one event: strangers must not be able to fill the disk.
RATE: Final = RateLimit(per_second=0.5, burst=50)


class EventLog:
    """Writes events, each at most as often as the rate allows, and says how many it left out."""

    def __init__(self, handler: logging.Handler) -> None:
        self._handler = handler
        self._time = RealTime()
        self._lock = threading.Lock()  # zenoh's threads log, too
        self._buckets: dict[str, Bucket] = {}
        self._suppressed: Counter[str] = Counter()

    @classmethod
    def to_file(cls, path: Path) -> EventLog:
        """When the file is full, a new one is begun; the last few are kept."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return cls(RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=N_FILES, encoding="utf-8"))

    def __call__(self, event: str, level: int = logging.INFO, **fields: str | int | None) -> None:
        for name, value in fields.items():
            if name not in FIELDS or not isinstance(value, FIELDS[name] | None):
                raise NetworkError(
                    f"log event {event!r}: the field {name!r} of type {type(value).__name__} is not one that "
                    "may be logged; see flockwise.runtime.logs"
                )
        with self._lock:
            now = self._time.now()
            if not self._buckets.setdefault(event, Bucket(RATE, now)).take(now):
                self._suppressed[event] += 1
                return
            if left_out := self._suppressed.pop(event, 0):
                fields["suppressed"] = left_out
        line: dict[str, str | int] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": logging.getLevelName(level).lower(),
            "event": event,
        }
        for name, value in fields.items():
            if value is not None:
                line[name] = value[:MAX_TEXT] if isinstance(value, str) else value
        self._handler.handle(logging.LogRecord("flockwise", level, "", 0, json.dumps(line), None, None))

    def failure(self, event: str, error: BaseException, **fields: str | int | None) -> None:
        """An error: its text if it is one of Flockwise's, else only its kind and where it happened."""
        text = str(error) if isinstance(error, FlockwiseError) else None
        self(event, logging.ERROR, error=type(error).__name__, text=text, place=place_of(error), **fields)

    def close(self) -> None:
        self._handler.close()


def place_of(error: BaseException) -> str | None:
    """The file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None
