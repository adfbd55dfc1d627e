"""The whole network as its authority keeps it: who is in it, where, and who is whose neighbor.

Every slice is cut from it. An agent keeps its number for as long as the network lasts, so one that was
removed stays in the list; its name and its number are never given again.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from flockwise.deploy.folder import ROSTER_FILE, is_here
from flockwise.deploy.identity import Authority
from flockwise.deploy.keyfiles import write_file
from flockwise.deploy.roster import Later, SignedNeighborhood, neighborhoods, sign_neighborhood
from flockwise.deploy.settings import NetworkSettings
from flockwise.errors import MissingExtra, NetworkError
from flockwise.net.transport import Place

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

AUTHORITY_FOLDER: Final = "authority"
AGENTS_FOLDER: Final = "agents"
HOSTS_FOLDER: Final = "hosts"
DEVICES_FOLDER: Final = "devices"
PLAN_FILE: Final = "network.json"


Edge: TypeAlias = tuple[int, int, float]


class Change(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """New public settings and other edges from a time on, in seconds since 1970; an edge of weight 0 ends."""

    starts_at: float
    settings_version: int
    settings: dict[str, Any]
    edges: list[Edge]


class NetworkPlan(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Everything but the keys.

    addresses: every agent's own, for when no gateway runs it.
    removed: agents that were thrown out.
    change: what will be in force later, if anything.
    """

    network: str
    version: int
    dimension: int
    tick_rate: float
    settings: dict[str, Any]
    places: list[Place]
    addresses: list[str]
    edges: list[Edge]
    removed: list[str] = []
    settings_version: int = 1
    change: Change | None = None

    @property
    def names(self) -> list[str]:
        """Of all agents that ever were in the network, in the order of their numbers."""
        return [place.name for place in self.places]

    @property
    def members(self) -> list[str]:
        """The agents that are in it now."""
        return [name for name in self.names if name not in self.removed]

    @property
    def gateways(self) -> list[str]:
        return sorted({place.host for place in self.places}.difference(self.names))

    @property
    def lonely(self) -> set[str]:
        """The agents that are in it and have no neighbor."""
        linked = {self.names[end] for edge in self.edges for end in edge[:2]}
        return set(self.members) - linked

    @property
    def network_settings(self) -> NetworkSettings:
        return NetworkSettings.from_json(self.settings, f"network {self.network!r}")

    def number(self, name: str) -> int:
        """Of an agent that is in the network."""
        if name not in self.names:
            raise NetworkError(f"agent {name!r} is not in the network; the names are in `network status`")
        if name in self.removed:
            raise NetworkError(f"agent {name!r} was removed from the network")
        return self.names.index(name)

    def changed(self, **fields: Any) -> NetworkPlan:
        """The next version."""
        return msgspec.structs.replace(self, version=self.version + 1, **fields)

    def at(self, now: float) -> NetworkPlan:
        """The plan that is in force at a time, in seconds since 1970."""
        change = self.change
        if change is None or now < change.starts_at:
            return self
        weights = {_pair(edge): edge[2] for edge in [*self.edges, *change.edges]}
        return msgspec.structs.replace(
            self,
            settings=change.settings,
            settings_version=change.settings_version,
            edges=[(*pair, weight) for pair, weight in weights.items() if weight],
            change=None,
        )

    def slices(self, authority: Authority) -> dict[str, bytes]:
        """Everyone's signed slice; that of an agent that was removed says so, and names nobody."""
        cut = self._cut()
        if self.change is not None:
            starts_at = self.change.starts_at
            after = self.at(starts_at)._cut()
            cut = [
                replace(now, later=Later(starts_at, then.settings_version, then.neighbors, then.settings))
                for now, then in zip(cut, after, strict=True)
            ]
        return {own.agent: sign_neighborhood(own, authority) for own in cut}

    def _cut(self) -> list[SignedNeighborhood]:
        from flockwise.graph import SimilarityGraph  # with SciPy, and only for an authority

        pairs = np.array([edge[:2] for edge in self.edges], np.int64).reshape(-1, 2)
        weights = np.array([edge[2] for edge in self.edges])
        return neighborhoods(
            self.network,
            self.version,
            SimilarityGraph.from_edges(len(self.places), pairs, weights),
            self.places,
            dimension=self.dimension,
            tick_rate=self.tick_rate,
            settings=self.settings,
            settings_version=self.settings_version,
            removed=self.removed,
        )

    def write(self, folder: Path, authority: Authority) -> None:
        """The slices, then the plan: a change that was interrupted is made again, by the same command.

        The new version is taken first, so there are never two different slices of one version. Slices for
        devices elsewhere are put into `devices/NAME`, to be carried there.
        """
        slices = self.slices(authority)
        if (folder / AUTHORITY_FOLDER / PLAN_FILE).exists():
            msgspec.structs.replace(NetworkPlan.read(folder), version=self.version)._save(folder)
        for name, signed in slices.items():
            home = folder / AGENTS_FOLDER / name
            if not is_here(home):
                home = folder / DEVICES_FOLDER / name
            write_file(home / ROSTER_FILE, signed)
        self._save(folder)

    def _save(self, folder: Path) -> None:
        text = msgspec.json.format(msgspec.json.encode(self), indent=1)
        write_file(folder / AUTHORITY_FOLDER / PLAN_FILE, text + b"\n")

    @classmethod
    def read(cls, folder: Path) -> NetworkPlan:
        """As it is in force now."""
        path = folder / AUTHORITY_FOLDER / PLAN_FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls).at(time.time())
        except FileNotFoundError:
            raise NetworkError(
                f"{folder}: there is no network in it (no {AUTHORITY_FOLDER}/{PLAN_FILE}); make one: "
                f"flockwise network init CONFIG.toml --out {folder}"
            ) from None
        except (OSError, ValueError) as error:
            raise NetworkError(f"{path}: cannot be used: {error}") from None


def _pair(edge: Edge) -> tuple[int, int]:
    """The agents of an edge, the one with the lower number first."""
    return min(edge[:2]), max(edge[:2])
