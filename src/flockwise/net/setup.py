"""A network on disk: its authority, a folder per agent, and gateways where one machine runs many.

    DIR/authority/        keys that admit agents and sign rosters, and the whole graph: keep it offline
    DIR/agents/NAME/      one agent's folder (flockwise.net.folder)
    DIR/hosts/NAME/       one gateway's folder, if there are any

Only the authority knows the whole graph; each agent is given its own slice of it. Whoever changes the
network (other gateways, another agent) signs slices of a higher version, which running agents take over.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from flockwise.data.samples import Samples
from flockwise.errors import MissingExtra, NetworkError
from flockwise.files import write_whole
from flockwise.graph import SimilarityGraph
from flockwise.net.certificates import new_tls_key
from flockwise.net.folder import (
    AGENT_FILE,
    DATA_FILE,
    HOST_FILE,
    IDENTITY_FOLDER,
    ROSTER_FILE,
    STATE_FOLDER,
    OwnBudget,
    signing_key_of,
    write_gateway_identity,
    write_samples,
)
from flockwise.net.identity import Authority, Identity, Keys, Request, enroll
from flockwise.net.keyfiles import write_file
from flockwise.net.names import split_address
from flockwise.net.roster import Place, neighborhoods, sign_neighborhood
from flockwise.net.settings import NetworkSettings
from flockwise.net.store import FileStore
from flockwise.net.zenoh_settings import check_host
from flockwise.privacy.ledger import Ledger

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

AUTHORITY_FOLDER: Final = "authority"
AGENTS_FOLDER: Final = "agents"
HOSTS_FOLDER: Final = "hosts"
ROSTERS_FOLDER: Final = "rosters"
BLUEPRINT_FILE: Final = "network.json"


@dataclass(frozen=True, eq=False)
class Member:
    """An agent to be: its name, its samples, what it may spend (None: nothing is protected), its address."""

    name: str
    samples: Samples
    privacy: OwnBudget | None
    address: str


class Blueprint(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole network as its authority keeps it; every slice is cut from it.

    addresses: every agent's own, for when no gateway runs it.
    """

    network: str
    version: int
    dimension: int
    tick_rate: float
    settings: dict[str, Any]
    places: list[Place]
    addresses: list[str]
    edges: list[tuple[int, int, float]]

    @property
    def names(self) -> list[str]:
        return [place.name for place in self.places]

    @property
    def network_settings(self) -> NetworkSettings:
        return NetworkSettings.from_json(self.settings, f"network {self.network!r}")

    @property
    def enrolled(self) -> dict[str, dict[str, bytes]]:
        """All hosts, with the public keys of their agents."""
        hosts: dict[str, dict[str, bytes]] = {}
        for place in self.places:
            hosts.setdefault(place.host, {})[place.name] = place.public_key
        return hosts

    def graph(self) -> SimilarityGraph:
        pairs = np.array([edge[:2] for edge in self.edges], np.int64).reshape(-1, 2)
        return SimilarityGraph.from_edges(len(self.places), pairs, np.array([edge[2] for edge in self.edges]))

    def slices(self, authority: Authority) -> dict[str, bytes]:
        """Everyone's signed slice."""
        cut = neighborhoods(
            self.network,
            self.version,
            self.graph(),
            self.places,
            dimension=self.dimension,
            tick_rate=self.tick_rate,
            settings=self.settings,
        )
        return {own.agent: sign_neighborhood(own, authority) for own in cut}

    def write(self, folder: Path, authority: Authority) -> None:
        """The slices, and then the blueprint: where it has a version, there are slices of it.

        What an agent on a device of its own needs is put into `rosters`, to be carried there.
        """
        for name, signed in self.slices(authority).items():
            home = folder / AGENTS_FOLDER / name
            write_file(home / ROSTER_FILE if home.is_dir() else folder / ROSTERS_FOLDER / name, signed)
        text = msgspec.json.format(msgspec.json.encode(self), indent=1)
        write_file(folder / AUTHORITY_FOLDER / BLUEPRINT_FILE, text + b"\n")

    @classmethod
    def read(cls, folder: Path) -> Blueprint:
        path = folder / AUTHORITY_FOLDER / BLUEPRINT_FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            raise NetworkError(
                f"{folder}: there is no network in it (no {AUTHORITY_FOLDER}/{BLUEPRINT_FILE}); make one: "
                f"flockwise network init CONFIG.toml --out {folder}"
            ) from None
        except (OSError, ValueError) as error:
            raise NetworkError(f"{path}: cannot be used: {error}") from None


