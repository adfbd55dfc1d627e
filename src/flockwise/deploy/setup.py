"""A network on disk: its authority, a folder per agent, and gateways where one machine runs many.

    DIR/authority/        keys that admit agents and sign rosters, and the whole graph: keep it offline
    DIR/agents/NAME/      one agent's folder (flockwise.deploy.folder)
    DIR/hosts/NAME/       one gateway's folder, if there are any
    DIR/devices/NAME/     what has to be carried to a device elsewhere: its newest roster

Only the authority knows the whole graph; each agent is given its own slice of it. Every change of the
network (other gateways, another agent) means slices of a higher version, which running agents take over.
"""

from __future__ import annotations

import math
import shutil
import socket
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from flockwise.data.samples import Samples
from flockwise.deploy.certificates import new_tls_key
from flockwise.deploy.folder import (
    AGENT_FILE,
    DATA_FILE,
    HOST_FILE,
    IDENTITY_FOLDER,
    STATE_FOLDER,
    AgentFolder,
    OwnBudget,
    is_here,
    write_samples,
)
from flockwise.deploy.identity import Authority, Identity, Keys, enroll
from flockwise.deploy.network_plan import AGENTS_FOLDER, AUTHORITY_FOLDER, HOSTS_FOLDER, NetworkPlan
from flockwise.deploy.renewal import keep_certificate
from flockwise.deploy.settings import NetworkSettings
from flockwise.errors import NetworkError
from flockwise.files import new_folder, write_text
from flockwise.net.names import check_host, split_address
from flockwise.net.store import FileStore
from flockwise.net.transport import Place
from flockwise.privacy.ledger import Ledger

if TYPE_CHECKING:
    from flockwise.graph import SimilarityGraph

# A host shows a certificate with the names of all its agents, and connections take no endless ones.
MOST_IN_A_PROCESS: Final = 1000


@dataclass(frozen=True, eq=False)
class Member:
    """An agent to be made: its name, its samples, its budget (None: nothing is protected), its address."""

    name: str
    samples: Samples
    privacy: OwnBudget | None
    address: str


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
    with new_folder(folder) as part:
        authority = Authority.new(network)
        authority.save(part / AUTHORITY_FOLDER)
        places = [_write_member(part, member, authority) for member in members]
        addresses = [member.address for member in members]
        shared = settings.to_json()
        plan = NetworkPlan(network, 1, dimension, tick_rate, shared, places, addresses, list(_edges(graph)))
        plan.write(part, authority)
        if folder.exists():
            folder.rmdir()


def host_together(folder: Path, processes: int) -> list[Path]:
    """The folders that `processes` processes run: so many gateways, or with 0 every agent by itself.

    If others ran before, gateways are enrolled and everyone's slice is signed anew. Agents of other devices,
    whose folders are not here, stay where they are.
    """
    plan = NetworkPlan.read(folder)
    if processes < 0:
        raise NetworkError(f"processes must be at least 0, got processes={processes}")
    here = [name for name in plan.members if is_here(folder / AGENTS_FOLDER / name)]
    processes = min(processes, len(here))
    if processes and len(here) > MOST_IN_A_PROCESS * processes:
        raise NetworkError(
            f"processes={processes}: {len(here)} agents need at least "
            f"{math.ceil(len(here) / MOST_IN_A_PROCESS)} processes, since one certificate names at most "
            f"{MOST_IN_A_PROCESS}"
        )
    hosted = {place.name for place in plan.places if place.host != place.name}
    if len(plan.gateways) != processes or hosted != set(here if processes else ()):
        authority = Authority.read(folder / AUTHORITY_FOLDER)
        hosts = _make_gateways(folder, plan, here, authority, processes) if processes else {}
        places = []
        for place, address in zip(plan.places, plan.addresses, strict=True):
            host, where = hosts.get(place.name, (place.name, address))
            places.append(Place(place.name, host, where, place.public_key))
        plan = plan.changed(places=places)
        plan.write(folder, authority)
    if processes:
        return [folder / HOSTS_FOLDER / name for name in plan.gateways]
    shutil.rmtree(folder / HOSTS_FOLDER, ignore_errors=True)
    return [folder / AGENTS_FOLDER / name for name in here]


