"""How a device takes over what the authority has changed: a newer roster, and a newer certificate with it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from flockwise.deploy.certificates import key_from_pem
from flockwise.deploy.credentials import TLS_FILE, TLS_KEY_FILE, Trust
from flockwise.deploy.folder import AGENT_FILE, IDENTITY_FOLDER, ROSTER_FILE, WAITING_FOLDER, AgentFolder
from flockwise.deploy.identity import Identity, Keys
from flockwise.deploy.joining import ACCEPTED_FOLDER, finish_accepting, waiting_keys
from flockwise.deploy.keyfiles import read_file, read_secret, write_file
from flockwise.deploy.roster import check_belongs, read_neighborhood
from flockwise.files import new_folder
from flockwise.net.signing import public_key_of


def is_agent(folder: Path) -> bool:
    """Whether there is an agent in it that has joined, all the way."""
    return (folder / AGENT_FILE).is_file() and not (folder / ACCEPTED_FOLDER).exists()


def take_over(folder: Path, update: Path) -> None:
    """Put what is in `update` into an agent's folder, after all checks. An agent that runs sees it by itself.

    New keys that wait in the folder take the place of the old ones. After an interruption begin again.
    """
    agent, own = AgentFolder.read(folder), folder / IDENTITY_FOLDER
    trust = Trust.read(own)
    roster = read_file((update if (update / ROSTER_FILE).is_file() else folder) / ROSTER_FILE)
    certificate = read_file((update if (update / TLS_FILE).is_file() else own) / TLS_FILE)
    newer, current = read_neighborhood(roster, agent.name, trust).at(time.time()), agent.neighborhood
    is_rotated = (folder / WAITING_FOLDER).is_dir()
    if is_rotated:
        keys = waiting_keys(folder)
        place = replace(current.place, public_key=public_key_of(keys.signing[agent.name]))
        current = replace(current, place=place)
    else:
        keys = Keys(key_from_pem(read_secret(own / TLS_KEY_FILE)), {agent.name: agent.signing_key()})
    identity = Identity.of(keys, certificate, trust)
    current.successor(newer)
    if newer.place.host == identity.subject.host:  # else a gateway runs it, under its own certificate
        check_belongs(newer, identity.subject, identity.public_keys)
    if is_rotated:
        with new_folder(folder / ACCEPTED_FOLDER, 0o700) as made:
            identity.save(made / IDENTITY_FOLDER)
            write_file(made / ROSTER_FILE, roster)
        finish_accepting(folder)
    else:
        write_file(own / TLS_FILE, certificate)
        write_file(folder / ROSTER_FILE, roster)
