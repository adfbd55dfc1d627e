"""Many agents in one process: one event loop, one connection to the network, each agent on its own clock.

A host ticks its nodes when they ask for it, puts newer rosters into effect, and writes a status file. It
runs until it is told to stop. An agent that fails is taken out, and the others go on.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import logging
import os
import signal
import time as wall
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from flockwise.deploy.roster import SignedNeighborhood
from flockwise.errors import NetworkError
from flockwise.files import write_even_if_full
from flockwise.net.time import SECOND, RealTime
from flockwise.net.transport import Place, Switchboard, TrafficCounts
from flockwise.runtime.logs import EventLog
from flockwise.runtime.metrics import AgentStatus, HostStatus
from flockwise.runtime.participant import Participant
from flockwise.runtime.phases import Phase, check_change, phase_of
from flockwise.runtime.watchdog import say_alive, say_ready

# So many nodes in a row; then messages that have arrived have their turn.
TICKS_AT_A_STRETCH: Final = 8
STATUS_PERIOD: Final = 1.0  # seconds
ROSTER_PERIOD: Final = 5.0  # seconds
# An agent whose disk failed is opened again after so long: there may be room by then.
REOPEN_AFTER: Final = 30 * SECOND
DISK_FAILED: Final = ("ledger", "store")
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

OfferedRoster: TypeAlias = SignedNeighborhood | NetworkError


class HostNetwork(Switchboard, Protocol):
    """A switchboard that reaches other hosts (flockwise.net.zenoh.link)."""

    traffic: TrafficCounts
    strangers: int

    @property
    def door(self) -> str: ...

    def dropped(self, agent: str) -> Counter[str]: ...

    def learn(self, places: Iterable[Place]) -> None: ...

    def listen_at(self, address: str) -> None: ...

    async def refresh(self) -> bool: ...

    async def close(self) -> None: ...


class Host:
    """Runs its agents; `async with` starts and stops them, `run` stays until a signal comes.

    status_file: written whole every second.
    newer_rosters: offers rosters that may be newer, for some or all agents, and errors in place of those that
        cannot be used; called in a thread of its own.
    refused: how many connections were refused before they had a name.
    expires_at: when the host's certificate ends, in seconds since 1970.
    listens_where_it_is_reached: whether it follows its rosters to another address.
    reopen: opens an agent again by its name, after its disk has failed.
    not_started: why agents of this host could not be opened, by their names.
    """

    def __init__(
        self,
        network: str,
        name: str,
        participants: Iterable[Participant],
        link: HostNetwork,
        *,
        log: EventLog,
        status_file: Path,
        newer_rosters: Callable[[], Mapping[str, OfferedRoster]] = dict,
        refused: Callable[[], int] = lambda: 0,
        expires_at: Callable[[], float | None] = lambda: None,
        listens_where_it_is_reached: bool = False,
        reopen: Callable[[str], Participant] | None = None,
        not_started: Mapping[str, str] | None = None,
    ) -> None:
        self.network = network
        self.name = name
        self.link = link
        self.log = log
        self.status: HostStatus | None = None
        self._agents = {one.node.name: HostedAgent(self, one) for one in participants}
        self._status_file = status_file
        self._newer_rosters = newer_rosters
        self._refused = refused
        self._expires_at = expires_at
        self._listens_where_it_is_reached = listens_where_it_is_reached
        self._reopen = reopen
        self._not_started = [
            AgentStatus(agent, phase=Phase.FAILED, obstacle=why) for agent, why in (not_started or {}).items()
        ]
        self._time = RealTime()
        self._agenda: list[tuple[int, str]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_time: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_running = False
        self._stopping = asyncio.Event()

    @property
    def participants(self) -> list[Participant]:
        return [agent.participant for agent in self._agents.values()]

    async def run(self) -> None:
        """Until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            async with self:
                # All objects made until now will stay: do not search them for garbage again and again.
                gc.collect()
                gc.freeze()
                say_ready()
                await self._stopping.wait()
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    async def __aenter__(self) -> Host:
        self.log("start", host=self.name, network=self.network, agents=len(self._agents), pid=os.getpid())
        self._is_running = True
        now = self._time.now()
        try:
            for agent in self._agents.values():
                self.expect(agent, agent.guarded(agent.node.start, now))
            for agent in self._present():
                self._attach(agent)
            await self.link.refresh()
        except BaseException:
            await self.__aexit__()
            raise
        self.log("listening", host=self.name)
        self._tasks = [asyncio.create_task(self._watch_status()), asyncio.create_task(self._watch_link())]
        return self

    async def __aexit__(self, *_: object) -> None:
        """First make nothing new, then send and receive nothing, then write and close everything."""
        self._is_running = False
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self.link.close()
        for agent in self._present():
            agent.is_attached = False
            self._close_agent(agent)
        if self._tasks:  # a host that could not start has no state to show
            self._write_status(ended=True)
        self.log("stop", host=self.name)

    async def apply(self, rosters: Mapping[str, OfferedRoster]) -> bool:
        """Put newer rosters into effect, all at once, and settings whose time has come.

        Returns whether anything is new.
        """
        names = [name for name, agent in list(self._agents.items()) if self._renew(agent, rosters.get(name))]
        if not names:
            return False
        changed = [self._agents[name] for name in names]
        for agent in changed:
            if not agent.is_closed:
                self._attach(agent)
        place = changed[0].participant.neighborhood.place
        if self._listens_where_it_is_reached and place.host == self.name:
            self.link.listen_at(place.address)
        await self.link.refresh()
        version = max(agent.participant.neighborhood.version for agent in changed)
        self.log("roster", agents=len(changed), version=version)
        return True

    def take_status(self) -> HostStatus:
        """The status now."""
        now = self._time.now()
        self.status = HostStatus(
            self.network,
            self.name,
            os.getpid(),
            wall.time(),
            (
                *(agent.status(now, self.link.dropped(agent.name)) for agent in self._agents.values()),
                *self._not_started,
            ),
            asdict(self.link.traffic),
            self._refused(),
            self.link.strangers,
            self._expires_at(),
            self.link.door,
        )
        return self.status

    def expect(self, agent: HostedAgent, wake: int | None) -> None:
        """Tick this node at `wake`, or earlier if it already asked for that."""
        if wake is None or not self._is_running or (agent.wake is not None and agent.wake <= wake):
            return
        agent.wake = wake
        heapq.heappush(self._agenda, (wake, agent.name))
        self._set_alarm()

    def look_at(self, name: str) -> None:
        """Call it after the program has changed something of an agent, such as its data."""
        agent = self._agents[name]
        self.expect(agent, agent.guarded(agent.node.next_wake))

    def give_up(self, agent: HostedAgent, error: Exception) -> None:
        """Take out an agent after an error that no node should make."""
        self.log.failure("agent failed", error, agent=agent.name)
        self._take_out(agent, Phase.FAILED)

    def _present(self) -> list[HostedAgent]:
        return [agent for agent in self._agents.values() if not agent.is_closed]

    def _attach(self, agent: HostedAgent) -> None:
        neighbors = agent.participant.neighborhood.neighbors
        self.link.learn(neighbors)
        self.link.attach(agent.name, agent, [link.name for link in neighbors])
        agent.is_attached = True

    def _close_agent(self, agent: HostedAgent) -> None:
        if agent.is_attached:
            self.link.detach(agent.name)
        agent.is_attached = False
        for step in (agent.node.stop, agent.epsilon_spent, agent.close):
            try:
                step()
            except Exception as error:  # go on: the others must be closed, too
                self.log.failure("agent not closed", error, agent=agent.name)

    def _take_out(self, agent: HostedAgent, phase: Phase) -> None:
        """For good. The others go on."""
        check_change(agent.name, agent.phase, phase)
        agent.obstacle, agent.phase = phase.value, phase
        if not agent.is_closed:
            self._close_agent(agent)

    def _renew(self, agent: HostedAgent, offered: OfferedRoster | None) -> bool:
        current, now = agent.participant.neighborhood, wall.time()
        try:
            if isinstance(offered, NetworkError):
                raise offered
            accepted = current.at(now).successor((offered or current).at(now))
        except NetworkError as error:
            self.log.failure("roster refused", error, agent=agent.name)
            return False
        if accepted == current or agent.is_closed:
            return False
        if accepted.settings_version != current.settings_version:
            return self._begin_anew(agent)
        agent.participant.neighborhood = accepted
        agent.guarded(agent.node.set_neighbors, accepted.keys(), accepted.version)
        if accepted.is_removed and not agent.is_closed:
            self.log("agent removed", logging.WARNING, agent=agent.name)
            self._take_out(agent, Phase.REMOVED)
        return True

    def _begin_anew(self, agent: HostedAgent) -> bool:
        """Other public settings are in force: go on with them from where the agent is. Whether it does."""
        if self._reopen is None:
            return False
        self._close_agent(agent)
        try:
            self._open(agent.name)
        except Exception as error:  # whatever it is, the other agents go on
            self.give_up(agent, error)
        return True

    def _set_alarm(self) -> None:
        if not self._agenda or not self._is_running:
            return
        due = self._agenda[0][0]
        if self._alarm is not None and self._alarm_time is not None and self._alarm_time <= due:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        delay = max(0, due - self._time.now()) / SECOND
        self._alarm_time = due
        self._alarm = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._alarm = self._alarm_time = None
        for _ in range(TICKS_AT_A_STRETCH):
            now = self._time.now()
            if not self._agenda or self._agenda[0][0] > now:
                break
            wake, name = heapq.heappop(self._agenda)
            agent = self._agents[name]
            # Skip it if the agent has asked for an earlier time since.
            if agent.wake != wake or agent.is_closed:
                continue
            agent.wake = None
            self.expect(agent, agent.guarded(agent.node.tick, now))
            agent.guarded(agent.note_phase, now)
            agent.report_silence()
        self._set_alarm()

    async def _watch_status(self) -> None:
        while True:
            self._write_status()
            say_alive()
            await asyncio.sleep(STATUS_PERIOD)

    def _write_status(self, *, ended: bool = False) -> None:
        try:
            status = replace(self.take_status(), ended=ended)
            write_even_if_full(self._status_file, msgspec.json.encode(status).decode())
        except Exception as error:  # learning goes on, with a full disk or whatever it is
            self.log.failure("status not written", error)

    async def _watch_link(self) -> None:
        """Look for newer rosters, and try again to open a connection that failed with the last ones.

        Whatever fails may work the next time, and keeps nothing else from working now.
        """

        async def apply_newer() -> None:
            await self.apply(await asyncio.to_thread(self._newer_rosters))

        while True:
            await asyncio.sleep(ROSTER_PERIOD)
            for what, step in (
                ("roster not in effect", apply_newer),
                ("agent not opened again", self._open_again),
                ("link not opened", self.link.refresh),
            ):
                try:
                    await step()
                except Exception as error:
                    self.log.failure(what, error)

    async def _open_again(self) -> None:
        """The agents whose disk failed a while ago. One that still cannot be opened is tried again later."""
        now = self._time.now()
        for old in list(self._agents.values()):
            if self._reopen is None or not old.may_be_opened_again(now):
                continue
            if not old.is_closed:
                self._close_agent(old)
            try:
                new = self._open(old.name)
            except Exception as error:  # whatever it is, the other agents go on
                old.silent_since = now
                self.log.failure("agent not opened again", error, agent=old.name)
                continue
            if not new.is_closed:
                self._attach(new)

    def _open(self, name: str) -> HostedAgent:
        """From its disk, in place of the one that was closed."""
        assert self._reopen is not None
        new = self._agents[name] = HostedAgent(self, self._reopen(name))
        self.expect(new, new.guarded(new.node.start, self._time.now()))
        self.log("agent opened again", agent=name)
        return new

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def _on_signal(self, number: signal.Signals) -> None:
        self.log("signal", signal=number.name)
        self.stop()


