"""How a device joins: it makes its keys, the authority answers, and nothing secret ever travels."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from flockwise.errors import NetworkError
from flockwise.net.certificates import key_from_pem, key_to_pem
from flockwise.net.folder import AGENT_FILE, IDENTITY_FOLDER, ROSTER_FILE, OwnBudget, read_samples
from flockwise.net.identity import (
    TLS_FILE,
    TLS_KEY_FILE,
    Authority,
    Identity,
    Keys,
    Request,
    Trust,
    key_text,
    read_signing_key,
)
from flockwise.net.keyfiles import read_file, read_secret, write_file, write_folder
from flockwise.net.names import check_host
from flockwise.net.participant import check_budget
from flockwise.net.roster import Place, check_belongs, read_neighborhood
from flockwise.net.settings import NetworkSettings
from flockwise.net.setup import AUTHORITY_FOLDER, NetworkPlan, write_agent
from flockwise.privacy.budget import Budget

WAITING_FOLDER: Final = "keys"
# Of an agent that joins, where nothing else is said.
UPDATES: Final = 10
CLIP: Final = 1.0


def make_request(folder: Path, network: str, name: str, address: str) -> bytes:
    """New keys in `folder`, and the request that goes to the authority."""
    if any((folder / part).exists() for part in (WAITING_FOLDER, IDENTITY_FOLDER, AGENT_FILE)):
        raise NetworkError(f"{folder}: there is an agent in it already; name another folder")
    keys = Keys.new([name])
    asked = keys.request(network, name, address).to_json()
    secrets = {TLS_KEY_FILE: key_to_pem(keys.tls), f"{name}.key": key_text(keys.signing[name])}
    write_folder(folder / WAITING_FOLDER, secrets)
    return asked


def answer_request(
    folder: Path, request: bytes, address: str, weights: Mapping[str, float], reply: Path
) -> str:
    """The authority's part: admit one more agent, on a host of its own, and write the reply.

    weights: of its edges, by the names of its neighbors, whose slices are signed anew. Returns the agent's
    name. Nothing is changed if the request is refused.
    """
    authority, plan = Authority.read(folder / AUTHORITY_FOLDER), NetworkPlan.read(folder)
    asked = Request.from_json(request)
    keys = asked.public_keys()
    if len(keys) != 1:
        raise NetworkError(f"the request is for {len(keys)} agents; enroll one at a time")
    ((name, key),) = keys.items()
    positions = {other: position for position, other in enumerate(plan.names)}
    if check_host(name) in positions:
        raise NetworkError(f"agent {name!r} is in the network already; choose another name")
    unknown = sorted(weights.keys() - positions.keys())
    if unknown:
        raise NetworkError(f"neighbor {unknown[0]!r} is not in the network")
    enrolled: dict[str, dict[str, bytes]] = {}
    for place in plan.places:
        enrolled.setdefault(place.host, {})[place.name] = place.public_key
    certificate = authority.certify(asked, enrolled)
    edges = [(positions[other], len(positions), float(weight)) for other, weight in weights.items()]
    grown = msgspec.structs.replace(
        plan,
        version=plan.version + 1,
        places=[*plan.places, Place(name, name, address, key)],
        addresses=[*plan.addresses, address],
        edges=[*plan.edges, *edges],
    )
    own = grown.slices(authority)[name]
    write_folder(reply, authority.trust.files() | {TLS_FILE: certificate, ROSTER_FILE: own})
    grown.write(folder, authority)
    return name


def accept_reply(
    folder: Path,
    reply: Path,
    data: Path,
    budget: Budget | None = None,
    updates: int | None = None,
    clip: float | None = None,
) -> None:
    """The device's part again: with the reply its folder is complete, and its keys move to their place.

    updates, clip: how a budget is spent where agents release at every update.
    """
    waiting = folder / WAITING_FOLDER
    names = [path.stem for path in waiting.glob("*.key") if path.name != TLS_KEY_FILE]
    if len(names) != 1:
        raise NetworkError(
            f"{folder}: no request was made here; begin with: flockwise agent request {folder}"
        )
    (name,) = names
    trust = Trust.read(reply)
    signing = {name: read_signing_key(waiting / f"{name}.key")}
    keys = Keys(key_from_pem(read_secret(waiting / TLS_KEY_FILE)), signing)
    identity = Identity.of(keys, read_file(reply / TLS_FILE), trust)
    roster = read_file(reply / ROSTER_FILE)
    neighborhood = read_neighborhood(roster, name, trust)
    check_belongs(neighborhood, identity)
    privacy = _own_budget(name, NetworkSettings.of(neighborhood), budget, updates, clip)
    write_agent(folder, identity, name, read_samples(data), privacy)
    write_file(folder / ROSTER_FILE, roster)
    shutil.rmtree(waiting)


def _own_budget(
    name: str, settings: NetworkSettings, budget: Budget | None, updates: int | None, clip: float | None
) -> OwnBudget | None:
    """The budget in the form that the network needs."""
    if (settings.privacy == "dp") != (budget is not None):
        raise NetworkError(
            f"agent {name!r}: the network's privacy is {settings.privacy!r}; "
            + ("give --epsilon and --delta" if budget is None else "leave --epsilon and --delta out")
        )
    if budget is None:
        return None
    talks = settings.converses
    own = OwnBudget(
        epsilon=budget.epsilon,
        delta=budget.delta,
        updates=updates or (1 if talks else settings.updates or UPDATES),
        clip=clip if talks else clip or CLIP,
        mechanism=settings.statistic.mechanism if talks else "gaussian",
    )
    check_budget(name, settings, own)
    return own
