"""A network's authority, kept offline, and the keys and certificates of the hosts and agents it admits.

Three kinds of key:

    the authority's          signs certificates and rosters; needed to enroll, and kept away from the network;
    a host's                 opens encrypted connections; its certificate lists the agents that it runs;
    an agent's signing key   signs every message of the agent, wherever it is hosted.

Private keys are made where they are used. A device that joins sends a request, which holds public keys and a
proof that their owner made it. The authority answers with a certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from flockwise.deploy.certificates import (
    TlsKey,
    TlsPublicKey,
    authority_certificate,
    certificate_from_pem,
    certificate_to_pem,
    check_issued,
    check_signed,
    host_certificate,
    host_key,
    key_from_pem,
    key_to_pem,
    new_tls_key,
    read_subject,
    requested_key,
    signing_request,
)
from flockwise.deploy.credentials import (
    AUTHORITY_FILE,
    SIGNING_FOLDER,
    TLS_FILE,
    TLS_KEY_FILE,
    Subject,
    Trust,
    check_listed,
    read_signing_key,
)
from flockwise.deploy.keyfiles import read_file, read_secret, write_folder
from flockwise.errors import IdentityError, MissingExtra
from flockwise.net.names import check_name, split_address
from flockwise.net.signing import SigningKey, check_public_key, holds, new_signing_key, public_key_of

try:
    import msgspec
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

AUTHORITY_LIFETIME: Final = timedelta(days=20 * 365)
HOST_LIFETIME: Final = timedelta(days=5 * 365)

AUTHORITY_KEY_FILE: Final = "authority.key"
ROSTER_KEY_FILE: Final = "roster.key"


class AgentRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An agent to be admitted: its public key, and a signature that proves it has the private one."""

    name: str
    public_key: str
    proof: str