def create_network(
    folder: Path,
    network: str,
    members: Sequence[Member],
    graph: SimilarityGraph,
    settings: NetworkSettings,
    *,
    dimension: int,
    tick_rate: float,
) -> None:
    """Everything below `folder`, or nothing."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise NetworkError(f"{folder}: there is something already; name a new folder")
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)  # what an interrupted attempt left
    try:
        authority = Authority.new(network)
        authority.save(part / AUTHORITY_FOLDER)
        places = [_write_member(part, member, authority) for member in members]
        addresses = [member.address for member in members]
        edges = list(_edges(graph))
        Blueprint(network, 1, dimension, tick_rate, settings.to_json(), places, addresses, edges).write(
            part, authority
        )
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def host_together(folder: Path, processes: int) -> list[Path]:
    """The folders that `processes` processes run: so many gateways, or with 0 every agent by itself.

    Where the network is hosted otherwise now, gateways are enrolled and everyone's slice is signed anew.
    """
    blueprint = Blueprint.read(folder)
    if processes < 0:
        raise NetworkError(f"processes must be at least 0, got processes={processes}")
    if processes == 0:
        if hosts_of(blueprint):
            _move(folder, blueprint, {}, blueprint.addresses)
            shutil.rmtree(folder / HOSTS_FOLDER, ignore_errors=True)
        return [folder / AGENTS_FOLDER / name for name in blueprint.names]
    processes = min(processes, len(blueprint.places))
    if len(hosts_of(blueprint)) != processes:
        _make_gateways(folder, blueprint, processes)
    return [folder / HOSTS_FOLDER / name for name in hosts_of(Blueprint.read(folder))]


def hosts_of(blueprint: Blueprint) -> list[str]:
    """The gateways."""
    own = set(blueprint.names)
    return sorted({place.host for place in blueprint.places} - own)


def add_agent(
    folder: Path, authority: Authority, request: Request, address: str, weights: Mapping[str, float]
) -> tuple[str, bytes, Blueprint]:
    """One more agent, on a host of its own: its name, its certificate, and the network with it.

    weights: of its edges, by the names of its neighbors. Nothing is written.
    """
    blueprint, keys = Blueprint.read(folder), request.public_keys()
    if len(keys) != 1:
        raise NetworkError(f"the request is for {len(keys)} agents; enroll one at a time")
    ((name, key),) = keys.items()
    check_host(name)
    if name in blueprint.names:
        raise NetworkError(f"agent {name!r} is in the network already; choose another name")
    unknown = sorted(weights.keys() - set(blueprint.names))
    if unknown:
        raise NetworkError(f"neighbor {unknown[0]!r} is not in the network")
    certificate = authority.certify(request, blueprint.enrolled)
    positions = {other: position for position, other in enumerate(blueprint.names)}
    edges = [(positions[other], len(positions), float(weight)) for other, weight in weights.items()]
    grown = msgspec.structs.replace(
        blueprint,
        version=blueprint.version + 1,
        places=[*blueprint.places, Place(name, name, address, key)],
        addresses=[*blueprint.addresses, address],
        edges=[*blueprint.edges, *edges],
    )
    return name, certificate, grown


def write_agent(
    folder: Path,
    identity: Identity,
    name: str,
    samples: Samples,
    privacy: OwnBudget | None,
) -> None:
    """All of an agent's folder but its roster."""
    identity.save(folder / IDENTITY_FOLDER)
    write_samples(folder / DATA_FILE, samples)
    _write_text(folder / AGENT_FILE, agent_toml(name, privacy))
    FileStore(folder / STATE_FOLDER, name).close()
    if privacy is not None and len(samples.targets):
        # Here and never again: an agent whose ledger is gone has no new budget.
        Ledger.create(folder / STATE_FOLDER, name).close()


