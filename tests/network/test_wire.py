"""Messages survive the way there and back, have one encoding each, and are bounded; all else is refused."""

import tracemalloc
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.network.signers import Signer

from flockwise.net import wire
from flockwise.net.signing import holds
from flockwise.net.wire import (
    FORMAT,
    FRAME,
    MAX_NUMBER,
    Greeting,
    ModelBody,
    Rejected,
    RelayBody,
    Signed,
    greet,
    greeting_limit,
    limit,
    open_greeting,
    open_signed,
    sign,
)
from flockwise.privacy.messages import HEADER, MAGIC, encode

ANNA = Signer("anna")
PLENTY = 2**16

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True)
numbers = st.integers(0, MAX_NUMBER)
vectors = st.lists(st.floats(), max_size=20).map(np.array)
models = st.builds(
    lambda network, sender, number, privacy, vector: ModelBody(
        network, sender, number, privacy, encode(number, vector)
    ),
    *(names, names, numbers, st.sampled_from(["none", "dp"]), vectors),
)
relays = st.builds(
    lambda network, sender, stage, round, vector: RelayBody(
        network, sender, stage, round, encode(round, vector)
    ),
    *(names, names, names, numbers, vectors),
)


def refusal(data, max_bytes=PLENTY, read=open_signed):
    with pytest.raises(Rejected) as caught:
        read(data, max_bytes)
    return caught.value.reason


def envelope(body):
    """Any body, signed by Anna, in a proper envelope."""
    return FRAME + msgspec.msgpack.encode(Signed(body, ANNA.key.sign(body)))


@given(models | relays)
def test_a_message_survives_the_way_there_and_back(body):
    data = sign(body, ANNA.key)
    opened = open_signed(data, PLENTY)
    assert opened.body == body
    assert holds(ANNA.public_key, opened.content, opened.signed.signature)
    assert opened.vector.tobytes() == body.payload[HEADER.size :]
    assert sign(opened.body, ANNA.key) == data


@given(models | relays)
def test_no_message_exceeds_the_limit_of_its_dimension(body):
    assert len(sign(body, ANNA.key)) <= limit((len(body.payload) - HEADER.size) // 8)


@given(st.floats(), numbers, st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=50))
def test_a_greeting_survives_too(weight, version, mine, yours):
    read = open_greeting(greet(Greeting(weight, version, mine, yours)), PLENTY)
    assert (read.version, read.mine, read.yours) == (version, mine, yours)
    assert read.weight == weight or weight != weight


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_read_or_rejected(data, is_framed):
    for read in (open_signed, open_greeting):
        with suppress(Rejected):
            read(FRAME + data if is_framed else data, PLENTY)


