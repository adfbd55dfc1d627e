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

from flockwise.database import take_lock
from flockwise.deploy.folder import STATE_FOLDER
from flockwise.errors import NetworkError
from flockwise.files import write_text
from flockwise.runtime.overview import few, read_status
from flockwise.runtime.phases import Phase

LOCK_NAME: Final = "up.lock"
PID_NAME: Final = "up.pid"
ERRORS_NAME: Final = "errors.log"
SECONDS_TO_START: Final = 60.0
SECONDS_TO_STOP: Final = 30.0
LOOK_EVERY: Final = 0.1
# Seconds before a restart: more and more for a process that dies at once again and again.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
STEADY_AFTER: Final = 30.0
# A process writes its status every second. One that has not between so many looks hangs, or its disk does.
# Looks are counted, and no clock is read: while the machine sleeps nobody looks.
STATUS_EVERY: Final = 5.0
LOOKS_IN_VAIN: Final = 12


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

    def wait_until_up(self) -> dict[str, str]:
        """Until every process has begun to report or has ended; why hosts are not up, by their names.

        They are tried again while `watch` runs. It is an error if none is up.
        """
        deadline = time.monotonic() + SECONDS_TO_START
        waiting, failed = list(self._children), dict[str, str]()
        while waiting and not self._stopping.is_set():
            is_late = time.monotonic() > deadline
            for child in waiting:
                if child.has_ended:
                    failed[child.host.name] = f"its process ended at once: {child.last_error()}"
                elif is_late and not child.is_up:
                    failed[child.host.name] = f"its process did not start in {SECONDS_TO_START:.0f} s"
            waiting = [child for child in waiting if not (child.is_up or child.host.name in failed)]
            self._stopping.wait(LOOK_EVERY)
        if failed and len(failed) == len(self._children):
            host, why = next(iter(failed.items()))
            raise NetworkError(f"{self._folder}: no process is up; {host}: {why}")
        return failed

    def watch(self, say: Callable[[str], None]) -> None:
        """Until a signal comes. A process that dies is started again, and goes on where it was."""
        spent, due = set[str](), 0.0
        while not self._stopping.wait(LOOK_EVERY):
            if time.monotonic() >= due:
                due = time.monotonic() + STATUS_EVERY
                self._say_what_is_spent(spent, say)
            for child in self._children:
                if child.hangs:
                    seconds = STATUS_EVERY * LOOKS_IN_VAIN
                    say(f"{child.host.name} has shown no sign of life for {seconds:.0f} s; it is killed")
                    child.end(0)
                if child.has_ended and child.should_restart():
                    say(f"{child.host.name} ended with code {child.process.returncode}; it is started again")
                    child.restart()

    def _say_what_is_spent(self, known: set[str], say: Callable[[str], None]) -> None:
        """Once for each agent; they go on listening, and learn for their owners."""
        statuses = [read_status(child.host) for child in self._children]
        agents = [agent for status in statuses if status is not None for agent in status.agents]
        agents = [agent for agent in agents if agent.phase is not Phase.REMOVED]
        spent = [agent.name for agent in agents if agent.is_spent]
        new = [name for name in spent if name not in known]
        if not new:
            return
        known.update(new)
        share = f"{len(spent)} of {len(agents)} agents"
        say(f"Budget spent: {few(new)}. {share} send nothing more, and still listen.")

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
        self._looked_at = 0.0
        self._written_at: float | None = None
        self._looks_in_vain = 0
        self._ended_at: float | None = None

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def is_up(self) -> bool:
        """Whether it has written a status."""
        status = read_status(self.host)
        return status is not None and status.pid == self.process.pid

    @property
    def hangs(self) -> bool:
        """Whether it runs and has not written its status for long."""
        now = time.monotonic()
        if not self.has_ended and now >= self._looked_at + STATUS_EVERY:
            self._looked_at = now
            status = read_status(self.host)
            written_at = None if status is None else status.written_at
            self._looks_in_vain = self._looks_in_vain + 1 if written_at == self._written_at else 0
            self._written_at = written_at
        return not self.has_ended and self._looks_in_vain >= LOOKS_IN_VAIN

    def should_restart(self) -> bool:
        """Whether it has been down for long enough."""
        now = time.monotonic()
        if self._ended_at is None:
            ran_well = now - self._began > STEADY_AFTER
            self._pause = FIRST_PAUSE if ran_well else min(2 * self._pause, LONGEST_PAUSE)
            self._ended_at = now
        return now - self._ended_at >= self._pause

    def restart(self) -> None:
        self._close_input()
        self.process, self._ended_at, self._looks_in_vain = self._started(), None, 0

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
        self._close_input()

    def _close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    @property
    def _errors(self) -> Path:
        return self.host / STATE_FOLDER / ERRORS_NAME

    def _started(self) -> subprocess.Popen[bytes]:
        self._began = time.monotonic()
        self._errors.parent.mkdir(parents=True, exist_ok=True)
        with open(self._errors, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "flockwise.cli", "agent", "run", "--until-input-ends", str(self.host)],
                # Its input ends when this process does, however it does: nobody spends unwatched.
                stdin=subprocess.PIPE,
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
