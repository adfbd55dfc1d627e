"""Who is who: real TLS handshakes, keys for their owner's eyes only, and requests that cannot be bent."""

import importlib
import os
import socket
import ssl
import stat
import sys
import threading
from datetime import timedelta

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from flockwise.deploy import keyfiles
from flockwise.deploy.certificates import (
    certificate_from_pem,
    certificate_to_pem,
    host_certificate,
    key_to_pem,
    name_of,
    new_tls_key,
    read_subject,
)
from flockwise.deploy.credentials import Credentials, Subject, Trust, read_signing_key, tls_files
from flockwise.deploy.identity import Authority, Identity, Keys, Request, enroll, key_text
from flockwise.errors import IdentityError, MissingExtra, NetworkError
from flockwise.net.names import check_name, split_address
from flockwise.net.signing import new_signing_key
from flockwise.net.zenoh.access import TlsFiles

HERE = "127.0.0.1:7447"
SECONDS = 10


@pytest.fixture(scope="module")
def authority():
    return Authority.new("meadow")


@pytest.fixture(scope="module")
def other_authority():
    """Another network's, of the same name."""
    return Authority.new("meadow")


# Links.


def saved(folder, identity):
    identity.save(folder)
    return tls_files(folder)


def context(purpose, files, certificate=True):
    made = ssl.SSLContext(purpose)
    made.verify_mode = ssl.CERT_REQUIRED
    made.hostname_checks_common_name = False  # as in the transport: a host's name is no address
    made.load_verify_locations(files.authority)
    if certificate:
        made.load_cert_chain(files.certificate, files.key)
    return made


def meet(server, client, dialled="127.0.0.1", *, certificate=True):
    """A connection over loopback, both ends showing certificates: what each sees of the other."""
    seen = {}

    def serve(listener):
        try:
            connection, _ = listener.accept()
            with connection, context(ssl.PROTOCOL_TLS_SERVER, server).wrap_socket(connection, True) as link:
                seen["client"] = link.getpeercert()
                link.sendall(b"!")
        except OSError as error:
            seen["refusal"] = error

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), SECONDS) as connection,
                context(ssl.PROTOCOL_TLS_CLIENT, client, certificate).wrap_socket(
                    connection, server_hostname=dialled
                ) as link,
            ):
                seen["server"] = link.getpeercert()
                # With TLS 1.3 a client learns only here that it was refused.
                if link.recv(1) != b"!":
                    raise ConnectionResetError
        finally:
            thread.join(SECONDS)
    return seen


def common_name(certificate):
    return dict(part[0] for part in certificate["subject"])["commonName"]


def test_two_hosts_of_a_network_know_each_other(authority, tmp_path):
    one = saved(tmp_path / "one", enroll(authority, "gate", HERE, ["anna", "bo"]))
    two = saved(tmp_path / "two", enroll(authority, "cy", HERE, ["cy"]))
    seen = meet(one, two)
    assert common_name(seen["server"]) == "gate"
    assert common_name(seen["client"]) == "cy"
    assert seen["server"]["subjectAltName"] == (
        ("IP Address", "127.0.0.1"),
        ("URI", "flockwise:meadow/anna"),
        ("URI", "flockwise:meadow/bo"),
    )


@pytest.mark.parametrize("address", ["localhost:7447", "[::1]:7447"])
def test_a_host_is_dialled_by_name_or_number(authority, tmp_path, address):
    files = saved(tmp_path / "one", enroll(authority, "anna", address, ["anna"]))
    assert meet(files, files, split_address(address)[0])["client"]


def test_a_host_of_another_authority_is_refused_at_either_end(authority, other_authority, tmp_path):
    ours = saved(tmp_path / "ours", enroll(authority, "anna", HERE, ["anna"]))
    theirs = saved(tmp_path / "theirs", enroll(other_authority, "anna", HERE, ["anna"]))
    # Each trusts its own authority, or, to get in, the other's.
    bent = TlsFiles(ours.authority, theirs.certificate, theirs.key)
    for server, client in ((ours, theirs), (theirs, ours)):
        with pytest.raises(ssl.SSLCertVerificationError):
            meet(server, client)
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(bent, ours)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        meet(ours, bent)


