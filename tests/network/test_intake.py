"""The way in: what is in order passes once; all else is dropped, counted once, and changes nothing."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.network.signers import BOUND, NETWORK, WEIGHT, Signer, counts, intake_of

from flockwise.agent import Message
from flockwise.errors import IdentityError, NetworkError
from flockwise.net.intake import MAX_STAGES, REMEMBERED, NeighborKey
from flockwise.net.outbox import Signer as OwnSigner
from flockwise.net.rate import RateLimit
from flockwise.net.signing import Verifier
from flockwise.net.time import SECOND
from flockwise.net.wire import FORMAT, FRAME, Greeting, Sent, greet, limit
from flockwise.privacy.messages import HEADER, MAGIC, Relay, encode

ME, BO, CY, EVE = Signer("me"), Signer("bo"), Signer("cy"), Signer("eve")
DIMENSION = 3
HERE = np.array([0.5, -1.0, 2.0])
NEIGHBORS = (BO, CY)


def intake(**options):
    return intake_of(ME, NEIGHBORS, DIMENSION, **options)


def state(entrance):
    """All that the intake holds of its neighbors."""
    return {
        name: (peer.key, peer.agrees, asdict(peer.model), {s: asdict(t) for s, t in peer.stages.items()})
        for name, peer in entrance._peers.items()
    }


def assert_dropped(entrance, reason, sender, data):
    """Dropped under exactly this reason, and nothing else has changed."""
    before, dropped, accepted = state(entrance), entrance.dropped.copy(), entrance.accepted
    assert entrance.message(sender, data) is None
    assert entrance.dropped - dropped == {reason: 1}
    assert (entrance.accepted, state(entrance)) == (accepted, before)


def test_a_model_of_a_neighbor_gets_in():
    entrance = intake()
    data = BO.model(4, HERE)
    message = entrance.message("bo", data)
    assert isinstance(message, Message)
    assert (message.sender, message.number, message.release) == ("bo", 4, None)
    np.testing.assert_array_equal(message.model, HERE)
    assert entrance.last_number("bo") == 4
    assert entrance.last_data("bo") == data
    assert (entrance.last_number("cy"), entrance.last_data("cy")) == (None, None)
    assert (entrance.accepted, entrance.duplicates, entrance.dropped) == (1, 0, {})


def test_a_private_model_carries_the_bytes_of_the_gate():
    entrance = intake(privacy="dp")
    message = entrance.message("bo", BO.model(1, HERE, privacy="dp"))
    assert isinstance(message, Message)
    np.testing.assert_array_equal(message.model, HERE)


def rewritten(old, new):
    """A good message with other bytes in it, still signed as before."""
    data = BO.model(5, HERE).replace(old, new)
    assert data != BO.model(5, HERE)
    return data


HOSTILE = {
    "too long by a byte": ("oversized", "bo", bytes(limit(DIMENSION) + 1)),
    "a megabyte of a real message": ("oversized", "bo", BO.model(5, np.ones(2**17))),
    "a stranger": ("unknown_sender", "eve", EVE.model(5, HERE)),
    "the agent itself": ("unknown_sender", "me", ME.model(5, HERE)),
    "nothing": ("malformed", "bo", b""),
    "a frame without content": ("malformed", "bo", FRAME),
    "cut off": ("malformed", "bo", BO.model(5, HERE)[:-1]),
    "continued": ("malformed", "bo", BO.model(5, HERE) + b"\0"),
    "a greeting instead": ("malformed", "bo", greet(Greeting(WEIGHT, 1, None, None))),
    "a later version": ("wrong_version", "bo", FORMAT + b"\x02" + BO.model(5, HERE)[4:]),
    "another network": ("wrong_network", "bo", BO.model(5, HERE, network="forest")),
    "a neighbor's message under another name": ("stolen_name", "bo", CY.model(5, HERE)),
    "a stranger's message under a neighbor's name": ("stolen_name", "bo", EVE.model(5, HERE)),
    "signed by a stranger in a neighbor's name": ("bad_signature", "bo", EVE.model(5, HERE, sender="bo")),
    "signed by another neighbor in its name": ("bad_signature", "bo", CY.model(5, HERE, sender="bo")),
    "a changed coordinate": ("bad_signature", "bo", rewritten(HERE.tobytes()[-8:], np.float64(3).tobytes())),
    "a label that this agent does not take": ("wrong_label", "bo", BO.model(5, HERE, privacy="dp")),
    "a relay where there are none": ("wrong_label", "bo", BO.relay("hop", 1, HERE)),
    "a coordinate too few": ("wrong_dimension", "bo", BO.model(5, HERE[:2])),
    "a coordinate too many": ("wrong_dimension", "bo", BO.model(5, np.ones(4))),
    "no coordinate": ("wrong_dimension", "bo", BO.model(5, [])),
    "not a number": ("not_finite", "bo", BO.model(5, [0.0, np.nan, 0.0])),
    "not a number, beside 1e300": ("not_finite", "bo", BO.model(5, [1e300, np.nan, np.inf])),
    "infinite": ("not_finite", "bo", BO.model(5, [0.0, 0.0, -np.inf])),
    "1e300": ("too_large", "bo", BO.model(5, [0.0, -1e300, 0.0])),
    "a bit above the bound": ("too_large", "bo", BO.model(5, [np.nextafter(BOUND, np.inf), 0.0, 0.0])),
    "four billion coordinates claimed": (
        "malformed",
        "bo",
        BO.model(5, HERE, payload=HEADER.pack(MAGIC, 5, 2**32 - 1) + HERE.tobytes()),
    ),
    "the payload of another number": ("malformed", "bo", BO.model(5, HERE, payload=encode(6, HERE))),
    "an empty payload": ("malformed", "bo", BO.model(5, HERE, payload=b"")),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_message_that_is_not_in_order_is_dropped_and_counted(kind):
    reason, sender, data = HOSTILE[kind]
    entrance = intake()
    entrance.message("bo", BO.model(4, HERE))
    assert_dropped(entrance, reason, sender, data)
    # And nobody is the worse for it: the honest one is heard all the same.
    assert entrance.message("bo", BO.model(5, HERE)) is not None


def test_the_bound_itself_is_allowed():
    assert intake().message("bo", BO.model(1, [BOUND, -BOUND, 0.0])) is not None


def test_the_same_message_again_counts_as_a_repetition():
    entrance = intake()
    data = BO.model(4, HERE)
    entrance.message("bo", data)
    before = state(entrance)
    assert entrance.message("bo", data) is None
    assert (entrance.duplicates, entrance.dropped, state(entrance)) == (1, {}, before)


def test_an_old_message_is_replayed_and_an_overtaken_one_stale():
    entrance = intake()
    for number in (1, 2, 4, 9):
        entrance.message("bo", BO.model(number, HERE))
    for number in (1, 2, 4):
        assert_dropped(entrance, "replayed", "bo", BO.model(number, HERE))
    for number in (0, 3, 5, 8):
        assert_dropped(entrance, "stale", "bo", BO.model(number, HERE))


def test_a_message_older_than_the_memory_counts_as_replayed():
    entrance = intake()
    entrance.message("bo", BO.model(REMEMBERED + 10, HERE))
    assert_dropped(entrance, "stale", "bo", BO.model(11, HERE))
    assert_dropped(entrance, "replayed", "bo", BO.model(10, HERE))
    entrance.message("bo", BO.model(2**62, HERE))
    assert_dropped(entrance, "replayed", "bo", BO.model(REMEMBERED + 10, HERE))
    assert entrance._peers["bo"].model.window == 1


def test_an_old_number_costs_no_check_of_a_signature():
    verifier = Verifier()
    entrance = intake(verifier=verifier)
    entrance.message("bo", BO.model(4, HERE))
    for number in range(4):
        entrance.message("bo", EVE.model(number, HERE, sender="bo"))
    assert verifier.checks == 1


def test_two_messages_under_one_number_are_told_from_a_forgery():
    entrance = intake()
    entrance.message("bo", BO.model(4, HERE))
    assert_dropped(entrance, "equivocation", "bo", BO.model(4, 2 * HERE))
    assert_dropped(entrance, "bad_signature", "bo", EVE.model(4, 2 * HERE, sender="bo"))


def test_a_forgery_with_a_high_number_does_not_lock_the_owner_out():
    entrance = intake()
    assert_dropped(entrance, "bad_signature", "bo", EVE.model(2**62, HERE, sender="bo"))
    assert_dropped(entrance, "not_finite", "bo", BO.model(2**61, HERE * np.nan))
    assert entrance.message("bo", BO.model(1, HERE)) is not None


def test_a_process_checks_a_signature_once():
    verifier = Verifier()
    first, second = intake(verifier=verifier), intake(verifier=verifier)
    data = BO.model(4, HERE)
    assert first.message("bo", data) is not None
    assert second.message("bo", data) is not None
    assert verifier.checks == 1


def test_a_known_signature_does_not_vouch_for_other_bytes_or_keys():
    verifier = Verifier()
    intake(verifier=verifier).message("bo", BO.model(4, HERE))
    forged = EVE.model(4, HERE, sender="bo")
    other = intake(verifier=verifier)
    assert_dropped(other, "bad_signature", "bo", forged)
    assert_dropped(other, "bad_signature", "bo", forged)
    assert verifier.checks == 3


def test_a_process_reads_a_message_once():
    verifier = Verifier()
    first, second = (intake(verifier=verifier).message("bo", BO.model(4, HERE)) for _ in range(2))
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert first.model is second.model
    assert not first.model.flags.writeable


def test_a_message_that_another_agent_may_read_can_be_too_long_for_this_one():
    verifier = Verifier()
    long = BO.model(4, np.ones(200))
    assert intake_of(ME, NEIGHBORS, 200, verifier=verifier).message("bo", long) is not None
    entrance = intake(verifier=verifier)
    assert_dropped(entrance, "oversized", "bo", long)
    greeting = entrance.greeting("bo", hello(mine=long))
    assert greeting is None or greeting.mine is None


def test_a_signature_made_in_the_same_process_needs_no_check():
    verifier = Verifier()
    data = OwnSigner(NETWORK, "bo", "none", BO.key, verifier).model(4, HERE).data
    assert intake(verifier=verifier).message("bo", data) is not None
    assert verifier.checks == 0
    assert_dropped(intake(verifier=verifier), "bad_signature", "bo", EVE.model(4, HERE, sender="bo"))


def test_a_verifier_holds_a_few_messages():
    verifier = Verifier(messages=2)
    seen = []

    def read(data):
        seen.append(data)
        return data

    for data in (b"a", b"b", b"a", b"c", b"c", b"a"):
        assert verifier.read_once(data, read) == data
    assert seen == [b"a", b"b", b"c", b"a"]


def test_a_verifier_forgets_the_oldest():
    verifier = Verifier(capacity=2)
    signed = [(n, BO.key.sign(n)) for n in (b"one", b"two", b"three")]
    for content, signature in signed:
        assert verifier.holds(BO.public_key, content, signature)
    assert verifier.holds(BO.public_key, *signed[2])
    assert verifier.checks == 3
    assert verifier.holds(BO.public_key, *signed[0])
    assert verifier.checks == 4


def test_a_flood_is_cut_off_and_the_others_are_heard():
    now = 0
    entrance = intake(clock=lambda: now, rate=RateLimit(per_second=10, burst=5))
    for _ in range(5):
        assert_dropped(entrance, "malformed", "bo", b"noise")
    for _ in range(100):
        assert_dropped(entrance, "flooded", "bo", b"noise")
    assert_dropped(entrance, "flooded", "bo", BO.model(1, HERE))
    assert entrance.message("cy", CY.model(1, HERE)) is not None
    now += SECOND // 10
    assert entrance.message("bo", BO.model(1, HERE)) is not None
    assert_dropped(entrance, "flooded", "bo", BO.model(2, HERE))
    now -= SECOND  # a clock that goes back gives nothing away
    assert_dropped(entrance, "flooded", "bo", BO.model(2, HERE))
    now += 1000 * SECOND
    assert [entrance.greeting("bo", b"") for _ in range(7)] == [None] * 7
    assert entrance.dropped["flooded"] == 100 + 3 + 2


@pytest.mark.parametrize("settings", [(0.0, 5), (np.inf, 5), (np.nan, 5), (1.0, 0)])
def test_a_rate_that_limits_nothing_or_everything_is_refused(settings):
    with pytest.raises(NetworkError, match=r"(per_second|burst) must be"):
        RateLimit(*settings)


# Relays.


def test_relays_are_numbered_within_their_stage():
    entrance = intake(relay_dimension=10)
    relay = entrance.message("cy", CY.relay("hop", 2, np.ones(10)))
    assert isinstance(relay, Relay)
    assert (relay.sender, relay.stage, relay.round, relay.vector.size) == (1, "hop", 2, 10)
    assert entrance.message("cy", CY.relay("mean", 0, [1.0])) is not None
    assert entrance.message("cy", CY.relay("hop", 1, [1.0])) is not None  # it was overtaken
    assert entrance.message("cy", CY.relay("hop", 1, [1.0])) is None
    assert entrance.duplicates == 1
    assert_dropped(entrance, "equivocation", "cy", CY.relay("hop", 1, [2.0]))
    assert_dropped(entrance, "equivocation", "cy", CY.relay("hop", 2, [1.0]))
    assert_dropped(entrance, "wrong_dimension", "cy", CY.relay("hop", 3, np.ones(11)))
    assert_dropped(entrance, "wrong_dimension", "cy", CY.relay("hop", 3, []))
    assert_dropped(entrance, "not_finite", "cy", CY.relay("new", 3, [np.nan]))
    assert entrance.message("cy", CY.relay("hop", 3, [1.0])) is not None
    assert entrance.last_number("cy") is None


def test_a_neighbor_cannot_invent_stages_for_ever():
    entrance = intake(relay_dimension=1)
    for stage in range(MAX_STAGES):
        assert entrance.message("bo", BO.relay(f"stage-{stage}", 0, [1.0])) is not None
    assert_dropped(entrance, "flooded", "bo", BO.relay("one more", 0, [1.0]))
    assert entrance.message("bo", BO.relay("stage-0", 1, [1.0])) is not None


# Greetings.


def hello(weight=WEIGHT, version=1, mine=None, yours=None):
    return greet(Greeting(weight, version, mine, yours))


def test_a_greeting_brings_the_last_model_and_shows_the_own():
    entrance = intake()
    mine, yours = BO.model(7, HERE), ME.model(3, HERE)
    greeting = entrance.greeting("bo", hello(mine=mine, yours=yours))
    assert greeting is not None
    assert isinstance(greeting.mine, Message)
    assert greeting.agrees
    assert (greeting.mine.number, entrance.last_data("bo"), greeting.yours) == (7, mine, Sent(3, yours))
    assert entrance.last_number("bo") == 7
    again = entrance.greeting("bo", hello(mine=mine))
    assert again is not None
    assert (again.mine, again.yours, entrance.duplicates) == (None, None, 1)


def test_a_greeting_that_a_later_message_overtook_counts_as_a_repetition():
    entrance = intake()
    for number in (5, 7):
        entrance.message("bo", BO.model(number, HERE))
    for number in (5, 6):
        greeting = entrance.greeting("bo", hello(mine=BO.model(number, HERE)))
        assert greeting is not None
        assert greeting.mine is None
    assert (entrance.last_number("bo"), entrance.duplicates, entrance.dropped) == (7, 2, {})


@pytest.mark.parametrize("kind", [kind for kind, (_, sender, _) in HOSTILE.items() if sender == "bo"])
def test_a_message_in_a_greeting_is_checked_like_any_other(kind):
    reason, _, data = HOSTILE[kind]
    entrance = intake()
    before = state(entrance)
    greeting = entrance.greeting("bo", hello(mine=data))
    if greeting is not None:
        assert greeting.mine is None
    assert entrance.dropped == {reason: 1}
    assert state(entrance) == before


FALSE_ECHOES = {
    "signed by someone else": ("bad_signature", BO.model(9, HERE, sender="me")),
    "someone else's": ("stolen_name", BO.model(9, HERE)),
    "of another network": ("wrong_network", ME.model(9, HERE, network="forest")),
    "a relay": ("malformed", ME.relay("hop", 9, HERE)),
    "garbage": ("malformed", b"garbage"),
    "long": ("oversized", bytes(limit(DIMENSION) + 1)),
}


@pytest.mark.parametrize("kind", FALSE_ECHOES)
def test_nobody_can_make_an_agent_believe_that_it_sent_something(kind):
    reason, yours = FALSE_ECHOES[kind]
    entrance = intake()
    greeting = entrance.greeting("bo", hello(yours=yours))
    assert greeting is not None
    assert greeting.yours is None
    assert entrance.dropped == {reason: 1}


@pytest.mark.parametrize("weight", [2 * WEIGHT, float(np.nextafter(WEIGHT, 1)), 0.0, -WEIGHT, np.nan, np.inf])
def test_a_neighbor_with_another_weight_is_not_heard_until_it_agrees(weight):
    entrance = intake()
    mine, yours = BO.model(7, HERE), ME.model(3, HERE)
    greeting = entrance.greeting("bo", hello(weight, mine=mine, yours=yours))
    assert greeting is not None
    assert (greeting.agrees, greeting.mine, greeting.yours) == (False, None, Sent(3, yours))
    assert not entrance._peers["bo"].agrees
    assert_dropped(entrance, "weight", "bo", mine)
    assert entrance.message("cy", CY.model(1, HERE)) is not None
    settled = entrance.greeting("bo", hello(mine=mine))
    assert settled is not None
    assert settled.mine is not None
    assert entrance.message("bo", BO.model(8, HERE)) is not None


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_neighbor_with_other_settings_is_not_heard_until_it_agrees(version):
    entrance = intake(settings_version=2)
    mine, yours = BO.model(7, HERE), ME.model(3, HERE)
    greeting = entrance.greeting("bo", hello(version=version, mine=mine, yours=yours))
    assert greeting is not None
    assert (greeting.agrees, greeting.mine, greeting.yours) == (False, None, Sent(3, yours))
    assert_dropped(entrance, "wrong_settings", "bo", mine)
    assert entrance.dropped == {"wrong_settings": 2}
    # A new weight is not what they disagree about.
    entrance.set_neighbors({"bo": NeighborKey(BO.public_key, 0.75)})
    assert_dropped(entrance, "wrong_settings", "bo", mine)
    assert entrance.greeting("bo", hello(0.75, version=2)) is not None
    assert entrance.message("bo", BO.model(8, HERE)) is not None


def test_a_greeting_that_is_none_is_dropped():
    entrance = intake()
    assert entrance.greeting("eve", hello()) is None
    assert entrance.greeting("bo", hello()[:-1]) is None
    assert entrance.greeting("bo", BO.model(1, HERE)) is None
    assert entrance.greeting("bo", bytes(10**4)) is None
    assert entrance.dropped == {"unknown_sender": 1, "malformed": 2, "oversized": 1}


# A new roster.


def test_a_new_roster_forgets_who_left_and_keeps_who_stays():
    entrance = intake()
    for signer in NEIGHBORS:
        entrance.message(signer.name, signer.model(4, HERE))
    entrance.set_neighbors(
        {"cy": NeighborKey(CY.public_key, WEIGHT), "eve": NeighborKey(EVE.public_key, 1.0)}
    )
    assert_dropped(entrance, "unknown_sender", "bo", BO.model(5, HERE))
    assert entrance.last_number("cy") == 4
    assert entrance.message("eve", EVE.model(1, HERE)) is not None


def test_a_neighbor_with_a_new_key_begins_anew():
    entrance = intake()
    entrance.message("bo", BO.model(4, HERE))
    entrance.set_neighbors({"bo": NeighborKey(EVE.public_key, WEIGHT)})
    assert_dropped(entrance, "bad_signature", "bo", BO.model(5, HERE))
    assert entrance.message("bo", EVE.model(1, HERE, sender="bo")) is not None


def test_a_new_weight_settles_a_disagreement_and_an_unchanged_one_does_not():
    entrance = intake()
    entrance.greeting("bo", hello(0.75))
    entrance.set_neighbors({"bo": NeighborKey(BO.public_key, WEIGHT)})
    assert not entrance._peers["bo"].agrees
    entrance.set_neighbors({"bo": NeighborKey(BO.public_key, 0.75)})
    assert entrance._peers["bo"].agrees
    assert entrance.message("bo", BO.model(1, HERE)) is not None


def test_an_intake_with_wrong_settings_is_refused():
    for bound in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(NetworkError, match="magnitude_bound"):
            intake(magnitude_bound=bound)
    with pytest.raises(IdentityError, match="'bo': a public key has 32 bytes"):
        intake().set_neighbors({"bo": NeighborKey(b"short", WEIGHT)})


def test_after_a_restart_the_stored_bytes_bring_the_numbers_back():
    before, after = intake(), intake()
    before.message("bo", BO.model(4, HERE))
    assert after.message("bo", before.last_data("bo") or b"") is not None
    assert_dropped(after, "stale", "bo", BO.model(3, HERE))


# Whatever comes, in whatever order.

ARRIVALS = {
    **{f"bo {n}": ("bo", BO.model(n, HERE), n) for n in range(8)},
    **{f"cy {n}": ("cy", CY.model(n, HERE), n) for n in range(4)},
    **{kind: (sender, data, None) for kind, (_, sender, data) in HOSTILE.items()},
    "another bo 3": ("bo", BO.model(3, 2 * HERE), 3),
}


@given(st.lists(st.sampled_from(sorted(ARRIVALS)), max_size=60))
def test_accepted_numbers_strictly_increase_and_everything_is_counted_once(kinds):
    entrance = intake()
    last: dict[str, int | None] = {"bo": None, "cy": None}
    for done, kind in enumerate(kinds, 1):
        sender, data, number = ARRIVALS[kind]
        before = entrance.accepted
        message = entrance.message(sender, data)
        is_new = number is not None and ((held := last[sender]) is None or number > held)
        assert (message is not None) == is_new == (entrance.accepted > before)
        if is_new:
            last[sender] = number
        assert {name: entrance.last_number(name) for name in last} == last
        assert counts(entrance) == done


@given(st.lists(st.sampled_from(sorted(ARRIVALS)), max_size=30))
def test_greetings_count_what_they_bring_one_by_one(kinds):
    entrance = intake()
    for kind in kinds:
        before = counts(entrance)
        greeting = entrance.greeting("bo", hello(mine=ARRIVALS[kind][1], yours=ME.model(1, HERE)))
        assert counts(entrance) == before + (1 if greeting is None else 3)


@given(st.lists(st.tuples(st.integers(0, 3 * SECOND), st.booleans()), max_size=80))
def test_a_bucket_never_lets_more_through_than_its_rate(steps):
    """In any stretch of time: at most the burst and what has flowed in since."""
    now = 0
    limit_ = RateLimit(per_second=2.0, burst=3)
    entrance = intake(clock=lambda: now, rate=limit_)
    passed = []
    for pause, is_back in steps:
        now = max(0, now - pause) if is_back else now + pause
        before = entrance.dropped["flooded"]
        entrance.message("bo", b"noise")
        if entrance.dropped["flooded"] == before:
            passed.append(max([now, *passed]))
    for i, begin in enumerate(passed):
        for j in range(i, len(passed)):
            assert j - i + 1 <= limit_.burst + (passed[j] - begin) / SECOND * limit_.per_second + 1e-6
