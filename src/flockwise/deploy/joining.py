"""How a device joins: it makes its keys, the authority answers, and nothing secret ever travels."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flockwise.deploy.certificates import certificate_from_pem, key_from_pem, key_to_pem, read_subject
from flockwise.deploy.credentials import TLS_FILE, TLS_KEY_FILE, Trust, read_signing_key
from flockwise.deploy.folder import (
    AGENT_FILE,
    DATA_FILE,
    IDENTITY_FOLDER,
    ROSTER_FILE,
    STATE_FOLDER,
    WAITING_FOLDER,
    OwnBudget,
    read_samples,
)
from flockwise.deploy.identity import Authority, Identity, Keys, Request, key_text
from flockwise.deploy.keyfiles import read_file, read_secret, write_file, write_folder
from flockwise.deploy.network_plan import AUTHORITY_FOLDER, NetworkPlan
from flockwise.deploy.renewal import keep_certificate
from flockwise.deploy.roster import SignedNeighborhood, check_belongs, read_neighborhood
from flockwise.deploy.settings import NetworkSettings, check_budget
from flockwise.deploy.setup import write_agent
from flockwise.errors import NetworkError
from flockwise.files import new_folder
from flockwise.net.names import check_host, split_address
from flockwise.net.transport import Place
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import USUAL_MECHANISM

ACCEPTED_FOLDER: Final = "accepted"
# The parts of a new agent, in the order in which they move to their place. Nothing runs without the last one.
PARTS: Final = (STATE_FOLDER, IDENTITY_FOLDER, DATA_FILE, AGENT_FILE, ROSTER_FILE)
# Of an agent that joins, where nothing else is said.
UPDATES: Final = 10


def make_request(folder: Path, network: str, name: str, address: str) -> bytes:
    """New keys in `folder`, and the request that goes to the authority."""
    if any((folder / part).exists() for part in (WAITING_FOLDER, IDENTITY_FOLDER, AGENT_FILE)):
        raise NetworkError(f"{folder}: there is an agent in it already; name another folder")
    keys = Keys.new([name])
    asked = keys.request(network, name, address).to_json()
    write_waiting_keys(folder, keys)
    return asked


def write_waiting_keys(folder: Path, keys: Keys) -> None:
    """Keys that wait for the authority's answer."""
    signing = {f"{name}.key": key_text(key) for name, key in keys.signing.items()}
    write_folder(folder / WAITING_FOLDER, {TLS_KEY_FILE: key_to_pem(keys.tls)} | signing)


def waiting_keys(folder: Path) -> Keys:
    """Those of the one agent that asked in this folder."""
    waiting = folder / WAITING_FOLDER
    names = [path.stem for path in waiting.glob("*.key") if path.name != TLS_KEY_FILE]
    if len(names) != 1:
        raise NetworkError(
            f"{folder}: no request was made here; begin with: flockwise agent request {folder}"
        )
    signing = {name: read_signing_key(waiting / f"{name}.key") for name in names}
    return Keys(key_from_pem(read_secret(waiting / TLS_KEY_FILE)), signing)


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
    if name in plan.removed:
        raise NetworkError(f"agent {name!r} was removed from the network; choose a name that is new")
    if check_host(name) in plan.names:
        raise NetworkError(
            f"agent {name!r} is in the network already; choose another name, or, if its certificate "
            f"has ended: flockwise network renew {folder}"
        )
    enrolled: dict[str, dict[str, bytes]] = {}
    for place in plan.places:
        enrolled.setdefault(place.host, {})[place.name] = place.public_key
    certificate = authority.certify(asked, enrolled)
    check_own_host(name, certificate, split_address(address)[0])
    new = len(plan.places)
    edges = [(plan.number(other), new, float(weight)) for other, weight in weights.items()]
    grown = plan.changed(
        places=[*plan.places, Place(name, name, address, key)],
        addresses=[*plan.addresses, address],
        edges=[*plan.edges, *edges],
    )
    own = grown.slices(authority)[name]
    keep_certificate(folder, name, certificate)
    write_folder(reply, authority.trust.files() | {TLS_FILE: certificate, ROSTER_FILE: own})
    grown.write(folder, authority)
    return name


