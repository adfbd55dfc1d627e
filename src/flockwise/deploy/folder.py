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
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeVar
from zipfile import BadZipFile

import numpy as np

from flockwise.data.samples import Samples
from flockwise.deploy.credentials import SIGNING_FOLDER, Credentials, Trust, read_signing_key
from flockwise.deploy.keyfiles import read_file, write_file
from flockwise.deploy.roster import SignedNeighborhood, check_belongs, read_neighborhood
from flockwise.errors import FlockwiseError, MissingExtra, NetworkError
from flockwise.net.signing import SigningKey
from flockwise.net.wire import PrivacyLabel
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import USUAL_MECHANISM
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
# What NumPy raises for a file that is missing, cut short, damaged, or not an .npz file.
UNREADABLE: Final = (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error)
GONE: Final = -1  # in place of the time at which a file was written
WAITING_FOLDER: Final = "keys"  # in a folder that waits for the authority to answer its request
MOVED_FILE: Final = "moved.json"  # in a folder whose agent has moved elsewhere (flockwise.runtime.moving)

Positive = Annotated[float, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]


class FolderSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a TOML file; a key that it does not know is an error."""


class NoBudget(FolderSection, frozen=True, tag_field="kind", tag="none"):
    """Models are sent as they are, and every message says so."""

    label: ClassVar[PrivacyLabel] = "none"

    @property
    def own_budget(self) -> OwnBudget | None:
        return None


class OwnBudget(FolderSection, frozen=True, tag_field="kind", tag="dp"):
    """An agent's budget, and how many releases it is for.

    clip: bound on one sample's gradient, where the agent releases gradients.
    growth: which budget pays for samples that are added later (flockwise.runtime.releases). It never changes.
    """

    epsilon: Positive
    delta: Annotated[float, msgspec.Meta(ge=0, lt=1)]
    updates: Annotated[int, msgspec.Meta(ge=1)]
    clip: Positive | None = None
    mechanism: str = USUAL_MECHANISM
    growth: Literal["one_budget", "batches"] = "one_budget"
    label: ClassVar[PrivacyLabel] = "dp"

    @property
    def own_budget(self) -> OwnBudget | None:
        return self

    @property
    def has_batches(self) -> bool:
        """Whether samples that arrive together have a budget of their own."""
        return self.growth == "batches"

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
    """agent.toml.

    freshness: a file on another disk that says where the ledger ends (flockwise.runtime.newest).
    """

    privacy: NoBudget | OwnBudget
    data: str = DATA_FILE
    freshness: str | None = None


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
        if (path / MOVED_FILE).exists():
            raise NetworkError(
                f"{path}: agent {settings.name!r} has moved out (see {MOVED_FILE}); run it where it moved in"
            )
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
    """The folder of one process: an agent's own, or a gateway's with many agents.

    refused: agents of a gateway whose folders cannot be used, and why. The others run.
    """

    path: Path
    identity: Credentials
    agents: Sequence[AgentFolder]
    listen: str
    listens_elsewhere: bool  # than where it is reached
    metrics_port: int | None
    refused: Mapping[str, str]
    # When the rosters that were read last were written.
    _seen: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> HostFolder:
        if (path / HOST_FILE).is_file():
            return cls._read_gateway(path)
        if not (path / AGENT_FILE).is_file():
            raise NetworkError(
                f"{path}: neither {AGENT_FILE} nor {HOST_FILE} is in it; name an agent's folder"
            )
        agent, identity = AgentFolder.read(path), Credentials.read(path / IDENTITY_FOLDER)
        check_belongs(agent.neighborhood, identity.subject, identity.public_keys)
        return cls._of(path, identity, [agent], agent.settings, {})

    @classmethod
    def _read_gateway(cls, path: Path) -> HostFolder:
        settings = read_toml(path / HOST_FILE, HostFile)
        agents, signing, refused = list[AgentFolder](), dict[str, SigningKey](), dict[str, str]()
        for name in settings.agents:
            try:
                agent = AgentFolder.read(path / settings.agents_folder / name)
                signing[name] = agent.signing_key()
                agents.append(agent)
            except FlockwiseError as error:
                refused[name] = str(error)
        identity = Credentials.read(path / IDENTITY_FOLDER, signing, without=refused)
        for agent in list(agents):
            try:
                check_belongs(agent.neighborhood, identity.subject, identity.public_keys)
            except FlockwiseError as error:
                refused[agent.name] = str(error)
                agents.remove(agent)
        if not agents:
            raise NetworkError(
                next(iter(refused.values()), f"{path}: a host needs agents; name some in {HOST_FILE}")
            )
        return cls._of(path, identity, agents, settings, refused)

    @classmethod
    def _of(
        cls,
        path: Path,
        identity: Credentials,
        agents: Sequence[AgentFolder],
        settings: ProcessFile,
        refused: Mapping[str, str],
    ) -> HostFolder:
        listen = settings.listen or agents[0].neighborhood.place.address
        is_elsewhere = settings.listen is not None
        return cls(path, identity, agents, listen, is_elsewhere, settings.metrics_port, refused)

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

    def rosters(self) -> dict[str, SignedNeighborhood | NetworkError]:
        """The rosters that were put into the agents' folders since the last look. They may be newer.

        One that cannot be used does not hide those of other agents.
        """
        changed = {}
        for agent in self.agents:
            try:
                written = (agent.path / ROSTER_FILE).stat().st_mtime_ns
            except OSError:  # to read it says why, once
                written = GONE
            if self._seen.get(agent.name) == written:
                continue
            try:
                changed[agent.name] = read_roster(agent.path, agent.name)
            except NetworkError as error:
                changed[agent.name] = error
            self._seen[agent.name] = written
        return changed


def is_here(home: Path) -> bool:
    """Whether an agent's or a gateway's folder is on this machine, and its agent has not moved out of it."""
    return home.is_dir() and not (home / MOVED_FILE).exists()


def read_roster(folder: Path, agent: str) -> SignedNeighborhood:
    """The signed slice in an agent's folder, as it is in force now."""
    trust = Trust.read(folder / IDENTITY_FOLDER)
    return read_neighborhood(read_file(folder / ROSTER_FILE), agent, trust).at(time.time())


def read_samples(path: Path) -> Samples:
    """The arrays `features` and `targets` of an .npz file; errors name shapes, never values."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            features, targets = (np.asarray(arrays[name], np.float64) for name in ("features", "targets"))
    except UNREADABLE as error:
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
