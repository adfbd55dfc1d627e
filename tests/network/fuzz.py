"""Hostile messages by the million, against the way in and an agent behind it.

    python -m tests.network.fuzz --messages 10000000 --seed 1

The oracle knows which bytes honest neighbors have signed. Whatever is let in has to be one of these, with
a number above all that were let in before from the same sender; for everything else the intake's numbers
and the agent's models have to stay as they were, and exactly one reason has to be counted. An exception of
any kind ends the run, and prints the message that caused it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import msgspec
import numpy as np
from tests.network.signers import BOUND, WEIGHT, Signer, counts, intake_of

from flockwise.agent import Agent
from flockwise.net.wire import FRAME, Greeting, ModelBody, Repeat, Signed, greet, limit, say_again
from flockwise.objective import LocalUpdate
from flockwise.privacy.messages import HEADER, MAGIC, encode

DIMENSION = 4
POOL = 64  # signed messages of each kind and sender: signing costs more than changing what is signed
HONEST_EVERY = 500
ME, EVE = Signer("me"), Signer("eve")
NEIGHBORS = (Signer("bo"), Signer("cy"), Signer("di"))
STRANGER_KEYS = tuple(Signer(neighbor.name + "'s impostor") for neighbor in NEIGHBORS)
LENGTHS = (
    b"\xc6\x40\x00\x00\x00",
    b"\xdb\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xc5\xff\xff",
    b"\xdf\x7f\0\0\0",
)
NUMBERS = (
    b"\xcf" + b"\xff" * 8,
    b"\xd3\x80" + bytes(7),
    b"\xcb\x7f\xf8" + bytes(6),
    b"\xcb\x7e\x37\xe4\x3c\x88\0\x75\x9c",
)


class Broken(AssertionError):
    """What must never happen, and the bytes with which it happened."""


class Silent:
    """The local term and the clock of an agent that never updates by itself."""

    def gradient(self, model):
        return np.zeros_like(model)

    def next_tick(self, updates, now):
        return None


def vector(source):
    return np.array([source.uniform(-1.0, 1.0) for _ in range(DIMENSION)])


class Hostile:
    """Makes messages that are not to be let in, out of those that honest neighbors have signed."""

    def __init__(self, source, honest):
        self.upcoming = {}  # name → the message that an honest neighbor has signed and not yet sent
        self.twins = []  # (name, message): another one under a number that was let in
        self.skipped = []  # (name, message): one that was overtaken by a later one
        self._source = source
        self._honest = honest  # name → signed messages that were sent, in order
        self._odd = [(s.name, data) for s in NEIGHBORS for data in _signed_but_wrong(source, s)]
        self._foreign = [
            (neighbor.name, maker.model(source.randrange(1, 10**6), vector(source), sender=sender))
            for neighbor, impostor in zip(NEIGHBORS, STRANGER_KEYS, strict=True)
            for maker, sender in ((impostor, neighbor.name), (EVE, neighbor.name), (EVE, "eve"))
            for _ in range(POOL // 4)
        ]
        self._kinds = (
            self.flipped,
            self.flipped_old,
            self.cut,
            self.extended,
            self.overwritten,
            self.spliced,
            self.claiming,
            self.random_bytes,
            self.random_fields,
            self.swapped_fields,
            self.wrong_but_signed,
            self.forged,
            self.doubled,
            self.overtaken,
            self.of_another,
            self.replayed,
        )

    def make(self):
        """(claimed sender, bytes, name of the kind)"""
        kind = self._source.choice(self._kinds)
        sender, data = kind()
        return sender, data, kind.__name__

    def _any(self):
        """A message that an honest neighbor has signed; more often than not one that was let in long ago."""
        name = self._source.choice(NEIGHBORS).name
        signed = self._honest[name]
        if self._source.random() < 0.1:
            return name, signed[-1]
        return name, signed[self._source.randrange(len(signed))]

    def flipped(self):
        """Single bits of a message that is still to come: most of these reach the check of the signature."""
        name = self._source.choice(NEIGHBORS).name
        return name, self._with_flips(self.upcoming[name])

    def flipped_old(self):
        name, data = self._any()
        return name, self._with_flips(data)

    def _with_flips(self, data):
        changed = bytearray(data)
        for _ in range(self._source.choice((1, 1, 1, 2, 8))):
            changed[self._source.randrange(len(changed))] ^= 1 << self._source.randrange(8)
        return bytes(changed)

    def cut(self):
        name, data = self._any()
        return name, data[: self._source.randrange(len(data))]

    def extended(self):
        name, data = self._any()
        length = self._source.choice((1, 2, 50, limit(DIMENSION)))
        return name, data + self._source.randbytes(length)

    def overwritten(self):
        name, data = self._any()
        begin, length = self._source.randrange(len(data)), self._source.randrange(1, 40)
        return name, data[:begin] + self._source.randbytes(length) + data[begin + length :]

    def spliced(self):
        name, data = self._any()
        _, other = self._any()
        return name, data[: self._source.randrange(len(data))] + other[self._source.randrange(len(other)) :]

    def claiming(self):
        """Lengths of gigabytes and numbers beyond all bounds, where something else was."""
        name, data = self._any()
        place, claim = self._source.randrange(len(FRAME), len(data)), self._source.choice(LENGTHS + NUMBERS)
        return name, data[:place] + claim + data[place + len(claim) :]

    def random_bytes(self):
        name = self._source.choice(("bo", "cy", "di", "eve", "", "\0"))
        frame = FRAME if self._source.random() < 0.5 else b""
        return name, frame + self._source.randbytes(self._source.randrange(200))

    def random_fields(self):
        """The right shape with wrong contents."""
        name = self._source.choice(NEIGHBORS).name
        fields = [
            self._source.choice((None, -1, 2**64 - 1, 1e300, "x" * 100, b"", [], True)) for _ in range(5)
        ]
        kept = ["meadow", name, 5, "none", encode(5, np.ones(DIMENSION))]
        mixed = [self._source.choice(pair) for pair in zip(fields, kept, strict=True)]
        body = msgspec.msgpack.encode([self._source.choice(("model", "relay", "greeting", 7)), *mixed])
        signature = self._source.randbytes(self._source.choice((64, 64, 64, 0, 65)))
        return name, FRAME + msgspec.msgpack.encode([body, signature])

    def swapped_fields(self):
        """One message's body with another's signature, or with another's name, number or payload."""
        name, data = self._any()
        _, other = self._any()
        signed, donor = (msgspec.msgpack.decode(each[len(FRAME) :], type=Signed) for each in (data, other))
        if self._source.random() < 0.5:
            return name, FRAME + msgspec.msgpack.encode(Signed(signed.body, donor.signature))
        mine, its = (msgspec.msgpack.decode(each.body, type=ModelBody) for each in (signed, donor))
        field = self._source.choice(("sender", "number", "payload"))
        body = msgspec.structs.replace(mine, **{field: getattr(its, field)})
        return name, FRAME + msgspec.msgpack.encode(Signed(msgspec.msgpack.encode(body), signed.signature))

    def wrong_but_signed(self):
        """A neighbor's own signature under NaN, 1e300, a wrong length, another network …"""
        return self._source.choice(self._odd)

    def forged(self):
        """A good message with a signature that holds, of somebody else's key."""
        return self._source.choice(self._foreign)

    def doubled(self):
        """A second message under the same number, signed by the neighbor itself."""
        return self._source.choice(self.twins[-10:])

    def overtaken(self):
        """A neighbor's own message under a number that it went past."""
        return self._source.choice(self.skipped[-10:]) if self.skipped else self._any()

    def of_another(self):
        _, data = self._any()
        return self._source.choice(("bo", "cy", "di", "eve", "me", "BO", "")), data

    def replayed(self):
        return self._any()