def test_a_host_without_a_certificate_is_refused(authority, tmp_path):
    files = saved(tmp_path / "one", enroll(authority, "anna", HERE, ["anna"]))
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        meet(files, files, certificate=False)


def test_a_host_under_another_address_is_refused(authority, tmp_path):
    moved = saved(tmp_path / "moved", enroll(authority, "anna", "192.0.2.1:7447", ["anna"]))
    for dialled in ("127.0.0.1", "localhost", "anna"):
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            meet(moved, moved, dialled)


def test_a_host_whose_time_is_over_is_refused(authority, tmp_path):
    identity = enroll(authority, "anna", HERE, ["anna"])
    files = saved(tmp_path / "one", identity)
    request = identity.keys.request("meadow", "anna", HERE)
    expired = authority.certify(request, {}, lifetime=-timedelta(hours=1))
    files.certificate.write_bytes(expired)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        meet(files, files)
    with pytest.raises(IdentityError, match="flockwise network renew"):
        Credentials.read(tmp_path / "one")


def test_a_host_cannot_admit_others(authority, tmp_path):
    host = enroll(authority, "anna", HERE, ["anna"])
    files = saved(tmp_path / "one", host)
    key = new_tls_key()
    subject = Subject("meadow", "bo", "127.0.0.1", ("bo",))
    forged = host_certificate(
        subject, key.public_key(), certificate_from_pem(host.certificate), host.keys.tls, timedelta(days=1)
    )
    chain, key_file = tmp_path / "chain.pem", tmp_path / "bo.key"
    chain.write_bytes(certificate_to_pem(forged) + host.certificate)
    key_file.write_bytes(key_to_pem(key))
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(TlsFiles(files.authority, chain, key_file), files)


# Files.


def test_an_identity_survives_the_disk(authority, tmp_path):
    identity = enroll(authority, "gate", HERE, ["anna", "bo"])
    identity.save(tmp_path / "gate")
    read = Credentials.read(tmp_path / "gate")
    assert (read.subject, read.trust) == (identity.subject, authority.trust)
    assert (read.subject.host, read.subject.agents) == ("gate", ("anna", "bo"))
    assert read.public_keys == identity.public_keys
    assert read_signing_key(tmp_path / "gate" / "signing" / "bo.key").seed == identity.keys.signing["bo"].seed


def test_an_authority_survives_the_disk(authority, tmp_path):
    authority.save(tmp_path / "authority")
    read = Authority.read(tmp_path / "authority")
    assert (read.network, read.trust) == ("meadow", authority.trust)
    Identity.of(
        (keys := Keys.new(["bo"])), read.certify(keys.request("meadow", "bo", HERE), {}), authority.trust
    )


