"""New keys for an agent that has joined: its device asks with the old key, and the authority answers.

The agent does not run meanwhile: nobody would take what it signs with the old key. An agent whose key is lost
cannot ask; it is removed, and joins under another name.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from flockwise.deploy.certificates import certificate_from_pem, read_subject
from flockwise.deploy.credentials import TLS_FILE
from flockwise.deploy.folder import IDENTITY_FOLDER, WAITING_FOLDER, AgentFolder
from flockwise.deploy.identity import Authority, Keys, Request
from flockwise.deploy.joining import ACCEPTED_FOLDER, check_own_host, finish_accepting, write_waiting_keys
from flockwise.deploy.keyfiles import read_file, write_file
from flockwise.deploy.network_plan import AGENTS_FOLDER, AUTHORITY_FOLDER, DEVICES_FOLDER, NetworkPlan
from flockwise.deploy.renewal import keep_certificate
from flockwise.deploy.updating import take_over
from flockwise.errors import IdentityError, NetworkError
from flockwise.net.names import split_address
from flockwise.net.signing import holds
from flockwise.net.store import FileStore
from flockwise.net.transport import Place


class Rotation(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A request with new keys, and the signature of the key that they replace."""

    request: Request
    proof: str

    @classmethod
    def from_json(cls, data: bytes) -> Rotation:
        try:
            return msgspec.json.decode(data, type=cls)
        except ValueError as error:
            raise IdentityError(f"not a request for new keys: {error}") from error


def ask_for_new_keys(folder: Path) -> bytes:
    """New keys beside the old ones, and the request that goes to the authority. The agent must not run."""
    agent = AgentFolder.read(folder)
    FileStore(agent.state, agent.name).close()
    if (folder / WAITING_FOLDER).exists():
        raise NetworkError(
            f"{folder}: new keys wait in it already; accept the reply, or remove {WAITING_FOLDER}"
        )
    keys = Keys.new([agent.name])
    subject = read_subject(certificate_from_pem(read_file(folder / IDENTITY_FOLDER / TLS_FILE)))
    request = keys.ask(subject)
    proof = agent.signing_key().sign(_words(request)).hex()
    write_waiting_keys(folder, keys)
    return msgspec.json.format(msgspec.json.encode(Rotation(request, proof)), indent=2) + b"\n"


def answer_rotation(folder: Path, asked: bytes) -> str:
    """The authority's part: everyone's slice names the new key, and the agent has a certificate for it.

    An agent whose folder is here takes them over at once. After an interruption, begin again. Returns its
    name.
    """
    authority, plan = Authority.read(folder / AUTHORITY_FOLDER), NetworkPlan.read(folder)
    rotation = Rotation.from_json(asked)
    keys = rotation.request.public_keys()
    if len(keys) != 1:
        raise NetworkError(f"the request is for {len(keys)} agents; change the keys of one at a time")
    ((name, key),) = keys.items()
    number = plan.number(name)
    place = plan.places[number]
    if key != place.public_key:
        _check_proof(name, place.public_key, rotation)
    certificate = authority.certify(rotation.request, {})
    check_own_host(name, certificate, split_address(plan.addresses[number])[0])
    places = list(plan.places)
    places[number] = Place(name, place.host, place.address, key)
    update = folder / DEVICES_FOLDER / name
    write_file(update / TLS_FILE, certificate)
    keep_certificate(folder, name, certificate)
    plan.changed(places=places).write(folder, authority)
    home = folder / AGENTS_FOLDER / name
    if (home / ACCEPTED_FOLDER).is_dir():
        finish_accepting(home)
    elif (home / WAITING_FOLDER).is_dir():
        take_over(home, update)
    else:
        return name
    shutil.rmtree(update)
    return name


def _check_proof(name: str, former: bytes, rotation: Rotation) -> None:
    try:
        proof = bytes.fromhex(rotation.proof)
    except ValueError:
        proof = b""
    if not holds(former, _words(rotation.request), proof):
        raise IdentityError(
            f"agent {name!r}: the request for new keys is not signed with the key that the network knows; "
            "make it again on its device, or, if that key is lost, remove the agent"
        )


def _words(request: Request) -> bytes:
    """Signed with the old key, to show that the new ones are wanted by its owner."""
    return b"flockwise rotation 1/" + msgspec.json.encode(request)
