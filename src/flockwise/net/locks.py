"""One process at a time: an exclusive transaction on an empty database.

The system ends it with the process, however that dies.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from flockwise.errors import NetworkError


def take_lock(path: Path) -> sqlite3.Connection | None:
    """Held until it is closed; None if another process holds it."""
    try:
        lock = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except BaseException:
            lock.close()
            raise
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return None
        raise NetworkError(f"{path}: cannot be used: {error}; see to the disk and its rights") from error
    return lock
