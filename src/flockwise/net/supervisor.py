"""All processes of a network on one machine: start them, restart one that dies, stop them together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from flockwise.errors import NetworkError
from flockwise.files import write_text
from flockwise.net.database import take_lock
from flockwise.net.folder import STATE_FOLDER
from flockwise.net.overview import read_status

LOCK_NAME: Final = "up.lock"
PID_NAME: Final = "up.pid"
ERRORS_NAME: Final = "errors.log"
SECONDS_TO_START: Final = 60.0
SECONDS_TO_STOP: Final = 30.0
LOOK_EVERY: Final = 0.1
# Seconds before a restart: more and more for a process that dies at once again and again.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
STEADY_AFTER: Final = 30.0


class Supervisor:
    """Runs one process per host folder; a network is run by one supervisor at a time."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise NetworkError(f"{folder}: there is no such folder")
        self._folder = folder
        self._children: list[_Child] = []
        self._stopping = threading.Event()
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        lock = take_lock(self._folder / LOCK_NAME)
        if lock is None:
            raise NetworkError(
                f"{self._folder}: is running already; stop it with: flockwise network down {self._folder}"
            )
        with ExitStack() as opened:
            opened.callback(lock.close)
            opened.callback((self._folder / PID_NAME).unlink, missing_ok=True)
            write_text(self._folder / PID_NAME, f"{os.getpid()}\n")
            for number in (signal.SIGTERM, signal.SIGINT):
                before = signal.signal(number, lambda *_: self._stopping.set())
                opened.callback(signal.signal, number, before)
            opened.callback(self._stop_children)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def start(self, hosts: Sequence[Path]) -> None:
        self._children = [_Child(host) for host in hosts]

    def wait_until_up(self) -> None:
        """Until every process has begun to report; one that ends before is an error."""
        deadline = time.monotonic() + SECONDS_TO_START
        waiting = list(self._children)
        while waiting and not self._stopping.is_set():
            for child in waiting:
                if child.has_ended:
                    raise NetworkError(f"{child.host}: its process ended at once: {child.last_error()}")
            if time.monotonic() > deadline:
                raise NetworkError(
                    f"{waiting[0].host}: its process did not start in {SECONDS_TO_START:.0f} s"
                )
            waiting = [child for child in waiting if not child.is_up]
            self._stopping.wait(LOOK_EVERY)

    def watch(self, say: Callable[[str], None]) -> None:
        """Until a signal comes. A process that dies is started again, and goes on where it was."""
        while not self._stopping.wait(LOOK_EVERY):
            for child in self._children:
                if child.has_ended and child.should_restart():
                    say(f"{child.host.name} ended with code {child.process.returncode}; it is started again")
                    child.restart()

    def _stop_children(self) -> None:
        for child in self._children:
            child.process.terminate()  # nothing happens to one that has ended
        deadline = time.monotonic() + SECONDS_TO_STOP
        for child in self._children:
            child.end(max(0.0, deadline - time.monotonic()))


class _Child:
    """The process of one host, with its standard error in a file."""

    def __init__(self, host: Path) -> None:
        self.host = host
        self.process = self._started()
        self._pause = FIRST_PAUSE
        self._ended_at: float | None = None

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def is_up(self) -> bool:
        """Whether it has written a status."""
        status = read_status(self.host)
        return status is not None and status.pid == self.process.pid

    def should_restart(self) -> bool:
        """Whether it has been down for long enough."""
        now = time.monotonic()
        if self._ended_at is None:
            ran_well = now - self._began > STEADY_AFTER
            self._pause = FIRST_PAUSE if ran_well else min(2 * self._pause, LONGEST_PAUSE)
            self._ended_at = now
        return now - self._ended_at >= self._pause

    def restart(self) -> None:
        self.process, self._ended_at = self._started(), None

    def last_error(self) -> str:
        lines = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"code {self.process.returncode}"

    def end(self, seconds: float) -> None:
        """Wait, then kill: an agent loses nothing by it, since all is on disk."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def _errors(self) -> Path:
        return self.host / STATE_FOLDER / ERRORS_NAME

    def _started(self) -> subprocess.Popen[bytes]:
        self._began = time.monotonic()
        self._errors.parent.mkdir(parents=True, exist_ok=True)
        with open(self._errors, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "flockwise.cli", "agent", "run", str(self.host)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                # Ctrl-C is for the supervisor, which stops its processes in order.
                start_new_session=True,
            )


def stop_running(folder: Path) -> None:
    """Ask the supervisor of this network to stop, and wait until it has."""
    if not _is_running(folder):
        raise NetworkError(f"{folder}: is not running")
    try:
        pid = int((folder / PID_NAME).read_text())
    except (OSError, ValueError):
        raise NetworkError(f"{folder}: is just starting or stopping; try again") from None
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + SECONDS_TO_STOP + 5
    while _is_running(folder):
        if time.monotonic() > deadline:
            raise NetworkError(f"{folder}: process {pid} has not stopped in {SECONDS_TO_STOP:.0f} s")
        time.sleep(LOOK_EVERY)


def _is_running(folder: Path) -> bool:
    lock = take_lock(folder / LOCK_NAME)
    if lock is not None:
        lock.close()
    return lock is None
