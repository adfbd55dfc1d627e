"""How a device joins: it makes its keys, the authority answers, and nothing secret ever travels."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flockwise.errors import NetworkError
from flockwise.net.certificates import key_from_pem, key_to_pem
from flockwise.net.folder import (
    AGENT_FILE,
    IDENTITY_FOLDER,
    ROSTER_FILE,
    OwnBudget,
    read_samples,
)
from flockwise.net.identity import (
    TLS_FILE,
    TLS_KEY_FILE,
    Authority,
    Identity,
    Keys,
    Request,
    Trust,
    read_signing_key,
    save_signing_key,
)
from flockwise.net.keyfiles import read_file, read_secret, write_file, write_folder
from flockwise.net.participant import check_budget
from flockwise.net.roster import check_belongs, read_neighborhood
from flockwise.net.settings import NetworkSettings
from flockwise.net.setup import AUTHORITY_FOLDER, add_agent, write_agent
from flockwise.privacy.budget import Budget

WAITING_FOLDER: Final = "keys"
# Of an agent that joins, where nothing else is said.
UPDATES: Final = 10
CLIP: Final = 1.0


def make_request(folder: Path, network: str, name: str, address: str) -> bytes:
    """New keys in `folder`, and the request that goes to the authority."""
    waiting = folder / WAITING_FOLDER
    if any((folder / part).exists() for part in (WAITING_FOLDER, IDENTITY_FOLDER, AGENT_FILE)):
        raise NetworkError(f"{folder}: there is an agent in it already; name another folder")
    keys = Keys.new([name])
    asked = keys.request(network, name, address).to_json()
    write_folder(waiting, {TLS_KEY_FILE: key_to_pem(keys.tls)})
    save_signing_key(waiting / f"{name}.key", keys.signing[name])
    return asked


def answer_request(
    folder: Path, request: bytes, address: str, weights: Mapping[str, float], reply: Path
) -> str:
    """The authority's part: admit the agent, sign its neighbors' slices anew, and write the reply.

    Returns the agent's name. Nothing is changed if the request is refused.
    """
    authority = Authority.read(folder / AUTHORITY_FOLDER)
    name, certificate, grown = add_agent(folder, authority, Request.from_json(request), address, weights)
    slice_ = grown.slices(authority)[name]
    write_folder(reply, authority.trust.files() | {TLS_FILE: certificate, ROSTER_FILE: slice_})
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
    """The device's part again: with the reply its folder is complete, and its keys are where they belong.

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
    """As the network needs it."""
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
