"""Messages between agents, byte for byte: versioned, strict, bounded, and signed by their senders.

A message is 4 bytes that name the format and its version, then MessagePack: the body, and the sender's
signature over the body and the name of the network. The body holds the names and, as its payload, the
vector in the encoding of `flockwise.privacy.messages`: for a private model the very bytes that the gate
charged for.

Bytes from outside are untrusted. Decoding executes nothing and follows one fixed schema without nesting;
no claim about a length is believed before that many bytes are there. Every message has one encoding: what
would be written differently by this module is refused, so nobody can make two messages out of one.
`Rejected` is all that reading ever raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import MissingExtra, NetworkError, PrivacyError
from flockwise.net.names import MAX_NAME
from flockwise.net.signing import SIGNATURE_BYTES, SigningKey
from flockwise.privacy import messages

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

VERSION: Final = 1
FORMAT: Final = b"flk"
FRAME: Final = FORMAT + bytes([VERSION])
MAX_STAGE: Final = 63
MAX_NUMBER: Final = 2**63 - 1
# Relays that are kept to be sent again.
REPEATED: Final = 2
# More than all that is not coordinates: two names, a stage, numbers, tags, lengths and the signature.
OVERHEAD: Final = 512

# Why a message is dropped. A repetition of the last message is not among them.
Reason: TypeAlias = Literal[
    "oversized",
    "unknown_sender",
    "flooded",
    "malformed",
    "wrong_version",
    "wrong_network",
    "stolen_name",
    "wrong_label",
    "weight",
    "wrong_settings",
    "stale",
    "replayed",
    "bad_signature",
    "equivocation",
    "wrong_dimension",
    "not_finite",
    "too_large",
]
PrivacyLabel: TypeAlias = Literal["none", "dp"]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class Rejected(NetworkError):
    """Bytes from outside that are not taken; `reason` is the word under which they are counted."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"a message was refused: {reason}")
        self.reason: Reason = reason


