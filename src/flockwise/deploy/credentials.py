"""What a host shows to others, and whom it trusts.

A process of agents makes no keys and no certificates, and lives for months: so it does without the library
that makes them, which takes 8 MB. It checks its certificate as others will, by a TLS handshake with itself.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self

from flockwise.deploy.keyfiles import read_file, read_secret
from flockwise.errors import IdentityError, NetworkError
from flockwise.net.names import check_name, ip_address, is_dialled
from flockwise.net.signing import SigningKey, check_public_key, public_key_of
from flockwise.net.zenoh.access import TlsFiles

AUTHORITY: Final = "flockwise authority"
SCHEME: Final = "flockwise"
AUTHORITY_FILE: Final = "authority.pem"
ROSTER_PUBLIC_FILE: Final = "roster.pub"
TLS_FILE: Final = "tls.pem"
TLS_KEY_FILE: Final = "tls.key"
SIGNING_FOLDER: Final = "signing"
# The parts of a name, as the module ssl calls them.
NETWORK, HOST = "organizationName", "commonName"
DNS, IP, URI = "DNS", "IP Address", "URI"
# So long before its end a certificate calls for renewal, more urgently each time.
WARNINGS: Final = (timedelta(days=30), timedelta(days=7), timedelta(days=1), timedelta(0))
# Of OpenSSL: too early, too late.
OUT_OF_DATE: Final = (9, 10)
MOST_STEPS: Final = 4  # of a handshake, each way


@dataclass(frozen=True)
class Subject:
    """A host: its network, its name there, the address under which others dial it, and its agents."""

    network: str
    host: str
    address: str
    agents: tuple[str, ...]

    def __post_init__(self) -> None:
        check_name(self.network, "network")
        check_name(self.host, "host")
        for agent in self.agents:
            check_name(agent, "agent")
        if not self.agents or len(set(self.agents)) != len(self.agents):
            raise IdentityError(f"host {self.host!r}: it must have agents, each once, got {self.agents}")
        if not is_dialled(self.address):
            raise IdentityError(
                f"host {self.host!r}: address={self.address!r} is not the name or number of a host"
            )

    @classmethod
    def of(cls, names: Sequence[tuple[str, str]], alternatives: Sequence[tuple[str, str]]) -> Self:
        """From the names in a certificate or a request, each with its kind; none but those of a host."""
        kinds = [kind for kind, _ in (*names, *alternatives)]
        if kinds[:2] != [NETWORK, HOST] or kinds[2:3] not in ([IP], [DNS]) or {*kinds[3:]} - {URI}:
            raise IdentityError(f"a certificate names more than a host and its agents, or less: {kinds}")
        (_, network), (_, host), (kind, address), *entries = (*names, *alternatives)
        number, prefix = ip_address(address), f"{SCHEME}:{network}/"
        if (number is not None) != (kind == IP) or not all(uri.startswith(prefix) for _, uri in entries):
            raise IdentityError(f"host {host!r}: its certificate names something else than hosts and agents")
        agents = tuple(uri.removeprefix(prefix) for _, uri in entries)
        try:
            return cls(network, host, address if number is None else str(number), agents)
        except NetworkError as error:
            raise IdentityError(
                f"a certificate must name one network, one host and one address: {error}"
            ) from error


@dataclass(frozen=True)
class Trust:
    """What everyone in a network trusts: the authority's certificate and the key of its rosters."""

    certificate: bytes
    roster_key: bytes
    network: str = field(init=False)

    def __post_init__(self) -> None:
        check_public_key(self.roster_key, "authority")
        object.__setattr__(self, "network", _network_of(self.certificate))

    def files(self) -> dict[str, bytes]:
        return {AUTHORITY_FILE: self.certificate, ROSTER_PUBLIC_FILE: self.roster_key.hex().encode() + b"\n"}

    @classmethod
    def read(cls, folder: Path) -> Self:
        path = folder / ROSTER_PUBLIC_FILE
        try:
            roster_key = bytes.fromhex(read_file(path).decode())
        except ValueError as error:
            raise IdentityError(f"{path}: not a public key; restore it or enroll again") from error
        certificate = read_file(folder / AUTHORITY_FILE)
        try:
            return cls(certificate, roster_key)
        except IdentityError as error:
            raise IdentityError(f"{folder / AUTHORITY_FILE}: {error}") from error