def test_private_keys_are_for_their_owner_alone(authority, tmp_path):
    usual = os.umask(0)  # what a careless process leaves to everyone
    try:
        authority.save(tmp_path / "authority")
        enroll(authority, "gate", HERE, ["anna", "bo"]).save(tmp_path / "gate")
    finally:
        os.umask(usual)
    modes = {
        path.relative_to(tmp_path).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    secret = {path for path, mode in modes.items() if mode == 0o600}
    assert secret == {
        "authority/authority.key",
        "authority/roster.key",
        "gate/tls.key",
        "gate/signing/anna.key",
        "gate/signing/bo.key",
    }
    assert set(modes) - secret == {
        "authority/authority.pem",
        "authority/roster.pub",
        "gate/authority.pem",
        "gate/roster.pub",
        "gate/tls.pem",
    }
    for folder in ("authority", "gate", "gate/signing"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_a_key_that_others_can_read_is_refused(authority, tmp_path):
    enroll(authority, "anna", HERE, ["anna"]).save(tmp_path / "anna")
    for name in ("tls.key", "signing/anna.key"):
        (tmp_path / "anna" / name).chmod(0o640)
        with pytest.raises(IdentityError, match="others can read this private key"):
            Credentials.read(tmp_path / "anna")
        (tmp_path / "anna" / name).chmod(0o600)


def test_keys_are_never_overwritten(authority, tmp_path):
    authority.save(tmp_path / "authority")
    with pytest.raises(IdentityError, match="there are keys already"):
        Authority.new("meadow").save(tmp_path / "authority")
    assert Authority.read(tmp_path / "authority").trust == authority.trust


@pytest.mark.parametrize("n_written", range(5))
def test_an_interrupted_write_leaves_nothing_behind(authority, tmp_path, monkeypatch, n_written):
    written = []

    def write(path, content, original=keyfiles.write_file):
        if len(written) == n_written:
            raise OSError("the disk is full")
        written.append(path)
        original(path, content)

    monkeypatch.setattr(keyfiles, "write_file", write)
    with pytest.raises(OSError, match="full"):
        enroll(authority, "anna", HERE, ["anna"]).save(tmp_path / "anna")
    assert list(tmp_path.iterdir()) == []


def test_remains_of_a_killed_attempt_are_not_in_the_way(authority, tmp_path):
    part = tmp_path / "anna.part"
    part.mkdir()
    (part / "tls.key").write_text("half a ke")
    enroll(authority, "anna", HERE, ["anna"]).save(tmp_path / "anna")
    assert [path.name for path in tmp_path.iterdir()] == ["anna"]
    key = tmp_path / "anna" / "signing" / "anna.key"
    elsewhere = tmp_path / "elsewhere"
    key.with_name("anna.key.part").symlink_to(elsewhere)
    keyfiles.write_file(key, key_text(new_signing_key()))
    assert not elsewhere.exists()
    assert read_signing_key(key)


DAMAGE = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\xff" * 100),
    "half": lambda path: path.write_bytes(path.read_bytes()[:-40]),
}
FILES = ("authority.pem", "roster.pub", "tls.pem", "tls.key", "signing/anna.key")


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_or_explained(authority, tmp_path, name, damage):
    enroll(authority, "anna", HERE, ["anna"]).save(tmp_path / "anna")
    DAMAGE[damage](tmp_path / "anna" / name)
    with pytest.raises(IdentityError):
        Credentials.read(tmp_path / "anna")


def test_files_of_two_identities_do_not_mix(authority, other_authority, tmp_path):
    for name, root in (("anna", authority), ("bo", authority), ("eve", other_authority)):
        enroll(root, name, HERE, ["anna"]).save(tmp_path / name)

    def mixed(name, source):
        target = tmp_path / f"{source}-{name}"
        enroll(authority, "anna", HERE, ["anna"]).save(target)
        (target / name).write_bytes((tmp_path / source / name).read_bytes())
        return target

    for name, source in (("tls.key", "bo"), ("tls.pem", "bo"), ("tls.pem", "eve")):
        with pytest.raises(IdentityError, match="another key"):
            Credentials.read(mixed(name, source))
    with pytest.raises(IdentityError, match="another authority"):
        Credentials.read(mixed("authority.pem", "eve"))


def test_the_parts_of_an_authority_do_not_mix(authority, other_authority, tmp_path):
    authority.save(tmp_path / "ours")
    other_authority.save(tmp_path / "theirs")
    for name in ("authority.pem", "authority.key", "roster.key", "roster.pub"):
        ours = tmp_path / "ours" / name
        kept = ours.read_bytes()
        ours.write_bytes((tmp_path / "theirs" / name).read_bytes())
        with pytest.raises(IdentityError, match="belong together"):
            Authority.read(tmp_path / "ours")
        ours.write_bytes(kept)
    assert Authority.read(tmp_path / "ours")


# Requests of joining devices.


def test_a_device_joins_without_its_keys_ever_leaving_it(authority, tmp_path):
    keys = Keys.new(["anna", "bo"])
    sent = keys.request("meadow", "gate", HERE).to_json()
    for key in keys.signing.values():
        assert key.seed.hex().encode() not in sent
    assert b"PRIVATE" not in sent
    answer = authority.certify(Request.from_json(sent), {})
    identity = Identity.of(keys, answer, authority.trust)
    identity.save(tmp_path / "gate")
    assert Credentials.read(tmp_path / "gate").public_keys == Request.from_json(sent).public_keys()


def test_an_answer_fits_only_the_keys_that_asked(authority, other_authority):
    keys, others = Keys.new(["anna"]), Keys.new(["anna"])
    answer = authority.certify(keys.request("meadow", "anna", HERE), {})
    with pytest.raises(IdentityError, match="another key"):
        Identity.of(others, answer, authority.trust)
    with pytest.raises(IdentityError, match="another authority"):
        Identity.of(keys, answer, other_authority.trust)
    with pytest.raises(IdentityError, match="lists the agents"):
        Identity.of(Keys(keys.tls, {"bo": new_signing_key()}), answer, authority.trust)


def bent(request, **changes):
    return msgspec.structs.replace(request, **changes)


def test_a_request_that_was_bent_is_refused(authority):
    anna = Keys.new(["anna"]).request("meadow", "anna", HERE)
    bo = Keys.new(["bo"]).request("meadow", "bo", HERE)
    (agent,), (other,) = anna.agents, bo.agents
    for request in (
        bent(anna, agents=[bent(agent, name="bo")]),
        bent(anna, agents=[bent(agent, public_key=other.public_key)]),
        bent(anna, agents=[bent(agent, proof=other.proof)]),
        bent(anna, agents=[bent(agent, proof="not hexadecimal")]),
        bent(anna, agents=[bent(agent, public_key="00")]),
        bent(anna, agents=[agent, agent]),
        bent(anna, agents=[agent, other]),
        bent(anna, agents=[]),
        bent(anna, network="forest"),
        bent(anna, certificate_request=bo.certificate_request),
        bent(anna, certificate_request="nothing"),
    ):
        with pytest.raises(IdentityError):
            authority.certify(request, {})
    assert authority.certify(anna, {})


def test_a_request_of_another_network_is_refused(authority):
    with pytest.raises(IdentityError, match="network 'forest'"):
        authority.certify(Keys.new(["anna"]).request("forest", "anna", HERE), {})


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"network": 1}', b'{"network": "a", "x": 1}'])
def test_bytes_that_are_not_a_request_are_refused(data):
    with pytest.raises(IdentityError, match="not a request"):
        Request.from_json(data)