def write_agent(
    folder: Path, identity: Identity, name: str, samples: Samples, privacy: OwnBudget | None
) -> None:
    """All of an agent's folder but its roster."""
    identity.save(folder / IDENTITY_FOLDER)
    write_samples(folder / DATA_FILE, samples)
    write_text(folder / AGENT_FILE, _agent_toml(name, privacy))
    FileStore(folder / STATE_FOLDER, name).close()
    if privacy is not None and len(samples.targets):
        # Here and never again: an agent whose ledger is gone has no new budget.
        Ledger.create(folder / STATE_FOLDER, name).close()


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
    keep_certificate(folder, name, identity.certificate)
    return Place(name, name, member.address, identity.public_keys[name])


def _edges(graph: SimilarityGraph) -> Iterable[tuple[int, int, float]]:
    for agent in range(graph.n_agents):
        others, weights = graph.neighbors_of(agent)
        for other, weight in zip(others.tolist(), weights.tolist(), strict=True):
            if agent < other:
                yield agent, other, weight


def _make_gateways(
    folder: Path, plan: NetworkPlan, here: Sequence[str], authority: Authority, count: int
) -> dict[str, tuple[str, str]]:
    """Agents in a row share a gateway, whose certificate lists them. Returns name and address by agent."""
    names = [name for name in (f"gateway{k}" for k in range(1, 2 * count + 1)) if name not in plan.names]
    near = plan.addresses[plan.number(here[0])]
    addresses = free_addresses(split_address(near)[0], count)
    hosts = {}
    with new_folder(folder / HOSTS_FOLDER) as part:
        groups = np.array_split(np.array(here), count)
        for name, address, group in zip(names, addresses, groups, strict=False):
            agents = group.tolist()
            signing = {one: AgentFolder.read(folder / AGENTS_FOLDER / one).signing_key() for one in agents}
            keys = Keys(new_tls_key(), signing)
            certificate = authority.certify(keys.request(plan.network, name, address), {})
            identity = Identity.of(keys, certificate, authority.trust)
            identity.save(part / name / IDENTITY_FOLDER, with_signing_keys=False)
            write_text(part / name / HOST_FILE, _host_toml(name, agents))
            hosts |= dict.fromkeys(agents, (name, address))
        shutil.rmtree(folder / HOSTS_FOLDER, ignore_errors=True)
    return hosts


def _agent_toml(name: str, privacy: OwnBudget | None) -> str:
    text = f"""\
# The agent's own settings. What all agents share is in its roster, signed by the authority.
name = "{name}"
data = "{DATA_FILE}"   # its samples: they never leave this folder
metrics_port = 0     # Prometheus on 127.0.0.1, on any free port (see state/events.log)

[privacy]
"""
    if privacy is None:
        return text + 'kind = "none"        # models are sent as they are, and every message says so\n'
    clip = "" if privacy.clip is None else f"clip = {privacy.clip!r}\n"
    return f"""{text}\
kind = "dp"          # everything that it ever sends is within this budget
epsilon = {privacy.epsilon!r}
delta = {privacy.delta!r}
updates = {privacy.updates}
{clip}mechanism = "{privacy.mechanism}"
growth = "{privacy.growth}"  # what pays for added samples; it cannot change after the first start
"""


def _host_toml(name: str, agents: Sequence[str]) -> str:
    listed = "".join(f'    "{agent}",\n' for agent in agents)
    return (
        "# A gateway: one process that runs these agents. Their folders and keys stay where they are.\n"
        f'name = "{name}"\nmetrics_port = 0\nagents = [\n{listed}]\n'
    )