@dataclass(frozen=True)
class Credentials:
    """Of an admitted host, read and checked; the public keys are those of its agents."""

    subject: Subject
    trust: Trust
    public_keys: Mapping[str, bytes]

    @classmethod
    def read(
        cls,
        folder: Path,
        signing: Mapping[str, SigningKey] | None = None,
        *,
        without: Collection[str] = (),
    ) -> Self:
        """From a host's identity folder.

        signing: the keys of the agents, where they are not in the folder.
        without: agents without a key.
        """
        trust = Trust.read(folder)
        for read, name in ((read_file, TLS_FILE), (read_secret, TLS_KEY_FILE)):
            read(folder / name)
        subject, _ = _shown_by(folder)
        if signing is None:
            files = {name: folder / SIGNING_FOLDER / f"{name}.key" for name in subject.agents}
            signing = {name: read_signing_key(path) for name, path in files.items()}
        check_listed(subject, {*signing, *without})
        return cls(subject, trust, {name: public_key_of(key) for name, key in signing.items()})


def check_listed(subject: Subject, agents: Collection[str]) -> None:
    """Refuse a certificate that is for other agents than those whose keys are here."""
    if set(subject.agents) != set(agents):
        raise IdentityError(
            f"host {subject.host!r}: the certificate lists the agents {sorted(subject.agents)}, and the "
            f"keys are those of {sorted(agents)}; enroll the host again"
        )


def tls_files(folder: Path) -> TlsFiles:
    """Those of a host with this identity folder."""
    return TlsFiles(folder / AUTHORITY_FILE, folder / TLS_FILE, folder / TLS_KEY_FILE)


def read_signing_key(path: Path) -> SigningKey:
    """Of an agent, or of an authority's rosters."""
    content = read_secret(path)
    try:
        return SigningKey(bytes.fromhex(content.decode()))
    except ValueError as error:
        raise IdentityError(f"{path}: not a signing key; restore it or enroll again") from error


def own_end(folder: Path) -> float | None:
    """When the certificate in an identity folder ends, in seconds since 1970; None if others refuse it."""
    try:
        return _end_of(folder, (folder / TLS_FILE).stat().st_mtime_ns)
    except (OSError, IdentityError):
        return None


def urgency(left: timedelta) -> int:
    """How many of the warnings are due: 0 for none, 4 once the certificate has ended."""
    return sum(left <= warning for warning in WARNINGS)


@lru_cache(maxsize=1)
def _end_of(folder: Path, _: int) -> float:
    """Once for each certificate that is put there."""
    return _shown_by(folder)[1]


@lru_cache(maxsize=1)
def _network_of(authority: bytes) -> str:
    """The network that an authority's certificate is for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=authority.decode())
    except (ValueError, ssl.SSLError) as error:
        raise IdentityError("the file does not hold a certificate; restore it or enroll again") from error
    match [_names(found, "subject") for found in context.get_ca_certs()]:
        case [[(kind, network), name]] if kind == NETWORK and name == (HOST, AUTHORITY):
            return network
    raise IdentityError("the certificate is not that of a network's authority")


def _shown_by(folder: Path) -> tuple[Subject, float]:
    """The host in a certificate, and its end, as a host of the same network sees and believes it."""
    files = tls_files(folder)
    try:
        sides = [_context(kind, files) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)]
        shown = _meet(*sides)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code not in OUT_OF_DATE:
            raise IdentityError(
                "the certificate was signed by another authority; enroll the host again"
            ) from error
        raise IdentityError(
            f"{error.verify_message} (by the clock it is {datetime.now(UTC):%Y-%m-%d}); set the clock, or "
            "have the authority renew it: flockwise network renew DIR"
        ) from error
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise IdentityError("the certificate is for another key; enroll the host again") from error
        raise IdentityError(
            f"{folder}: a file does not hold a certificate, or its key; restore it or enroll again"
        ) from error
    subject = Subject.of(_names(shown, "subject"), shown.get("subjectAltName", ()))
    return subject, float(ssl.cert_time_to_seconds(shown["notAfter"]))


def _context(kind: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(files.certificate, files.key, password="")  # never ask anybody for one
    context.load_verify_locations(files.authority)
    return context


def _meet(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """What the server shows in a handshake in which both ends believe each other."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for _ in range(MOST_STEPS):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].getpeercert() or {}


def _names(shown: Mapping[str, Any], what: str) -> list[tuple[str, str]]:
    return [pair for part in shown.get(what, ()) for pair in part]