class Request(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A host's request to join. It holds nothing secret."""

    network: str
    certificate_request: str
    agents: list[AgentRequest]

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Request:
        try:
            return msgspec.json.decode(data, type=cls)
        except ValueError as error:
            raise IdentityError(f"not a request to join a network: {error}") from error

    def public_keys(self) -> dict[str, bytes]:
        """Every agent's key, once its proof holds."""
        keys: dict[str, bytes] = {}
        for agent in self.agents:
            try:
                key, proof = bytes.fromhex(agent.public_key), bytes.fromhex(agent.proof)
            except ValueError as error:
                raise IdentityError(f"agent {agent.name!r}: its key is not hexadecimal") from error
            content = _claim(self.network, agent.name, self.certificate_request)
            if not holds(check_public_key(key, agent.name), content, proof):
                raise IdentityError(
                    f"agent {agent.name!r}: the request does not prove that its sender has the agent's key; "
                    "make it again on the device"
                )
            if agent.name in keys:
                raise IdentityError(f"agent {agent.name!r} is in the request twice")
            keys[agent.name] = key
        return keys


@dataclass(frozen=True)
class Keys:
    """The private keys of a host and of its agents, made where they stay."""

    tls: TlsKey
    signing: Mapping[str, SigningKey]

    @classmethod
    def new(cls, agents: Iterable[str]) -> Self:
        return cls(new_tls_key(), {check_name(name, "agent"): new_signing_key() for name in agents})

    def request(self, network: str, host: str, address: str) -> Request:
        """The request for the authority. `address` is host:port, as others will dial it."""
        return self.ask(Subject(network, host, split_address(address)[0], tuple(self.signing)))

    def ask(self, subject: Subject) -> Request:
        """The request for a host that is described already."""
        network = subject.network
        text = signing_request(subject, self.tls).public_bytes(Encoding.PEM).decode()
        agents = [
            AgentRequest(name, public_key_of(key).hex(), key.sign(_claim(network, name, text)).hex())
            for name, key in self.signing.items()
        ]
        return Request(network, text, agents)


@dataclass(frozen=True)
class Identity:
    """An admitted host: its keys, its certificate, and the authority that it trusts."""

    subject: Subject
    certificate: bytes
    keys: Keys
    trust: Trust

    @classmethod
    def of(cls, keys: Keys, certificate: bytes, trust: Trust) -> Self:
        """Once the authority has answered; keys, certificate and trust have to belong together."""
        signed = certificate_from_pem(certificate)
        check_issued(signed, certificate_from_pem(trust.certificate), datetime.now(UTC))
        subject = read_subject(signed)
        if signed.public_key() != keys.tls.public_key():
            raise IdentityError(
                f"host {subject.host!r}: the certificate is for another key; enroll the host again"
            )
        check_listed(subject, keys.signing)
        return cls(subject, certificate, keys, trust)

    @cached_property
    def public_keys(self) -> Mapping[str, bytes]:
        """Of the agents, as the roster names them."""
        return MappingProxyType({name: public_key_of(key) for name, key in self.keys.signing.items()})

    def save(self, folder: Path, *, with_signing_keys: bool = True) -> None:
        """To a new folder. A gateway's has no signing keys: they stay in the folders of its agents."""
        tls = {TLS_FILE: self.certificate, TLS_KEY_FILE: key_to_pem(self.keys.tls)}
        kept = self.keys.signing if with_signing_keys else {}
        signing = {f"{SIGNING_FOLDER}/{name}.key": key_text(key) for name, key in kept.items()}
        write_folder(folder, self.trust.files() | tls | signing)


class Authority:
    """Admits hosts and agents to one network, and signs its rosters. No agent needs it to run."""

    def __init__(self, certificate: x509.Certificate, key: TlsKey, roster_key: SigningKey) -> None:
        if certificate.public_key() != key.public_key():
            raise IdentityError("the authority's key and certificate do not belong together")
        self._certificate = certificate
        self._key = key
        self._roster_key = roster_key
        self.network = self.trust.network

    @classmethod
    def new(cls, network: str) -> Self:
        key = new_tls_key()
        return cls(authority_certificate(network, key, AUTHORITY_LIFETIME), key, new_signing_key())

    @property
    def trust(self) -> Trust:
        return Trust(certificate_to_pem(self._certificate), public_key_of(self._roster_key))

    def save(self, folder: Path) -> None:
        """To a new folder. Keep it off the network: its keys can admit anybody."""
        secrets = {AUTHORITY_KEY_FILE: key_to_pem(self._key), ROSTER_KEY_FILE: key_text(self._roster_key)}
        write_folder(folder, self.trust.files() | secrets)

    @classmethod
    def read(cls, folder: Path) -> Self:
        key = key_from_pem(read_secret(folder / AUTHORITY_KEY_FILE))
        roster_key = read_signing_key(folder / ROSTER_KEY_FILE)
        authority = cls(certificate_from_pem(read_file(folder / AUTHORITY_FILE)), key, roster_key)
        if authority.trust != Trust.read(folder):
            raise IdentityError(f"{folder}: the keys in this folder do not belong together; restore it")
        return authority

    def sign(self, content: bytes) -> bytes:
        """With the key of the rosters."""
        return self._roster_key.sign(content)

    def certify(
        self,
        request: Request,
        enrolled: Mapping[str, Mapping[str, bytes]],
        *,
        lifetime: timedelta = HOST_LIFETIME,
    ) -> bytes:
        """The certificate of a host that asks to join, or asks again because its own runs out.

        enrolled: all hosts admitted so far, each with the public keys of its agents. A request for a name
        that is taken, of an agent or of a host, must hold the keys that belong to it. The caller has to know
        whether the request comes from the right people.
        """
        subject, tls_key = self._asked(request)
        keys = request.public_keys()
        known = {agent: key for agents in enrolled.values() for agent, key in agents.items()}
        taken = [name for name, key in keys.items() if known.get(name, key) != key]
        if taken:
            raise IdentityError(
                f"agent {taken[0]!r} is in the network, with another key; choose another name"
            )
        missing = enrolled.get(subject.host, {}).keys() - keys.keys()
        if missing:
            raise IdentityError(
                f"host {subject.host!r} is in the network with the agent {min(missing)!r}, which the request "
                "leaves out; choose another name, or ask for all of its agents"
            )
        signed = host_certificate(subject, tls_key, self._certificate, self._key, lifetime)
        return certificate_to_pem(signed)

    def renew(
        self, certificate: bytes, *, dialled: str | None = None, lifetime: timedelta = HOST_LIFETIME
    ) -> bytes:
        """A certificate for the same host and the same key, from now on; one that has ended can be renewed.

        dialled: the host's new address, without its port.
        """
        old = certificate_from_pem(certificate)
        check_signed(old, self._certificate)
        subject = read_subject(old)
        if dialled is not None:
            subject = replace(subject, address=dialled)
        signed = host_certificate(subject, host_key(old), self._certificate, self._key, lifetime)
        return certificate_to_pem(signed)

    def _asked(self, request: Request) -> tuple[Subject, TlsPublicKey]:
        """Subject and key of a request, if it agrees with itself."""
        try:
            asked = x509.load_pem_x509_csr(request.certificate_request.encode())
        except ValueError as error:
            raise IdentityError("the request holds no certificate signing request; make it again") from error
        subject, tls_key = read_subject(asked), requested_key(asked)
        if {request.network, subject.network} != {self.network}:
            raise IdentityError(f"the request is for network {request.network!r}, this is {self.network!r}")
        if set(subject.agents) != {agent.name for agent in request.agents}:
            raise IdentityError(f"host {subject.host!r}: the request contradicts itself; make it again")
        return subject, tls_key


def enroll(authority: Authority, name: str, address: str, hosted_agents: Iterable[str]) -> Identity:
    """A new host with new keys, for a network whose folders are all made on one machine."""
    keys = Keys.new(hosted_agents)
    certificate = authority.certify(keys.request(authority.network, name, address), {})
    return Identity.of(keys, certificate, authority.trust)


def key_text(key: SigningKey) -> bytes:
    """A private signing key as it is kept in a file."""
    return key.seed.hex().encode() + b"\n"


def _claim(network: str, agent: str, certificate_request: str) -> bytes:
    """The words that an agent signs to show that a request is its own."""
    return f"flockwise enrolment 1/{network}/{agent}/{certificate_request}".encode()