def test_a_name_that_is_taken_stays_with_its_keys(authority):
    anna, eve = Keys.new(["anna", "bo"]), Keys.new(["anna"])
    request = anna.request("meadow", "gate", HERE)
    enrolled = {"gate": request.public_keys()}
    with pytest.raises(IdentityError, match="agent 'anna' is in the network, with another key"):
        authority.certify(eve.request("meadow", "elsewhere", HERE), enrolled)
    with pytest.raises(IdentityError, match="host 'gate' is in the network"):
        authority.certify(Keys.new(["eve"]).request("meadow", "gate", HERE), enrolled)
    # Its owner renews the certificate, moves an agent, or adds one.
    assert authority.certify(request, enrolled)
    moved = Keys(new_tls_key(), {"anna": anna.signing["anna"]})
    assert authority.certify(moved.request("meadow", "tower", HERE), enrolled)
    grown = Keys(anna.tls, {**anna.signing, "cy": new_signing_key()})
    assert authority.certify(grown.request("meadow", "gate", HERE), enrolled)


def raw_request(names, key=None, subject=None):
    """A certificate signing request with any alternative names and any kind of key."""
    subject = name_of(Subject("meadow", "anna", "127.0.0.1", ("anna",))) if subject is None else subject
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key or new_tls_key(), hashes.SHA256()).public_bytes(Encoding.PEM).decode()


ADDRESS = x509.DNSName("peer.example")
ANNA = x509.UniformResourceIdentifier("flockwise:meadow/anna")
GREEDY = {
    "every host of a domain": [x509.DNSName("*.example"), ANNA],
    "two addresses": [ADDRESS, x509.DNSName("other.example"), ANNA],
    "no address": [ANNA],
    "no agent": [ADDRESS],
    "an agent of another network": [ADDRESS, x509.UniformResourceIdentifier("flockwise:forest/anna")],
    "something else": [ADDRESS, ANNA, x509.RFC822Name("anna@example.org")],
    "an agent twice": [ADDRESS, ANNA, ANNA],
    "a name that is none": [ADDRESS, x509.UniformResourceIdentifier("flockwise:meadow/../anna")],
}


