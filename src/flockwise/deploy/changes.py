"""Changes that the authority makes in a network that runs. Each signs everyone's slice anew."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from flockwise.deploy.certificates import certificate_from_pem, read_subject
from flockwise.deploy.identity import Authority
from flockwise.deploy.keyfiles import read_file
from flockwise.deploy.network_plan import AUTHORITY_FOLDER, Change, Edge, NetworkPlan
from flockwise.deploy.renewal import find_certificate, put_certificate
from flockwise.errors import NetworkError
from flockwise.net.names import split_address
from flockwise.net.transport import Place


def remove_agent(folder: Path, name: str) -> NetworkPlan:
    """Throw an agent out, for good: nobody has it as a neighbor any more, and its own slice says so.

    Where an agent's neighbors count by their share in the sum of its weights, those that stay count for more.
    """
    authority, plan = Authority.read(folder / AUTHORITY_FOLDER), NetworkPlan.read(folder)
    number = plan.number(name)

    def without(edges: Sequence[Edge]) -> list[Edge]:
        return [edge for edge in edges if number not in edge[:2]]

    change = plan.change
    if change is not None:
        change = msgspec.structs.replace(change, edges=without(change.edges))
    plan = plan.changed(edges=without(plan.edges), change=change, removed=[*plan.removed, name])
    plan.write(folder, authority)
    return plan


def move_agent(folder: Path, name: str, address: str) -> NetworkPlan:
    """An agent is reached at another address from now on; one that a gateway runs, once it runs by itself."""
    authority, plan = Authority.read(folder / AUTHORITY_FOLDER), NetworkPlan.read(folder)
    number, dialled = plan.number(name), split_address(address)[0]
    certificate = read_file(find_certificate(folder, name))
    if read_subject(certificate_from_pem(certificate)).address != dialled:
        put_certificate(folder, name, authority.renew(certificate, dialled=dialled))
    places, addresses = list(plan.places), list(plan.addresses)
    addresses[number] = address
    if places[number].host == name:
        places[number] = Place(name, name, address, places[number].public_key)
    plan = plan.changed(places=places, addresses=addresses)
    plan.write(folder, authority)
    return plan


def change_settings(
    folder: Path, starts_at: float, tradeoff: float | None, weights: Mapping[tuple[str, str], float]
) -> NetworkPlan:
    """Another trade-off and other weights of edges, for all agents at one time, in seconds since 1970.

    weights: by the names of both ends; 0 ends an edge. A change that has not begun is replaced. An agent's
    budget, plan and clip are its own and in no roster, so no change of settings reaches them.
    """
    authority, plan = Authority.read(folder / AUTHORITY_FOLDER), NetworkPlan.read(folder)
    settings = plan.network_settings
    if settings.converses:
        raise NetworkError(
            "in this network agents release once and talk, so its settings stay; make a new network"
        )
    if starts_at <= time.time():
        raise NetworkError("the time at which the change begins is over; name one that is still to come")
    if tradeoff is not None:
        settings = replace(settings, objective=replace(settings.objective, tradeoff=tradeoff))
    edges = [(plan.number(one), plan.number(other), weight) for (one, other), weight in weights.items()]
    before = plan.settings_version if plan.change is None else plan.change.settings_version
    change = Change(starts_at, before + 1, settings.to_json(), edges)
    plan = plan.changed(change=change)
    plan.write(folder, authority)
    return plan