@given(models, st.data())
def test_a_changed_byte_breaks_the_schema_or_the_signature(body, data):
    sent = bytearray(sign(body, ANNA.key))
    sent[data.draw(st.integers(0, len(sent) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        opened = open_signed(bytes(sent), PLENTY)
    except Rejected:
        return
    assert not holds(ANNA.public_key, opened.content, opened.signed.signature)


def test_a_signature_is_for_one_network():
    here, there = (open_signed(ANNA.model(1, [1.0], network=name), PLENTY) for name in ("here", "there"))
    assert not holds(ANNA.public_key, here.content, there.signed.signature)


def test_a_message_has_one_encoding():
    """The same fields with a longer length than needed, or a float for an integer, are no message."""
    body = msgspec.msgpack.encode(ModelBody("meadow", "anna", 7, "none", encode(7, np.ones(2))))
    longer = body.replace(b"\xa6meadow", b"\xd9\x06meadow")
    assert open_signed(envelope(body), PLENTY).body.network == "meadow"
    assert refusal(envelope(longer)) == "malformed"
    signed = ANNA.model(7, np.ones(2))
    wider = signed.replace(FRAME + b"\x92\xc4", FRAME + b"\x92\xc5\x00")
    assert len(wider) == len(signed) + 1
    assert refusal(wider) == "malformed"
    whole = greet(Greeting(1.0, 1, None, None)).replace(msgspec.msgpack.encode(1.0), b"\x01")
    assert refusal(whole, read=open_greeting) == "malformed"


def test_another_version_is_told_from_garbage():
    data = ANNA.model(1, [1.0])
    assert refusal(FORMAT + b"\x02" + data[len(FRAME) :]) == "wrong_version"
    assert refusal(b"fur" + data[3:]) == "malformed"
    for end in range(len(FRAME)):
        assert refusal(FRAME[:end]) == "malformed"


def test_a_message_that_is_too_long_is_not_even_read():
    data = ANNA.model(1, np.ones(5))
    assert open_signed(data, len(data))
    assert refusal(data, len(data) - 1) == "oversized"
    assert refusal(b"\xff" * (limit(3) + 1), limit(3)) == "oversized"
    assert refusal(b"\xff" * (greeting_limit(3) + 1), greeting_limit(3), open_greeting) == "oversized"


CLAIMS = {
    "a body of 1 GB": b"\x92\xc6\x40\x00\x00\x00",
    "a signature of 1 GB": b"\x92\xc4\x01x\xc6\x40\x00\x00\x00",
    "four billion fields": b"\xdd\xff\xff\xff\xff",
    "a map of four billion": b"\xdf\xff\xff\xff\xff",
    "an extension of 1 GB": b"\xc9\x40\x00\x00\x00\x01",
    "ten thousand arrays in each other": b"\x91" * 10**4,
    "ten thousand maps in each other": b"\x81\xa1a" * 10**4,
}
INNER_CLAIMS = {
    "a name of 1 GB": b"\x96\xa5model\xdb\x40\x00\x00\x00",
    "a payload of 1 GB": b"\x96\xa5model\xa1n\xa1a\x01\xa4none\xc6\x40\x00\x00\x00",
    "an unknown kind": b"\x91\xa4code",
    "no kind": b"\x90",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_costs_no_memory(claim):
    tracemalloc.start()
    for read in (open_signed, open_greeting):
        assert refusal(FRAME + CLAIMS[claim], 2**20, read) == "malformed"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("claim", INNER_CLAIMS)
def test_nor_does_one_within_the_body(claim):
    tracemalloc.start()
    assert refusal(envelope(INNER_CLAIMS[claim])) == "malformed"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


FIELDS = ["meadow", "anna", 3, "none", encode(3, np.ones(2))]
BAD_FIELDS = [
    (0, ""),
    (0, "n" * 64),
    (0, b"meadow"),
    (1, None),
    (1, 17),
    (2, -1),
    (2, MAX_NUMBER + 1),
    (2, 3.0),
    (2, True),
    (2, "3"),
    (3, "secret"),
    (3, "DP"),
    (4, "text"),
    (4, [1, 2]),
]


@pytest.mark.parametrize(("position", "value"), BAD_FIELDS)
def test_a_field_of_the_wrong_kind_is_refused(position, value):
    fields = FIELDS.copy()
    fields[position] = value
    assert refusal(envelope(msgspec.msgpack.encode(["model", *fields]))) == "malformed"


def test_a_field_too_many_or_too_few_is_refused():
    assert open_signed(envelope(msgspec.msgpack.encode(["model", *FIELDS])), PLENTY)
    assert refusal(envelope(msgspec.msgpack.encode(["model", *FIELDS[:-1]]))) == "malformed"
    assert refusal(envelope(msgspec.msgpack.encode(["model", *FIELDS, 0]))) == "malformed"
    assert refusal(envelope(msgspec.msgpack.encode(["relay", *FIELDS]))) == "malformed"


def test_text_that_is_not_utf8_is_refused():
    body = msgspec.msgpack.encode(["model", *FIELDS]).replace(b"meadow", b"mead\xff\xfe")
    assert refusal(envelope(body)) == "malformed"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        MAGIC,
        HEADER.pack(b"FURM", 3, 0),
        HEADER.pack(MAGIC, 3, 2**32 - 1),
        HEADER.pack(MAGIC, 3, 2) + bytes(15),
        HEADER.pack(MAGIC, 3, 2) + bytes(17),
        HEADER.pack(MAGIC, 4, 1) + bytes(8),
        HEADER.pack(MAGIC, 2**64 - 1, 1) + bytes(8),
    ],
)
def test_a_payload_without_a_vector_or_with_that_of_another_number_is_refused(payload):
    for data in (ANNA.model(3, [], payload=payload), ANNA.relay("hop", 3, [], payload=payload)):
        with pytest.raises(Rejected) as caught:
            open_signed(data, PLENTY)
        assert caught.value.reason == "malformed"


def test_the_bytes_are_fixed():
    """Old and new versions talk to each other: this changes only together with VERSION."""
    assert wire.VERSION == 1
    assert ANNA.model(3, [1.0, -2.0], privacy="dp").hex() == (
        "666c6b0192c43996a56d6f64656ca66d6561646f77a4616e6e6103a26470c420464c4b5703000000000000000200000000"
        "0000000000f03f00000000000000c0c44066cf8f22921d918c09650ba909c811aa4b84888d89390d2ea47d76b6760c521a"
        "e07d90b03e83aa1f8a51e3f6d21e0cce250847df1bdae6f903875c47a1357109"
    )