def agent_toml(name: str, privacy: OwnBudget | None) -> str:
    """The text of an agent.toml."""
    lines = [
        "# The agent's own side of things. What all agents share is in its roster, signed by the authority.",
        f'name = "{name}"',
        f'data = "{DATA_FILE}"   # its samples: they never leave this folder',
        "metrics_port = 0     # Prometheus on 127.0.0.1, on any free port (see state/events.log)",
        "",
        "[privacy]",
    ]
    if privacy is None:
        lines += ['kind = "none"        # models are sent as they are, and every message says so']
    else:
        lines += [
            'kind = "dp"          # everything that it ever sends is within this budget',
            f"epsilon = {privacy.epsilon!r}",
            f"delta = {privacy.delta!r}",
            f"updates = {privacy.updates}",
            *([] if privacy.clip is None else [f"clip = {privacy.clip!r}"]),
            f'mechanism = "{privacy.mechanism}"',
            f'growth = "{privacy.growth}"  # what added samples pay from; stays as it is at the first start',
        ]
    return "\n".join(lines) + "\n"


def free_addresses(host: str, count: int) -> list[str]:
    """So many addresses on this machine that nothing listens at now."""
    with ExitStack() as sockets:
        ports = []
        for _ in range(count):
            probe = sockets.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
            probe.bind((host, 0))
            ports.append(probe.getsockname()[1])
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for port in ports]


def _write_member(folder: Path, member: Member, authority: Authority) -> Place:
    name = check_host(member.name)
    identity = enroll(authority, name, member.address, [name])
    samples = Samples(*(np.asarray(part, np.float64) for part in member.samples))
    write_agent(folder / AGENTS_FOLDER / name, identity, name, samples, member.privacy)
    return Place(name, name, member.address, identity.public_keys[name])


def _edges(graph: SimilarityGraph) -> Iterable[tuple[int, int, float]]:
    for agent in range(graph.n_agents):
        others, weights = graph.neighbors_of(agent)
        for other, weight in zip(others.tolist(), weights.tolist(), strict=True):
            if agent < other:
                yield agent, other, weight


def _make_gateways(folder: Path, blueprint: Blueprint, processes: int) -> None:
    """Neighbors in the order of the agents share a gateway; each lists its agents in its certificate."""
    authority = Authority.read(folder / AUTHORITY_FOLDER)
    host = split_address(blueprint.addresses[0])[0]
    groups = [group.tolist() for group in np.array_split(np.array(blueprint.names), processes)]
    taken = set(blueprint.names)
    names = [
        name for name in (f"gateway{number}" for number in range(1, 2 * processes + 1)) if name not in taken
    ]
    gateways = {}
    with _new_folder(folder / HOSTS_FOLDER) as hosts:
        for name, group, address in zip(names, groups, free_addresses(host, processes), strict=False):
            signing = {agent: signing_key_of(folder / AGENTS_FOLDER / agent, agent) for agent in group}
            keys = Keys(new_tls_key(), signing)
            certificate = authority.certify(keys.request(blueprint.network, name, address), {})
            write_gateway_identity(
                hosts / name / IDENTITY_FOLDER, Identity.of(keys, certificate, authority.trust)
            )
            _write_text(hosts / name / HOST_FILE, _host_toml(name, group))
            gateways |= dict.fromkeys(group, (name, address))
    _move(folder, blueprint, gateways, blueprint.addresses)


def _move(
    folder: Path, blueprint: Blueprint, gateways: Mapping[str, tuple[str, str]], addresses: Sequence[str]
) -> None:
    """Sign slices that say where everyone is now; agents without a gateway are at their own address."""
    places = []
    for place, address in zip(blueprint.places, addresses, strict=True):
        host, where = gateways.get(place.name, (place.name, address))
        places.append(Place(place.name, host, where, place.public_key))
    moved = msgspec.structs.replace(blueprint, version=blueprint.version + 1, places=places)
    moved.write(folder, Authority.read(folder / AUTHORITY_FOLDER))


def _host_toml(name: str, agents: Sequence[str]) -> str:
    listed = "".join(f'    "{agent}",\n' for agent in agents)
    return (
        "# A gateway: one process that runs these agents. Their folders and keys stay where they are.\n"
        f'name = "{name}"\nmetrics_port = 0\nagents = [\n{listed}]\n'
    )


def _write_text(path: Path, text: str) -> None:
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


@contextmanager
def _new_folder(folder: Path) -> Any:
    """A folder that takes the place of the old one when it is complete."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