def with_proof(certificate_request):
    keys = Keys.new(["anna"])
    claim = f"flockwise enrolment 1/meadow/anna/{certificate_request}".encode()
    (agent,) = keys.request("meadow", "anna", HERE).agents
    proof = keys.signing["anna"].sign(claim).hex()
    return Request("meadow", certificate_request, [bent(agent, proof=proof)])


def test_a_plain_request_made_elsewhere_is_granted(authority):
    assert authority.certify(with_proof(raw_request([ADDRESS, ANNA])), {})


@pytest.mark.parametrize("kind", GREEDY)
def test_a_request_for_more_than_a_host_and_its_agents_is_refused(authority, kind):
    with pytest.raises(IdentityError):
        authority.certify(with_proof(raw_request(GREEDY[kind])), {})


def test_a_request_with_another_kind_of_key_or_name_is_refused(authority):
    key = rsa.generate_private_key(65537, 2048)
    with pytest.raises(IdentityError, match="P-256"):
        authority.certify(with_proof(raw_request([ADDRESS, ANNA], key)), {})
    unit = x509.NameAttribute(x509.oid.NameOID.ORGANIZATIONAL_UNIT_NAME, "flockwise authority")
    more = x509.Name([*name_of(Subject("meadow", "anna", "127.0.0.1", ("anna",))), unit])
    with pytest.raises(IdentityError, match="names more"):
        authority.certify(with_proof(raw_request([ADDRESS, ANNA], subject=more)), {})


def test_a_certificate_lists_the_agents_of_a_gateway(authority):
    agents = tuple(f"agent-{i}" for i in range(250))
    identity = enroll(authority, "gate", HERE, agents)
    assert read_subject(certificate_from_pem(identity.certificate)).agents == agents


def test_the_authority_signs_no_authority(authority):
    certificate = certificate_from_pem(authority.trust.certificate)
    limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert limits.critical
    assert limits.value.ca
    assert limits.value.path_length == 0
    host = certificate_from_pem(enroll(authority, "anna", HERE, ["anna"]).certificate)
    assert not host.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_trust_is_in_an_authority_and_in_nobody_else(authority):
    host = enroll(authority, "anna", HERE, ["anna"])
    with pytest.raises(IdentityError, match="not that of a network's authority"):
        Trust(host.certificate, authority.trust.roster_key)


# Names and addresses.


@pytest.mark.parametrize("name", ["a", "Anna-7", "user_12.b", "0", "x" * 63])
def test_a_name_that_can_be_one(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 64, "a b", "a/b", "../a", ".a", "-a", "a*", "ä", "a\n", "١"])
def test_a_name_that_cannot(name):
    with pytest.raises(NetworkError, match="a name has 1 to 63"):
        check_name(name)
    with pytest.raises(NetworkError):
        Keys.new([name])


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:7447", ("127.0.0.1", 7447)),
        ("peer.example:1", ("peer.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[0:0::1]:80", ("::1", 80)),
    ],
)
def test_an_address_that_can_be_one(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a",
        ":1",
        "a:",
        "a:0",
        "a:65536",
        "a:1x",
        "a b:1",
        "*.a:1",
        "::1:80",
        "[a]:1",
        "a:٣",
        "-a:1",
        "tls/a:1",
    ],
)
def test_an_address_that_cannot(address):
    with pytest.raises(NetworkError, match="an address is host:port"):
        split_address(address)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    for module in (
        "flockwise.net.wire",
        "flockwise.net.signing",
        "flockwise.deploy.identity",
        "flockwise.deploy.certificates",
    ):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setitem(sys.modules, "nacl.bindings", None)
    with pytest.raises(MissingExtra, match=r"pip install 'flockwise\[net\]'"):
        importlib.import_module("flockwise.net.wire")
    with pytest.raises(MissingExtra, match=r"pip install 'flockwise\[net\]'"):
        importlib.import_module("flockwise.deploy.identity")
