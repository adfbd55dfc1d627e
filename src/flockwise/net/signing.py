"""Ed25519 signatures: who made these bytes.

A signature is checked once per process: a gateway with twenty agents that listen to the same neighbor pays
for one check (about 0.1 ms), not for twenty. Checking is most of what a gateway does, and libsodium is twice
as fast at it as OpenSSL.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, TypeVar

from flockwise.errors import IdentityError, MissingExtra

try:
    from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
    from nacl.exceptions import BadSignatureError
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
SEED_BYTES: Final = 32

T = TypeVar("T")


class SigningKey:
    """A private key; its seed is all that has to be kept."""

    def __init__(self, seed: bytes) -> None:
        self.seed = seed
        self.public_key, self._secret = crypto_sign_seed_keypair(seed)

    def sign(self, content: bytes) -> bytes:
        return crypto_sign(content, self._secret)[:SIGNATURE_BYTES]


def new_signing_key() -> SigningKey:
    """From the operating system's randomness."""
    return SigningKey(secrets.token_bytes(SEED_BYTES))


def public_key_of(key: SigningKey) -> bytes:
    return key.public_key


def check_public_key(key: bytes, owner: str) -> bytes:
    """The key, if it can be one."""
    if len(key) != PUBLIC_KEY_BYTES:
        raise IdentityError(
            f"{owner!r}: a public key has {PUBLIC_KEY_BYTES} bytes, got {len(key)}; enroll the agent again"
        )
    return key


def holds(public_key: bytes, content: bytes, signature: bytes) -> bool:
    """Whether the owner of the key signed this content."""
    try:
        crypto_sign_open(signature + content, public_key)
    except BadSignatureError:
        return False
    return True


class Verifier:
    """Shared by the agents of a process: what one of them has checked or read, the others take over.

    Signatures that do not hold are not remembered: anybody can make any number of them.
    """

    def __init__(self, capacity: int = 2**14, messages: int = 2**8) -> None:
        """How many signatures are remembered, and how many messages; a message is wanted by all at once."""
        self._capacity = capacity
        self._messages = messages
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._read: dict[bytes, Any] = {}
        self.checks = 0

    def holds(self, public_key: bytes, content: bytes, signature: bytes) -> bool:
        """Whether the owner of the key signed this content."""
        # The parts of fixed length come first, so no two triples run together.
        digest = sha256(public_key + signature + content).digest()
        if digest in self._known:
            self._known.move_to_end(digest)
            return True
        self.checks += 1
        if not holds(public_key, content, signature):
            return False
        self._known[digest] = None
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return True

    def read_once(self, data: bytes, read: Callable[[bytes], T]) -> T:
        """What `read` makes of these bytes; the same object for everyone who reads them now."""
        known = self._read.get(data)
        if known is None:
            known = self._read[data] = read(data)
            if len(self._read) > self._messages:
                del self._read[next(iter(self._read))]
        return known