class HostedAgent:
    """Runs one agent of a host, and contains its errors."""

    def __init__(self, host: Host, participant: Participant) -> None:
        self.participant = participant
        self.node = participant.node
        self.name: str = participant.node.name
        self.wake: int | None = None
        self.is_attached = False
        self.is_closed = False
        self.obstacle: str | None = None
        self.phase = Phase.STARTING
        self.silent_since: int | None = None
        self.errors = 0
        self._host = host
        self._reported: str | None = None
        self._spent: tuple[int, float] | None = None

    def on_published(self, sender: str, data: bytes) -> None:
        self._hear(self.node.on_published, sender, data)

    def on_greeting(self, sender: str, data: bytes) -> None:
        self._hear(self.node.on_greeting, sender, data)

    def on_presence(self, neighbor: str, is_up: bool) -> None:
        self._hear(self.node.on_presence, neighbor, is_up)

    def guarded(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The result of the call; None if it failed, or if the agent is closed."""
        if self.is_closed:
            return None
        try:
            return call(*arguments)
        except Exception as error:  # whatever it is, the other agents go on
            self._host.give_up(self, error)
            return None

    def _hear(self, call: Callable[..., None], *arguments: Any) -> None:
        """A message must never take an agent out, whatever error it causes."""
        if self.is_closed:
            return
        try:
            call(*arguments)
        except Exception as error:
            self.errors += 1
            self._host.log.failure("message failed", error, agent=self.name)
        self._host.expect(self, self.node.next_wake())

    def close(self) -> None:
        self.is_closed = True
        self.participant.close()

    def report_silence(self) -> None:
        """Log once why the agent is silent."""
        if self.node.obstacle != self._reported:
            self._reported = self.node.obstacle
            self._host.log("agent silent", logging.WARNING, agent=self.name, obstacle=self.node.obstacle)

    def note_phase(self, now: int) -> None:
        phase = phase_of(self.node, now)
        check_change(self.name, self.phase, phase)
        self.phase = phase
        if phase is Phase.SILENT and self.silent_since is None:
            self.silent_since = now

    def may_be_opened_again(self, now: int) -> bool:
        """Whether its disk failed a while ago. An old copy of a ledger stays one."""
        since = self.silent_since
        return since is not None and self.node.obstacle in DISK_FAILED and now >= since + REOPEN_AFTER

    def status(self, now: int, dropped_before: Counter[str]) -> AgentStatus:
        self.guarded(self.note_phase, now)
        node, budget = self.node, self.participant.budget
        released = node.last_release_time
        dropped = Counter[str](node.intake.dropped) + dropped_before
        dropped += Counter(error=self.errors)
        rate = self.participant.neighborhood.tick_rate
        return AgentStatus(
            self.name,
            node.agent.updates,
            node.releases,
            self.epsilon_spent(),
            None if budget is None else budget.epsilon,
            0 if self.is_closed else len(node.neighbors_up),
            dict(dropped),
            None if released is None else (now - released) / SECOND,
            self.obstacle or node.obstacle,
            node.role.rounds,
            node.role.is_over,
            round(node.skipped_time / SECOND * rate),
            self.phase,
            [] if self.is_closed else node.role.awaited(now),
            node.late_by / SECOND,
            node.flaps,
        )

    def epsilon_spent(self) -> float | None:
        """Computed again only when something was spent; after closing, the last value."""
        gates = None if self.is_closed else self.participant.gates
        if gates is not None and (self._spent is None or self._spent[0] != gates.consumed):
            self._spent = (gates.consumed, gates.epsilon_spent)
        return None if self._spent is None else self._spent[1]