def check_own_host(name: str, certificate: bytes, dialled: str) -> None:
    """Refuse to admit an agent as a host of another name, or at another address than the network's."""
    subject = read_subject(certificate_from_pem(certificate))
    if (subject.host, subject.address) != (name, dialled):
        raise NetworkError(
            f"agent {name!r}: its request is for host {subject.host!r} at {subject.address!r}, instead of "
            f"{name!r} at {dialled!r}; make it again on its device, or name the address that it names"
        )


def accept_reply(
    folder: Path,
    reply: Path,
    data: Path,
    budget: Budget | None = None,
    updates: int | None = None,
    clip: float | None = None,
) -> None:
    """The device's part again: with the reply its folder is complete, and its keys move to their place.

    All of it is made in a folder beside them first. So one that was interrupted is begun again, or finished.

    updates, clip: how a budget is spent where agents release at every update; by default as many updates as
        the network makes, and the clip that its public bounds suggest.
    """
    if not (folder / ACCEPTED_FOLDER).is_dir():
        with new_folder(folder / ACCEPTED_FOLDER, 0o700) as part:
            _make_agent(part, folder, reply, data, budget, updates, clip)
    finish_accepting(folder)


def finish_accepting(folder: Path) -> None:
    """Move all that was made to its place. Of what was there before only keys are replaced."""
    for name in PARTS:
        part = folder / ACCEPTED_FOLDER / name
        if part.exists():
            if name == IDENTITY_FOLDER:
                shutil.rmtree(folder / name, ignore_errors=True)
            part.rename(folder / name)
    shutil.rmtree(folder / WAITING_FOLDER, ignore_errors=True)
    (folder / ACCEPTED_FOLDER).rmdir()


def _make_agent(
    made: Path,
    folder: Path,
    reply: Path,
    data: Path,
    budget: Budget | None,
    updates: int | None,
    clip: float | None,
) -> None:
    """All of the agent's folder, from the keys that wait in `folder` and the authority's reply."""
    keys, trust = waiting_keys(folder), Trust.read(reply)
    (name,) = keys.signing
    identity = Identity.of(keys, read_file(reply / TLS_FILE), trust)
    roster = read_file(reply / ROSTER_FILE)
    neighborhood = read_neighborhood(roster, name, trust)
    check_belongs(neighborhood, identity.subject, identity.public_keys)
    privacy = _own_budget(neighborhood, budget, updates, clip)
    write_agent(made, identity, name, read_samples(data), privacy)
    write_file(made / ROSTER_FILE, roster)


def _own_budget(
    neighborhood: SignedNeighborhood, budget: Budget | None, updates: int | None, clip: float | None
) -> OwnBudget | None:
    """The budget in the form that the network needs."""
    from flockwise.method.private import usual_clip

    name, settings = neighborhood.agent, NetworkSettings.of(neighborhood)
    if settings.is_private != (budget is not None):
        raise NetworkError(
            f"agent {name!r}: the network's privacy is {settings.privacy!r}; "
            + ("give --epsilon and --delta" if budget is None else "leave --epsilon and --delta out")
        )
    if budget is None:
        return None
    talks = settings.converses
    if clip is None and not talks and not math.isinf(settings.objective.loss.slope_bound("l2")):
        clip = usual_clip(settings.objective, USUAL_MECHANISM, neighborhood.dimension)
    own = OwnBudget(
        epsilon=budget.epsilon,
        delta=budget.delta,
        updates=updates or (1 if talks else settings.updates or UPDATES),
        clip=clip,
        mechanism=settings.statistic.mechanism if talks else USUAL_MECHANISM,
    )
    check_budget(name, settings, own)
    return own