class Fields(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Everything on the wire is an array of fields in a fixed order."""


class ModelBody(Fields, tag="model", frozen=True):
    """A model: one that the gate released ("dp"), or a plain one, which says so ("none")."""

    network: Name
    sender: Name
    number: Number
    privacy: PrivacyLabel
    payload: bytes


class RelayBody(Fields, tag="relay", frozen=True):
    """A message of a protocol, computed from releases, relays and public values alone."""

    network: Name
    sender: Name
    stage: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_STAGE)]
    round: Number
    payload: bytes


Body: TypeAlias = ModelBody | RelayBody


class Signed(Fields, frozen=True):
    """A body's bytes, and its sender's signature."""

    body: bytes
    signature: Signature


class Greeting(Fields, tag="greeting", frozen=True):
    """What two neighbors say when they meet.

    It needs no signature of its own: `mine` is signed by its sender and `yours` by its receiver, and
    weight and version are compared with the receiver's own signed roster.

    weight, version: of their edge, and of the public settings that the sender follows.
    mine: the sender's last message.
    yours: the receiver's last model that the sender holds, as the receiver signed it.
    is_answer: an answer is not answered.
    """

    weight: float
    version: Number
    mine: bytes | None
    yours: bytes | None
    is_answer: bool = False


class Repeat(Fields, tag="repeat", frozen=True):
    """The last relays of an agent in a conversation, for a neighbor that may have missed them.

    It needs no signature of its own either: its relays are signed, and the rest leads to one answer at most.

    waits: whether it misses something of the receiver's.
    is_over: whether it has nothing more to say.
    relays: its last ones, in order. Two are enough: neighbors are at most one round apart as long as nobody
        is given up.
    """

    waits: bool
    is_over: bool
    relays: Annotated[list[bytes], msgspec.Meta(max_length=REPEATED)]


@dataclass(frozen=True)
class Sent:
    """A message that was made ready to leave: the same number always has the same bytes."""

    number: int
    data: bytes


@dataclass(slots=True)
class Opened:
    """A message that follows the schema; whether the signature holds is yet to be asked.

    vector, largest: the coordinates as they came, and the largest of them, whatever its sign; that is not a
    number if any of them is none.
    proven_by: the public key under which its signature was found to hold.

    All agents of a process that get the same bytes share this object: nothing is worked out twice.
    """

    body: Body
    signed: Signed
    vector: NDArray[np.float64]
    largest: float
    proven_by: bytes | None = None

    @property
    def content(self) -> bytes:
        """The bytes under the signature."""
        return signed_content(self.body.network, self.signed.body)


def limit(dimension: int) -> int:
    """The most bytes that a message with so many coordinates can have."""
    return OVERHEAD + messages.HEADER.size + dimension * messages.COORDINATE.itemsize


def greeting_limit(dimension: int) -> int:
    """The most bytes of a greeting: it holds two messages."""
    return OVERHEAD + 2 * limit(dimension)


def signed_content(network: str, body: bytes) -> bytes:
    """A signature binds a message to its network; a name holds no slash, so nothing runs together."""
    return b"flockwise/%d/%s/" % (VERSION, network.encode()) + body


def sign(body: Body, key: SigningKey) -> bytes:
    """The bytes that travel; the same body and key always give the same ones."""
    encoded = msgspec.msgpack.encode(body)
    signature = key.sign(signed_content(body.network, encoded))
    return FRAME + msgspec.msgpack.encode(Signed(encoded, signature))


def open_signed(data: bytes, max_bytes: int) -> Opened:
    """The message in these bytes, or `Rejected`."""
    signed = _decode(data, max_bytes, _SIGNED)
    body = _decoded(signed.body, _BODY)
    vector = _vector_in(body)
    return Opened(body, signed, vector, float(np.abs(vector).max(initial=0.0)))


def greet(greeting: Greeting) -> bytes:
    return FRAME + msgspec.msgpack.encode(greeting)


def open_greeting(data: bytes, max_bytes: int) -> Greeting:
    """The greeting in these bytes, or `Rejected`."""
    return _decode(data, max_bytes, _GREETING)


def say_again(repeat: Repeat) -> bytes:
    return FRAME + msgspec.msgpack.encode(repeat)


def is_repeat(data: bytes) -> bool:
    """Whether these bytes can be nothing else: greetings come the same way."""
    return data.startswith(_REPEAT_BEGINS)


def open_repeat(data: bytes, max_bytes: int) -> Repeat:
    """The relays that are sent again in these bytes, or `Rejected`."""
    return _decode(data, max_bytes, _REPEAT)


_SIGNED: Final = msgspec.msgpack.Decoder(Signed)
_BODY: Final[msgspec.msgpack.Decoder[Body]] = msgspec.msgpack.Decoder(Body)
_GREETING: Final = msgspec.msgpack.Decoder(Greeting)
_REPEAT: Final = msgspec.msgpack.Decoder(Repeat)
# Frame, length of the array, length of the tag, tag.
_REPEAT_BEGINS: Final = say_again(Repeat(False, False, []))[: len(FRAME) + 2 + len("repeat")]


def _vector_in(body: Body) -> NDArray[np.float64]:
    """`Rejected` if the payload holds none, or that of another number."""
    try:
        number, vector = messages.decode(body.payload)
    except PrivacyError as error:
        raise Rejected("malformed") from error
    if number != (body.number if isinstance(body, ModelBody) else body.round):
        raise Rejected("malformed")
    return vector


def _decode(data: bytes, max_bytes: int, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    if len(data) > max_bytes:
        raise Rejected("oversized")
    if data[: len(FRAME)] != FRAME:
        is_ours = len(data) > len(FORMAT) and data.startswith(FORMAT)
        raise Rejected("wrong_version" if is_ours else "malformed")
    return _decoded(data[len(FRAME) :], decoder)


def _decoded(data: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    try:
        value = decoder.decode(data)
        # The same content can be written with longer lengths or other kinds of numbers: one form is ours.
        is_canonical = msgspec.msgpack.encode(value) == data
    except ValueError as error:  # msgspec's own errors, and text that is not UTF-8
        raise Rejected("malformed") from error
    if not is_canonical:
        raise Rejected("malformed")
    return value
