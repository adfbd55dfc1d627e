"""Run a folder's agents until a signal comes: what `flockwise agent run` does."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import zenoh

from flockwise.errors import FlockwiseError, NetworkError
from flockwise.net.durable import open_participant
from flockwise.net.folder import IDENTITY_FOLDER, HostFolder
from flockwise.net.host import Host
from flockwise.net.identity import TlsFiles
from flockwise.net.logs import EventLog, place_of
from flockwise.net.metrics import MetricsServer
from flockwise.net.participant import Participant
from flockwise.net.settings import NetworkSettings
from flockwise.net.signing import Verifier
from flockwise.net.time import RealTime
from flockwise.net.wire import greeting_limit
from flockwise.net.zenoh_link import ZenohLink

STANDARD_OUTPUT: Final = 1
ZENOH_LOG: Final = "zenoh_link_tls=warn"
COLORS: Final = re.compile(rb"\x1b\[[0-9;]*m")
REFUSAL: Final = re.compile(rb"WARN .*zenoh_link_tls::unicast: (?P<why>.*?)(\. Hint: .*)?$")
MOST_BYTES: Final = 2**16
MAX_LINE: Final = 2**12


def run_folder(path: Path) -> None:
    """In the foreground, until SIGTERM or Ctrl-C.

    The text of an unexpected error may have been computed from data, and the last words of a process are
    written to a file. So they name only the kind of the error and its place.
    """

    async def run() -> None:
        async with open_host(HostFolder.read(path), owns_process=True) as host:
            await host.run()

    try:
        asyncio.run(run())
    except (FlockwiseError, OSError):
        raise
    except Exception as error:
        raise NetworkError(
            f"{path}: ended by an error that should not happen, {type(error).__name__} at {place_of(error)}"
        ) from None


@asynccontextmanager
async def open_host(folder: HostFolder, *, owns_process: bool = False) -> AsyncIterator[Host]:
    """The host of a folder, not started yet, with its log and its metrics.

    owns_process: whether the process runs agents and nothing else. Then errors in the event loop go to the
    log alone, and refused connections are counted, which takes the standard output. A program that embeds
    an agent keeps both for itself.
    """
    with ExitStack() as opened:
        log = EventLog.to_file(folder.log_file)
        opened.callback(log.close)
        refused = RefusedConnections(log)
        if owns_process:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: _log_failure(log, context))
            refused.watch_standard_output()
            opened.callback(refused.stop)
        neighborhood = folder.agents[0].neighborhood
        dimension = neighborhood.dimension
        largest_relay = NetworkSettings.of(neighborhood).largest_relay(dimension)
        link = ZenohLink(
            folder.network,
            folder.name,
            folder.listen,
            TlsFiles.of(folder.path / IDENTITY_FOLDER),
            max_bytes=greeting_limit(max(dimension, largest_relay)),
            log=log,
        )
        host = Host(
            folder.network,
            folder.name,
            _participants(folder, link, log),
            link,
            log=log,
            status_file=folder.status_file,
            newer_rosters=folder.rosters,
            refused=lambda: refused.count,
        )
        if folder.metrics_port is not None:
            server = MetricsServer(lambda: host.status, folder.metrics_port)
            opened.callback(server.close)
            log("metrics", port=server.port)
        yield host


class RefusedConnections:
    """Counts the connections that zenoh refused.

    zenoh reports them nowhere but in its log, which goes to the standard output of the process and to
    nowhere else. `watch_standard_output` reads it from there, for the rest of the process: so nothing else
    may be printed. It has to be called before a session opens.
    """

    def __init__(self, log: EventLog) -> None:
        self.count = 0
        self._log = log
        self._rest = b""

    def watch_standard_output(self) -> None:
        self._reading, writing = os.pipe()
        # If this process is too slow to read it, lines are lost; zenoh never waits.
        os.set_blocking(self._reading, False)
        os.set_blocking(writing, False)
        os.dup2(writing, STANDARD_OUTPUT)
        os.close(writing)
        zenoh.init_log_from_env_or(ZENOH_LOG)
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)

    def _read(self) -> None:
        *lines, rest = (self._rest + os.read(self._reading, MOST_BYTES)).split(b"\n")
        self._rest = rest[:MAX_LINE]
        for line in lines:
            found = REFUSAL.search(COLORS.sub(b"", line))
            if found is not None:
                self.count += 1
                self._log("connection refused", text=found["why"].decode("utf-8", "replace"))


def _log_failure(log: EventLog, context: Mapping[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.failure("unexpected error", error)


def _participants(folder: HostFolder, link: ZenohLink, log: EventLog) -> list[Participant]:
    """All agents that can run. On a gateway, one that cannot does not stop the others."""
    participants, time, verifier = [], RealTime(), Verifier()
    for agent in folder.agents:
        try:
            participants.append(open_participant(agent, link, time, verifier))
        except FlockwiseError as error:
            if len(folder.agents) == 1:
                raise
            log.failure("agent not started", error, agent=agent.name)
    if not participants:
        raise NetworkError(f"{folder.path}: none of its agents could be started; see {folder.log_file}")
    return participants
