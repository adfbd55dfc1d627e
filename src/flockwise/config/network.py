"""The [network] section: how the agents of a configuration run as real peers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from flockwise.config.fields import Name, Positive, Section


class Network(Section):
    """Read by `flockwise network init` alone.

    tick_rate: updates a second of each agent, in the mean.
    listen: where the agents are reached: a number or a name, the same for all of them.
    port: of the first agent; the others follow. Left out, ports that are free now are taken.
    round_timeout: seconds without a sign of life after which a conversation goes on without a neighbor.
    """

    name: Name = "flockwise"
    tick_rate: Positive = 1.0
    listen: Name = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535, description="a whole number from 1 to 65535")] | None = None
    round_timeout: Positive = 60.0