def _signed_but_wrong(source, signer):
    """What a neighbor that means harm can sign itself, with numbers above all others."""
    good = vector(source)
    for _ in range(POOL // 8):
        number = source.randrange(10**6, 2**62)
        for value in (np.nan, np.inf, -np.inf, 1e300, -1e300, BOUND * 1.01):
            broken = good.copy()
            broken[source.randrange(DIMENSION)] = value
            yield signer.model(number, broken)
        yield signer.model(number, good[:-1])
        yield signer.model(number, np.append(good, 1.0))
        yield signer.model(number, good, network="forest")
        yield signer.model(number, good, privacy="dp")
        yield signer.model(number, good, sender="eve")
        yield signer.model(number, good, payload=encode(number + 1, good))
        yield signer.model(number, good, payload=HEADER.pack(MAGIC, number, 2**32 - 1) + good.tobytes())
        yield signer.model(number, good, payload=source.randbytes(48))
        yield signer.relay("hop", number, good)


@dataclass
class Report:
    """What a run did."""

    messages: int
    accepted: int
    duplicates: int
    dropped: Counter
    kinds: Counter
    seconds: float  # of one core

    @property
    def per_second(self):
        return self.messages / self.seconds


class Campaign:
    """An intake and an agent under fire, with a few honest messages among the hostile ones."""

    def __init__(self, seed):
        self._source = random.Random(seed)
        self._versions = random.Random(seed + 1)
        self._honest = {signer.name: [] for signer in NEIGHBORS}
        self._signed = {signer.name: {} for signer in NEIGHBORS}  # name → message → number
        self._hostile = Hostile(self._source, self._honest)
        self._intake = intake_of(ME, NEIGHBORS, DIMENSION)
        weights: dict[Hashable, float] = dict.fromkeys(self._honest, WEIGHT)
        local = LocalUpdate(Silent(), step_size=0.1, pull=1.0)
        self._agent = Agent("me", local, np.zeros(DIMENSION), weights, Silent())
        self._expected = dict.fromkeys(self._honest, (-1, None))  # name → number and model held
        self._own = ME.model(3, vector(self._source))
        self._counted = 0
        for signer in NEIGHBORS:
            self._prepare(signer)
            self._be_honest(signer)

    def run(self, n_messages):
        kinds, begin = Counter(), time.process_time()
        for i in range(n_messages):
            if i % HONEST_EVERY == 0:
                self._be_honest(self._source.choice(NEIGHBORS))
                kinds["honest"] += 1
                continue
            sender, data, kind = self._hostile.make()
            kinds[kind] += 1
            try:
                if i % 8:
                    self._send(sender, data)
                elif i % 32:
                    self._greet(sender, data)
                else:
                    self._say_again(sender, data)
            except Exception as error:
                raise Broken(f"message {i}, {kind}, as {sender!r}: {data.hex()}") from error
        seconds = time.process_time() - begin
        return Report(
            n_messages, self._intake.accepted, self._intake.duplicates, self._intake.dropped, kinds, seconds
        )

    def _prepare(self, signer):
        """Sign the next message, which is sent some time later."""
        number = self._expected[signer.name][0] + self._source.randrange(1, 4)
        data = signer.model(number, vector(self._source))
        self._signed[signer.name][data] = number
        self._hostile.upcoming[signer.name] = data

    def _be_honest(self, signer):
        """The next message of a neighbor gets in, whatever has happened since its last one."""
        greeted = self._intake.greeting(signer.name, greet(Greeting(WEIGHT, 1, None, self._own)))
        assert greeted is not None
        assert greeted.agrees
        assert greeted.yours is not None
        self._counted += 2
        data, before = self._hostile.upcoming[signer.name], self._expected[signer.name][0]
        number = self._signed[signer.name][data]
        self._send(signer.name, data)
        if number - before > 1:
            self._hostile.skipped.append((signer.name, signer.model(number - 1, vector(self._source))))
        assert self._intake.last_number(signer.name) == number
        self._hostile.twins.append((signer.name, signer.model(number, vector(self._source))))
        sent = self._honest[signer.name]
        sent.append(data)
        if len(sent) > POOL:
            del sent[0]
        self._prepare(signer)

    def _send(self, sender, data):
        message = self._intake.message(sender, data)
        self._counted += 1
        self._judge(sender, data, message)

    def _greet(self, sender, data):
        """Hostile bytes as a greeting, or within a greeting as either message."""
        shape = self._source.randrange(3)
        weight = WEIGHT if self._source.random() < 0.99 else self._source.choice((np.nan, 0.25, 1e300))
        version = 1 if self._versions.random() < 0.99 else 2
        if shape == 0:
            sent = data
        elif shape == 1:
            sent = greet(Greeting(weight, version, data, None))
        else:
            sent = greet(Greeting(weight, version, None, data))
        greeting = self._intake.greeting(sender, sent)
        if greeting is None:
            self._counted += 1
            self._judge(sender, sent, None)
            return
        assert shape != 0, "a message passed for a greeting"
        assert greeting.yours is None, "an own message that was never signed"
        # The greeting itself, and what it brought; without agreement what it brings is not even read.
        self._counted += 2 if greeting.agrees or shape == 2 else 1
        self._judge(sender, data, greeting.mine)

    def _say_again(self, sender, data):
        """Hostile bytes as a repetition of relays, or within one; this intake takes no relays."""
        sent = data if self._source.random() < 0.5 else say_again(Repeat(True, False, [data]))
        repeat = self._intake.repeat(sender, sent)
        assert repeat is None or (sent is not data and not repeat.relays)
        self._counted += 1 if repeat is None else 2
        self._judge(sender, sent, None)

    def _judge(self, sender, data, message):
        if message is not None:
            number = self._signed[sender][data]  # a KeyError: nobody honest has signed this
            assert number == message.number
            assert number > self._expected[sender][0]
            self._agent.on_message(message, 0)
            self._expected[sender] = (number, message.model)
        for name, (number, model) in self._expected.items():
            held = self._agent.neighbors[name]
            assert held.model is model
            assert held.number == number
            assert (self._intake.last_number(name) if number >= 0 else -1) == number
        assert counts(self._intake) == self._counted


def main():
    parser = argparse.ArgumentParser(description="hostile messages by the million")
    parser.add_argument("--messages", type=int, default=10**7)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    report = Campaign(arguments.seed).run(arguments.messages)
    print(
        f"{report.messages} messages in {report.seconds:.1f} s of one core: {report.per_second:.0f} a second"
    )
    print(
        f"accepted {report.accepted}, repeated {report.duplicates}, dropped {sum(report.dropped.values())}:"
    )
    for reason, count in report.dropped.most_common():
        print(f"  {reason:16} {count}")
    print("kinds:", ", ".join(f"{kind} {count}" for kind, count in report.kinds.most_common()))


if __name__ == "__main__":
    main()
