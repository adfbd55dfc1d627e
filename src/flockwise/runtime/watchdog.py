"""Tells systemd that a process lives, if systemd has asked for it (sd_notify, WatchdogSec=)."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final

SOCKET: Final = "NOTIFY_SOCKET"
ABSTRACT: Final = "@"  # how systemd writes the zero byte of an abstract address


def say_ready() -> None:
    _tell(b"READY=1")


def say_alive() -> None:
    _tell(b"WATCHDOG=1")


def _tell(words: bytes) -> None:
    """It never fails: an agent does not stop because its supervisor cannot be reached."""
    address = os.environ.get(SOCKET)
    if not address:
        return
    if address.startswith(ABSTRACT):
        address = "\0" + address.removeprefix(ABSTRACT)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.sendto(words, address)
