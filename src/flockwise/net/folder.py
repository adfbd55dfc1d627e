"""An agent's folder: all that a device needs to run it, and nothing of other agents' data.

    agent.toml        its name, its samples' file, its budget
    data.npz          its samples: features and targets
    roster            its neighbors with addresses, keys and weights, signed by the authority
    identity/         its keys and certificate, and the authority's certificate
    state/            what it has sent, received and spent (flockwise.net.store, flockwise.privacy.ledger)

A gateway runs many agents in one process. Its folder has a `host.toml` that names theirs, and an identity
of its own; the agents' keys stay in their own folders.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import numpy as np

from flockwise.data.samples import Samples
from flockwise.errors import MissingExtra, NetworkError
from flockwise.net.identity import SIGNING_FOLDER, Identity, Trust, read_signing_key
from flockwise.net.keyfiles import read_file, write_file
from flockwise.net.roster import SignedNeighborhood, check_belongs, read_neighborhood
from flockwise.net.signing import SigningKey
from flockwise.privacy.budget import Budget
from flockwise.privacy.plan import Plan

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

AGENT_FILE: Final = "agent.toml"
HOST_FILE: Final = "host.toml"
DATA_FILE: Final = "data.npz"
ROSTER_FILE: Final = "roster"
IDENTITY_FOLDER: Final = "identity"
STATE_FOLDER: Final = "state"
STATUS_FILE: Final = "status.json"
LOG_FILE: Final = "events.log"

Positive = Annotated[float, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]


class FolderSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a TOML file; a key that it does not know is an error."""


class NoBudget(FolderSection, frozen=True, tag_field="kind", tag="none"):
    """Models are sent as they are, and every message says so."""


class OwnBudget(FolderSection, frozen=True, tag_field="kind", tag="dp"):
    """An agent's budget, and how many releases it is for.

    clip: bound on one sample's gradient, where the agent releases gradients.
    growth: which budget pays for samples that are added later (flockwise.net.releases). It never changes.
    """

    epsilon: Positive
    delta: Annotated[float, msgspec.Meta(ge=0, lt=1)]
    updates: Annotated[int, msgspec.Meta(ge=1)]
    clip: Positive | None = None
    mechanism: str = "gaussian"
    growth: Literal["one_budget", "batches"] = "one_budget"

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, self.delta)

    def plan(self, *, on_grid: bool = True) -> Plan:
        """Its releases all cost the same, whatever the number of samples."""
        return Plan.fitting(self.budget, self.mechanism, self.updates, on_grid=on_grid)


class ProcessFile(FolderSection, frozen=True, kw_only=True):
    """What agent.toml and host.toml share: the name, and settings of the process.

    listen: for a device whose own address is not the one that others dial.
    """

    name: str
    listen: str | None = None
    metrics_port: Port | None = None


class AgentFile(ProcessFile, frozen=True, kw_only=True):
    """agent.toml."""

    privacy: NoBudget | OwnBudget
    data: str = DATA_FILE


class HostFile(ProcessFile, frozen=True, kw_only=True):
    """host.toml of a gateway: the agents that it runs, by the names of their folders in `agents_folder`."""

    agents: list[str]
    agents_folder: str = "../../agents"


@dataclass(frozen=True)
class AgentFolder:
    """One agent's folder, read and checked."""

    path: Path
    settings: AgentFile
    neighborhood: SignedNeighborhood

    @classmethod
    def read(cls, path: Path) -> AgentFolder:
        settings = read_toml(path / AGENT_FILE, AgentFile)
        return cls(path, settings, read_roster(path, settings.name))

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def state(self) -> Path:
        return self.path / STATE_FOLDER

    def signing_key(self) -> SigningKey:
        return read_signing_key(self.path / IDENTITY_FOLDER / SIGNING_FOLDER / f"{self.name}.key")

    def samples(self) -> Samples:
        return read_samples(self.path / self.settings.data)


@dataclass(frozen=True)
class HostFolder:
    """The folder of one process: an agent's own, or a gateway's with many agents."""

    path: Path
    identity: Identity
    agents: Sequence[AgentFolder]
    listen: str
    metrics_port: int | None
    # When the rosters that were read last were written.
    _seen: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> HostFolder:
        if (path / HOST_FILE).is_file():
            settings = read_toml(path / HOST_FILE, HostFile)
            agents = [AgentFolder.read(path / settings.agents_folder / name) for name in settings.agents]
            signing = {agent.name: agent.signing_key() for agent in agents}
        elif (path / AGENT_FILE).is_file():
            agents, signing = [AgentFolder.read(path)], None
            settings = agents[0].settings
        else:
            raise NetworkError(
                f"{path}: neither {AGENT_FILE} nor {HOST_FILE} is in it; name an agent's folder"
            )
        if not agents:
            raise NetworkError(f"{path}: a host without agents has nothing to do; name some in {HOST_FILE}")
        identity = Identity.read(path / IDENTITY_FOLDER, signing)
        for agent in agents:
            check_belongs(agent.neighborhood, identity)
        address = agents[0].neighborhood.place.address
        listen = address if settings.listen is None else settings.listen
        return cls(path, identity, agents, listen, settings.metrics_port)

    @property
    def name(self) -> str:
        return self.identity.subject.host

    @property
    def network(self) -> str:
        return self.identity.trust.network

    @property
    def status_file(self) -> Path:
        return self.path / STATE_FOLDER / STATUS_FILE

    @property
    def log_file(self) -> Path:
        return self.path / STATE_FOLDER / LOG_FILE

    def rosters(self) -> dict[str, SignedNeighborhood]:
        """The rosters that were put into the agents' folders since the last look. They may be newer."""
        changed = {}
        for agent in self.agents:
            written = (agent.path / ROSTER_FILE).stat().st_mtime_ns
            if self._seen.get(agent.name) != written:
                changed[agent.name] = read_roster(agent.path, agent.name)
                self._seen[agent.name] = written
        return changed


def read_roster(folder: Path, agent: str) -> SignedNeighborhood:
    """The signed slice in an agent's folder."""
    return read_neighborhood(read_file(folder / ROSTER_FILE), agent, Trust.read(folder / IDENTITY_FOLDER))


def read_samples(path: Path) -> Samples:
    """The arrays `features` and `targets` of an .npz file; errors name shapes, never values."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            features, targets = (np.asarray(arrays[name], np.float64) for name in ("features", "targets"))
    except (OSError, ValueError, KeyError) as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else type(error).__name__
        raise NetworkError(
            f"{path}: cannot be read ({what}); it must hold the arrays 'features' and 'targets' of numbers"
        ) from None
    if features.ndim != 2 or targets.shape != features.shape[:1]:
        raise NetworkError(
            f"{path}: features must have a row per target, got shapes {features.shape} and {targets.shape}"
        )
    return Samples(features, targets)


def write_samples(path: Path, samples: Samples) -> None:
    """Readable by their owner alone, and whole or not at all."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **samples._asdict())
    write_file(path, buffer.getvalue())


SomeSection = TypeVar("SomeSection", bound=FolderSection)


def read_toml(path: Path, kind: type[SomeSection]) -> SomeSection:
    """A file of this kind; errors name the file and the place in it."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise NetworkError(f"{path}: there is no such file") from None
    except OSError as error:
        raise NetworkError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise NetworkError(f"{path}: {error}") from None
