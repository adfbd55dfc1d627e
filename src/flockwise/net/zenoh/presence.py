"""Which agents of other hosts are up.

Presence is kept as a state and not handed on as a queue of events: in a queue that is full, the end of a
neighbor could get lost, and the neighbor would count as up for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Final

from flockwise.net.zenoh.access import LEASE_MS

# A host has one session, and for a while the one before it. No more are remembered.
MOST_SESSIONS: Final = 4
ON_THE_WAY: Final = 2 * LEASE_MS / 1000  # seconds
LONGEST_SILENCE: Final = 90.0  # seconds: an agent that is up greets its neighbors three times in it


class Presence:
    """An agent is up while a token of its host says so, or while it is heard.

    An agent that is heard is up, even if zenoh says that it is down. zenoh does so if a host opened a new
    session while others could not be reached. A message that was on its way when the agent went down does
    not count, and none counts for longer than the link to its host lasts.

    changed: called in the loop with an agent and whether it is up now.
    """

    def __init__(self, changed: Callable[[str, bool], None]) -> None:
        self._changed = changed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._tokens: dict[str, dict[str, None]] = {}  # by agent, oldest first
        self._news: set[str] = set()
        self._up: set[str] = set()
        # By the loop's clock: when agents went down, and when those without a token were last heard.
        self._gone_at: dict[str, float] = {}
        self._heard_at: dict[str, float] = {}

    def __contains__(self, agent: str) -> bool:
        return agent in self._up

    def begin(self) -> None:
        """In the loop, before anything is noted."""
        self._loop = asyncio.get_running_loop()

    def note(self, agent: str, token: str, is_up: bool) -> None:
        """Called in any thread, for every token that comes or goes."""
        with self._lock:
            tokens = self._tokens.setdefault(agent, {})
            if is_up:
                tokens[token] = None
            else:
                tokens.pop(token, None)
            if len(tokens) > MOST_SESSIONS:
                del tokens[next(iter(tokens))]
            if not tokens:
                del self._tokens[agent]
            is_first = not self._news
            self._news.add(agent)
        if is_first and self._loop is not None:
            self._loop.call_soon_threadsafe(self._look)

    def heard(self, agent: str) -> None:
        """A message of this agent has come."""
        if agent in self._up and agent not in self._heard_at:
            return
        now = self._now()
        if now > self._gone_at.get(agent, 0.0) + ON_THE_WAY:
            self._heard_at[agent] = now
            self._settle(agent)

    def forget_the_silent(self) -> None:
        now = self._now()
        self.forget(agent for agent, at in self._heard_at.items() if now > at + LONGEST_SILENCE)

    def forget(self, agents: Iterable[str]) -> None:
        """That they were heard: they are up only if a token says so."""
        for agent in list(agents):
            if self._heard_at.pop(agent, None) is not None:
                self._settle(agent)

    def clear(self) -> None:
        """Nobody can be reached any more."""
        with self._lock:
            self._tokens.clear()
        self._heard_at.clear()
        for agent in sorted(self._up):
            self._settle(agent)

    def _look(self) -> None:
        with self._lock:
            news, self._news = self._news, set()
        for agent in sorted(news):
            self._settle(agent)

    def _settle(self, agent: str) -> None:
        with self._lock:
            has_token = agent in self._tokens
        if has_token:
            self._heard_at.pop(agent, None)
        is_up = has_token or agent in self._heard_at
        if is_up == (agent in self._up):
            return
        if is_up:
            self._up.add(agent)
        else:
            self._up.discard(agent)
            self._gone_at[agent] = self._now()
        self._changed(agent, is_up)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
