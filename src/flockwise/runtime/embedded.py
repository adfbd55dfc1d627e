"""An agent inside a user's own program.

    import flockwise.runtime

    async with flockwise.runtime.RealAgent("agents/alice") as agent:
        labels = agent.predict(features)
        agent.add_data(more_features, more_labels)

The agent runs in the program's own event loop for as long as the block lasts, and goes on where it was the
next time. Nobody else can run it meanwhile.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.deploy.folder import HostFolder
from flockwise.errors import NetworkError
from flockwise.runtime.host import Host
from flockwise.runtime.metrics import AgentStatus
from flockwise.runtime.participant import Participant
from flockwise.runtime.run import open_host


class RealAgent:
    """The agent of one folder. Its own model uses its data freely, and is never sent."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._opened = AsyncExitStack()
        self._host: Host | None = None

    async def __aenter__(self) -> Self:
        folder = HostFolder.read(self._folder)
        if len(folder.agents) != 1:
            raise NetworkError(f"{self._folder}: is the folder of a gateway; name that of one agent")
        async with AsyncExitStack() as opened:
            host = await opened.enter_async_context(open_host(folder))
            self._host = await opened.enter_async_context(host)
            self._opened = opened.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._host = None
        await self._opened.aclose()

    @property
    def name(self) -> str:
        return self._participant.node.name

    @property
    def model(self) -> NDArray[np.float64]:
        """The agent's own model, for its owner alone: do not send or publish it, nor what it predicts.

        Made of its data without noise and of what its neighbors released (flockwise.release.finish), anew at
        every use. Without privacy it is the model that the agent sends.
        """
        return self._participant.own_model()

    @property
    def released(self) -> NDArray[np.float64]:
        """The model that its neighbors know: the last that it sent, or the public start."""
        return np.array(self._participant.node.agent.model, np.float64)

    @property
    def guarantee(self) -> str:
        """The guarantee for its samples, in full and in plain words."""
        return self._participant.guarantee

    @property
    def status(self) -> AgentStatus:
        """As `flockwise network status` shows it."""
        return self._running.take_status().agents[0]

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """Labels or values by the own model, one per row."""
        return self._participant.predict(np.asarray(features, np.float64))

    def add_data(self, features: ArrayLike, targets: ArrayLike) -> None:
        """More samples of this agent: on disk when this returns. Its own model uses them from now on.

        By default so does its next release, and they never add to its budget. With `growth = "batches"` in
        its agent.toml they have a budget of their own, and are released from when all earlier samples have
        spent theirs. That samples came, how many and when, is public either way.
        """
        self._participant.add_data(np.asarray(features, np.float64), np.asarray(targets, np.float64))
        self._running.look_at(self.name)

    @property
    def _running(self) -> Host:
        if self._host is None:
            raise NetworkError(
                f"{self._folder}: the agent is not running; use it inside its `async with` block"
            )
        return self._host

    @property
    def _participant(self) -> Participant:
        return self._running.participants[0]
