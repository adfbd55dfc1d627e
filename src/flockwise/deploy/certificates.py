"""X.509 for the connections between hosts: a network's own authority, and the certificates that it signs.

A host's certificate names the host (its common name, by which access is granted), its one address, and
every agent that it runs, each as flockwise:NETWORK/AGENT. Keys are on the curve P-256, which every TLS
library knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from flockwise.errors import IdentityError, MissingExtra, NetworkError
from flockwise.net.names import check_name, ip_address, is_dialled

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

AUTHORITY: Final = "flockwise authority"
SCHEME: Final = "flockwise"
# A device whose clock is late by less than this can use its certificate at once.
CLOCK_SLACK: Final = timedelta(days=1)
BOTH_ENDS: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])

TlsKey = ec.EllipticCurvePrivateKey
TlsPublicKey = ec.EllipticCurvePublicKey


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

    def name(self) -> x509.Name:
        return _name(self.network, self.host)

    def alternatives(self) -> x509.SubjectAlternativeName:
        number = ip_address(self.address)
        dialled = x509.DNSName(self.address) if number is None else x509.IPAddress(number)
        agents = [x509.UniformResourceIdentifier(f"{SCHEME}:{self.network}/{name}") for name in self.agents]
        return x509.SubjectAlternativeName([dialled, *agents])

    @classmethod
    def read(cls, signed: x509.Certificate | x509.CertificateSigningRequest) -> Subject:
        """From a certificate or a request; one that this module did not write is refused."""
        try:
            (network,) = signed.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
            (host,) = signed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            (address,) = (
                *map(str, names.get_values_for_type(x509.IPAddress)),
                *names.get_values_for_type(x509.DNSName),
            )
            prefix = f"{SCHEME}:{network.value}/"
            entries = names.get_values_for_type(x509.UniformResourceIdentifier)
            agents = tuple(entry.removeprefix(prefix) for entry in entries)
            subject = cls(str(network.value), str(host.value), address, agents)
        except (ValueError, NetworkError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
            raise IdentityError(
                f"a certificate must name one network, one host and one address: {error}"
            ) from error
        if subject.name() != signed.subject or list(subject.alternatives()) != list(names):
            raise IdentityError(
                f"host {subject.host!r}: its certificate names more than a host and its agents"
            )
        return subject


def new_tls_key() -> TlsKey:
    return ec.generate_private_key(ec.SECP256R1())


def authority_certificate(network: str, key: TlsKey, lifetime: timedelta) -> x509.Certificate:
    """The root of a network's trust: it signs hosts, and no other authority."""
    name = _name(check_name(network, "network"), AUTHORITY)
    builder = _builder(name, name, key.public_key(), lifetime, is_authority=True)
    return builder.sign(key, hashes.SHA256())


def signing_request(subject: Subject, key: TlsKey) -> x509.CertificateSigningRequest:
    """A host's request to its authority; the private key stays where it is."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject.name())
    return builder.add_extension(subject.alternatives(), critical=False).sign(key, hashes.SHA256())


def host_certificate(
    subject: Subject,
    public_key: TlsPublicKey,
    authority: x509.Certificate,
    authority_key: TlsKey,
    lifetime: timedelta,
) -> x509.Certificate:
    """Both ends of a connection show theirs."""
    issuer_key = authority_key.public_key()
    return (
        _builder(subject.name(), authority.subject, public_key, lifetime, is_authority=False)
        .add_extension(BOTH_ENDS, critical=False)
        .add_extension(subject.alternatives(), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def host_key(signed: x509.Certificate | x509.CertificateSigningRequest) -> TlsPublicKey:
    """The public key in a certificate, or in a request for one."""
    key = signed.public_key()
    if not isinstance(key, TlsPublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError("a certificate is signed for a key on the curve P-256; make the request again")
    return key


def requested_key(request: x509.CertificateSigningRequest) -> TlsPublicKey:
    """The public key in a request that is signed by the private one."""
    key = host_key(request)
    if not request.is_signature_valid:
        raise IdentityError("the request is not signed by the key that it holds; make the request again")
    return key


def check_signed(certificate: x509.Certificate, authority: x509.Certificate) -> None:
    """Refuse a certificate that this authority did not sign."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise IdentityError(
            "the certificate was signed by another authority; enroll the host again"
        ) from error


def check_issued(certificate: x509.Certificate, authority: x509.Certificate, now: datetime) -> None:
    """Refuse a certificate that this authority did not sign, or that is out of date."""
    check_signed(certificate, authority)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now <= end:
        raise IdentityError(
            f"the certificate holds from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, and the clock says "
            f"{now:%Y-%m-%d}; set the clock, or have the authority renew it: flockwise network renew DIR"
        )


def key_to_pem(key: TlsKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_from_pem(pem: bytes) -> TlsKey:
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise IdentityError("the file does not hold a private key; restore it or enroll again") from error
    if not isinstance(key, TlsKey):
        raise IdentityError("the key of a host is on the curve P-256, and the file holds another one")
    return key


def certificate_to_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def certificate_from_pem(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise IdentityError("the file does not hold a certificate; restore it or enroll again") from error


def network_of(authority: x509.Certificate) -> str:
    """The network that an authority's certificate is for."""
    names = authority.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    network = "".join(str(name.value) for name in names)
    if authority.subject != _name(network or "?", AUTHORITY):
        raise IdentityError("the certificate is not that of a network's authority")
    return network


def _name(network: str, host: str) -> x509.Name:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, network)
    return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, host)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: TlsPublicKey, lifetime: timedelta, *, is_authority: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    limits = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + lifetime)
        .add_extension(limits, critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
