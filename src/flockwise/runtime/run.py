"""Run a folder's agents until a signal comes: what `flockwise agent run` does."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import zenoh

from flockwise.deploy.credentials import own_end, tls_files
from flockwise.deploy.folder import IDENTITY_FOLDER, WAITING_FOLDER, AgentFolder, HostFolder
from flockwise.deploy.settings import NetworkSettings
from flockwise.errors import FlockwiseError, NetworkError
from flockwise.net.descriptors import reserve_descriptors
from flockwise.net.signing import Verifier
from flockwise.net.time import RealTime
from flockwise.net.wire import greeting_limit
from flockwise.net.zenoh.link import ZenohLink
from flockwise.runtime.durable import open_participant
from flockwise.runtime.host import Host
from flockwise.runtime.logs import EventLog, place_of
from flockwise.runtime.metrics import MetricsServer
from flockwise.runtime.participant import Participant

STANDARD_INPUT: Final = 0
STANDARD_OUTPUT: Final = 1
ZENOH_LOG: Final = "zenoh_link_tls=warn"
COLORS: Final = re.compile(rb"\x1b\[[0-9;]*m")
REFUSAL: Final = re.compile(rb"WARN .*zenoh_link_tls::unicast: (?P<why>.*?)(\. Hint: .*)?$")
MOST_BYTES: Final = 2**16
MAX_LINE: Final = 2**12


def run_folder(path: Path, *, until_input_ends: bool = False) -> None:
    """In the foreground, until SIGTERM or Ctrl-C.

    until_input_ends: or until the standard input ends, as it does when the process that holds it dies.

    The text of an unexpected error may have been computed from data, and the last words of a process are
    written to a file. So they name only the kind of the error and its place.
    """

    async def run() -> None:
        folder = HostFolder.read(path)
        reserve_descriptors(len(folder.agents))
        async with open_host(folder, owns_process=True) as host:
            if until_input_ends:
                asyncio.get_running_loop().add_reader(STANDARD_INPUT, _stop_at_end_of_input, host)
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
            tls_files(folder.path / IDENTITY_FOLDER),
            max_bytes=greeting_limit(max(dimension, largest_relay)),
            log=log,
        )
        time, verifier = RealTime(), Verifier()
        homes = {agent.name: agent.path for agent in folder.agents}

        def open_agent(agent: str) -> Participant:
            home = AgentFolder.read(homes[agent])
            if home.neighborhood.is_removed:
                raise NetworkError(f"agent {agent!r}: was removed from network {folder.network!r}; join anew")
            if (home.path / WAITING_FOLDER).is_dir():
                raise NetworkError(
                    f"agent {agent!r}: its keys are changed; first: flockwise agent accept {home.path} REPLY"
                )
            return open_participant(home, link, time, verifier)

        participants, not_started = _participants(folder, open_agent, log)
        host = Host(
            folder.network,
            folder.name,
            participants,
            link,
            log=log,
            status_file=folder.status_file,
            newer_rosters=folder.rosters,
            refused=lambda: refused.count,
            expires_at=lambda: own_end(folder.path / IDENTITY_FOLDER),
            listens_where_it_is_reached=not folder.listens_elsewhere,
            reopen=open_agent,
            not_started=not_started,
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


def _stop_at_end_of_input(host: Host) -> None:
    if not os.read(STANDARD_INPUT, MOST_BYTES):
        asyncio.get_running_loop().remove_reader(STANDARD_INPUT)
        host.log("supervisor gone")
        host.stop()


def _log_failure(log: EventLog, context: Mapping[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.failure("unexpected error", error)


def _participants(
    folder: HostFolder, open_agent: Callable[[str], Participant], log: EventLog
) -> tuple[list[Participant], dict[str, str]]:
    """All agents that can run, and why others cannot. On a gateway, one of these does not stop the others."""
    participants, not_started = list[Participant](), dict(folder.refused)
    for agent, why in folder.refused.items():
        log("agent not started", logging.ERROR, agent=agent, text=why)
    for agent in folder.agents:
        try:
            participants.append(open_agent(agent.name))
        except FlockwiseError as error:
            if len(folder.agents) == 1 and not folder.refused:
                raise
            log.failure("agent not started", error, agent=agent.name)
            not_started[agent.name] = str(error)
    if not participants:
        raise NetworkError(f"{folder.path}: none of its agents could be started; see {folder.log_file}")
    return participants, not_started
