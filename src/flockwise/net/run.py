"""Run a folder's agents until a signal comes: what `flockwise agent run` does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from flockwise.errors import FlockwiseError, NetworkError
from flockwise.net.durable import open_participant
from flockwise.net.folder import IDENTITY_FOLDER, HostFolder
from flockwise.net.host import Host
from flockwise.net.identity import TlsFiles
from flockwise.net.logs import EventLog, place_of
from flockwise.net.metrics import MetricsServer
from flockwise.net.participant import Participant
from flockwise.net.roster import Neighborhood
from flockwise.net.settings import NetworkSettings
from flockwise.net.signing import Verifier
from flockwise.net.time import RealTime
from flockwise.net.wire import greeting_limit
from flockwise.net.zenoh_link import ZenohLink
from flockwise.net.zenoh_log import RefusedConnections


def run_folder(path: Path) -> None:
    """In the foreground, until SIGTERM or Ctrl-C.

    What an error that nobody expected says may have been computed from data, and what a process says when
    it ends is written down: so it says where that was, and no more.
    """
    try:
        asyncio.run(_run(path))
    except (FlockwiseError, OSError):
        raise
    except Exception as error:
        raise NetworkError(
            f"{path}: ended by an error that should not happen, {type(error).__name__} at {place_of(error)}"
        ) from None


async def _run(path: Path) -> None:
    async with open_host(HostFolder.read(path), owns_process=True) as host:
        await host.run()


@asynccontextmanager
async def open_host(folder: HostFolder, *, owns_process: bool = False) -> AsyncIterator[Host]:
    """The host of a folder, not started yet, with its log and its metrics.

    owns_process: whether the process runs agents and nothing else. Then connections that were turned away
    are counted, for which zenoh's log is read from the standard output; and what goes wrong in the loop
    goes to the log alone. A program that embeds an agent keeps both for itself.
    """
    with ExitStack() as opened:
        log = EventLog.to_file(folder.log_file)
        opened.callback(log.close)
        refused = None
        if owns_process:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: _note(log, context))
            refused = RefusedConnections(
                asyncio.get_running_loop(), lambda why: log("connection refused", text=why)
            )
            opened.callback(refused.close)
        link = ZenohLink(
            folder.network,
            folder.name,
            folder.listen,
            TlsFiles.of(folder.path / IDENTITY_FOLDER),
            max_bytes=_longest_message(folder.agents[0].neighborhood),
            note=lambda event, about: log(event, **about),
        )
        host = Host(
            folder.network,
            folder.name,
            _participants(folder, link, log),
            link,
            log=log,
            status_file=folder.status_file,
            newer_rosters=folder.rosters,
            refused=lambda: 0 if refused is None else refused.count,
        )
        if folder.metrics_port is not None:
            server = MetricsServer(lambda: host.status, folder.metrics_port)
            opened.callback(server.close)
            log("metrics", port=server.port)
        yield host


def _note(log: EventLog, context: Mapping[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.failure("unexpected error", error)


def _longest_message(neighborhood: Neighborhood) -> int:
    dimension = neighborhood.dimension
    return greeting_limit(max(dimension, NetworkSettings.of(neighborhood).largest_relay(dimension)))


def _participants(folder: HostFolder, link: ZenohLink, log: EventLog) -> list[Participant]:
    """Those that can run: on a gateway, one that cannot is no reason to keep the others waiting."""
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
