"""X.509 for the connections between hosts: a network's own authority, and the certificates that it signs.

A host's certificate names the host (its common name, by which access is granted), its one address, and
every agent that it runs, each as flockwise:NETWORK/AGENT. Keys are on the curve P-256, which every TLS
library knows.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from flockwise.deploy.credentials import AUTHORITY, DNS, HOST, IP, NETWORK, SCHEME, URI, Subject
from flockwise.errors import IdentityError, MissingExtra
from flockwise.net.names import check_name, ip_address

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

# A device whose clock is late by less than this can use its certificate at once.
CLOCK_SLACK: Final = timedelta(days=1)
# What the parts of a subject and of its alternatives are.
KINDS: Final[dict[object, str]] = {
    NameOID.ORGANIZATION_NAME: NETWORK,
    NameOID.COMMON_NAME: HOST,
    x509.DNSName: DNS,
    x509.IPAddress: IP,
    x509.UniformResourceIdentifier: URI,
}
BOTH_ENDS: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])

TlsKey = ec.EllipticCurvePrivateKey
TlsPublicKey = ec.EllipticCurvePublicKey


def read_subject(signed: x509.Certificate | x509.CertificateSigningRequest) -> Subject:
    """From a certificate or a request; one that this module did not write is refused."""
    names = [(KINDS.get(part.oid, "?"), str(part.value)) for part in signed.subject]
    try:
        alternatives = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise IdentityError(f"a certificate must name a host and its agents: {error}") from error
    return Subject.of(names, [(KINDS.get(type(one), "?"), str(one.value)) for one in alternatives])


def new_tls_key() -> TlsKey:
    return ec.generate_private_key(ec.SECP256R1())


def authority_certificate(network: str, key: TlsKey, lifetime: timedelta) -> x509.Certificate:
    """The root of a network's trust: it signs hosts, and no other authority."""
    name = _name(check_name(network, "network"), AUTHORITY)
    builder = _builder(name, name, key.public_key(), lifetime, is_authority=True)
    return builder.sign(key, hashes.SHA256())


def signing_request(subject: Subject, key: TlsKey) -> x509.CertificateSigningRequest:
    """A host's request to its authority; the private key stays where it is."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(name_of(subject))
    return builder.add_extension(_alternatives(subject), critical=False).sign(key, hashes.SHA256())


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
        _builder(name_of(subject), authority.subject, public_key, lifetime, is_authority=False)
        .add_extension(BOTH_ENDS, critical=False)
        .add_extension(_alternatives(subject), critical=False)
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


def name_of(subject: Subject) -> x509.Name:
    return _name(subject.network, subject.host)


def _alternatives(subject: Subject) -> x509.SubjectAlternativeName:
    number = ip_address(subject.address)
    dialled = x509.DNSName(subject.address) if number is None else x509.IPAddress(number)
    prefix = f"{SCHEME}:{subject.network}/"
    agents = [x509.UniformResourceIdentifier(f"{prefix}{name}") for name in subject.agents]
    return x509.SubjectAlternativeName([dialled, *agents])


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
