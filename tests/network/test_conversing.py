"""Conversations on a network: the simulated protocol, whatever gets lost, who dies, and what liars say."""

import random
from typing import Any

import numpy as np
import pytest
from tests.network.conversations import NETWORK, TIMEOUT, Post, Town

from flockwise.errors import NetworkError
from flockwise.method.conversation import Direction
from flockwise.net.intake import RELAY_BOUND
from flockwise.net.journal import Ended, FileJournal, MemoryJournal
from flockwise.net.one_release import finished, largest_relay
from flockwise.net.time import SECOND
from flockwise.net.wire import (
    Greeting,
    Rejected,
    RelayBody,
    Repeat,
    greet,
    is_repeat,
    open_repeat,
    say_again,
    sign,
)
from flockwise.privacy.messages import Relay, encode

METHODS = ("lowpass", "release_once")


def assert_as_simulated(town):
    expected = town.simulated()
    assert expected
    for agent, outcome in expected.items():
        found = town.nodes[agent].direction
        if outcome is None:
            assert found is None
        else:
            scale = np.abs(outcome.vector).max()
            np.testing.assert_allclose(found.vector, outcome.vector, rtol=0, atol=1e-9 * scale)
            assert found.quality == pytest.approx(outcome.quality, rel=1e-9)


def assert_released_once(town):
    for agent, life in enumerate(town.lives):
        has_said = bool(town.keys(agent)) and town.problem.population.sample_counts[agent] > 0
        assert (0 if life.ledger is None else life.ledger.consumed) == has_said


@pytest.mark.parametrize("method", METHODS)
def test_agents_end_with_what_the_simulated_protocol_ends_with(method):
    """An isolated agent spends nothing and learns alone."""
    town = Town(method, isolated=1)
    town.start()
    town.run()
    assert_as_simulated(town)
    assert_released_once(town)
    assert not town.dropped()
    alone = town.nodes[town.n_agents - 1]
    assert (alone.direction, alone.is_over, alone.rounds) == (None, False, 0)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_lost_doubled_or_overtaken_changes_nothing(method):
    town = Town(method, 10, 3, post=Post(1, loss=0.1, twice=0.1, in_order=False))
    town.start()
    town.run()
    assert_as_simulated(town)
    assert_released_once(town)
    assert not town.dropped().keys() - {"stale"}  # greetings that were overtaken


@pytest.mark.parametrize("method", METHODS)
def test_agents_that_die_at_any_moment_go_on_where_they_were(method):
    """They say the same bytes again: nobody ever sees two relays for one round."""
    source, town = random.Random(2), Town(method, 10, 3, post=Post(2, loss=0.02, in_order=False))
    town.start()
    deaths = 0
    while deaths < 25:
        town.deliver(source.randrange(600))
        victim = source.randrange(town.n_agents)
        deaths += not town.nodes[victim].is_over
        town.kill(victim)
        if source.random() < 0.5:
            town.step()
        town.start(victim)
        town.step()
    town.run()
    assert_as_simulated(town)
    assert_released_once(town)
    assert not town.dropped().keys() & {"equivocation", "bad_signature"}


def test_what_came_of_it_outlasts_the_process_and_can_be_asked_for():
    town = Town("lowpass", 8, 3)
    town.start()
    town.run()
    before = town.nodes[3].direction
    town.kill(3)
    town.start(3)
    assert town.nodes[3].direction.quality == before.quality
    np.testing.assert_array_equal(town.nodes[3].direction.vector, before.vector)
    assert not list(town.lives[3].journal.rounds())
    # A neighbor that lost its own end finds it with the help of those who have ended.
    lagging = town.nodes[3]._keys[town.name(4)].index
    assert lagging == 4
    answers = []
    town.network.send = lambda sender, receiver, data: answers.append((receiver, data))
    town.nodes[3]._repeated_at.clear()
    town.nodes[3].on_greeting("agent4", say_again(Repeat(True, False, [])))
    ((receiver, data),) = answers
    assert receiver == "agent4"
    repeat = open_repeat(data, 10**5)
    assert (repeat.waits, repeat.is_over, len(repeat.relays)) == (False, True, 2)


# Neighbors that fall silent.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_dead_neighbor_is_left_out_after_a_time_out(method, stage):
    """Before its first word, in the search for the leader, and later on."""
    town = Town(method, 8, 3)
    town.start(*(agent for agent in range(8) if stage or agent != 5))
    town.step()
    if stage:
        town.deliver(60 if stage == 1 else 2000)
        assert not town.nodes[5].is_over
        town.kill(5)
    began = town.time.now()
    town.run()
    waited = (town.time.now() - began) / SECOND
    assert TIMEOUT <= waited < 2 * TIMEOUT if stage else 10 * TIMEOUT <= waited < 11 * TIMEOUT
    for node in town.nodes.values():
        assert node.is_over
        assert node.direction is None or np.isfinite(node.direction.vector).all()


def test_one_time_out_is_not_followed_by_others():
    """Who lives is waited for, though it waits itself: nobody else is given up."""
    town = Town("lowpass", 10, 3)
    town.start()
    town.step()
    town.deliver(2000)
    town.kill(5)
    town.run()
    for agent, node in town.nodes.items():
        lost = {number for number, ear in node._hearing._ears.items() if ear.is_lost}
        assert lost == ({5} if "agent5" in town.keys(agent) else set())


def test_one_that_comes_back_too_late_comes_to_an_end_too():
    town = Town("lowpass", 8, 3)
    town.start()
    town.step()
    town.deliver(1500)
    town.kill(2)
    town.run()
    town.start(2)
    town.run(60)
    assert town.nodes[2].is_over
    assert_released_once(town)


@pytest.mark.parametrize("method", METHODS)
def test_those_who_come_back_too_late_spoil_nothing(method):
    """Two neighbors were away for longer than the time-out: what the others end with is theirs alone."""

    def others(comes_back):
        town = Town(method, 8, 3)
        town.start()
        town.step()
        town.deliver(1500)
        for agent in (2, 3):
            town.kill(agent)
        rounds = town.nodes[6].rounds
        while town.nodes[6].rounds < rounds + 20:
            town.deliver(50)
            if not town.post.letters:
                town.step()
        assert not any(node.is_over for node in town.nodes.values())
        if comes_back:
            town.start(2, 3)
        town.run()
        return [node.direction for agent, node in sorted(town.nodes.items()) if agent not in (2, 3)]

    for one, other in zip(others(False), others(True), strict=True):
        assert one is not None
        np.testing.assert_array_equal(one.vector, other.vector)


def test_a_newcomer_is_told_that_all_is_over_and_spends_nothing():
    """Everyone has gone through it without agent 2, which starts only now."""
    town = Town("lowpass", 8, 3)
    town.start(*(agent for agent in range(8) if agent != 2))
    town.run()
    town.start(2)
    for _ in range(100):
        town.step()
    assert town.time.now() > 20 * SECOND
    ledger = town.lives[2].ledger
    assert ledger is not None
    assert (town.nodes[2].direction, town.nodes[2].rounds, ledger.consumed) == (None, 0, 0)


def test_nothing_is_spent_for_a_neighbor_that_has_ended_while_others_are_gone():
    """All neighbors of agent 2 but one are gone for good, and that one went through it without them."""
    town = Town("lowpass", 8, 3)
    first, *others = [key.index for key in town.keys(2).values()]
    assert others
    town.start(*(agent for agent in range(8) if agent not in (2, *others)))
    town.run()
    town.start(2)
    for _ in range(100):
        town.step()
    node, ledger = town.nodes[2], town.lives[2].ledger
    assert node.neighbors_up == [town.name(first)]
    assert ledger is not None
    assert (node.rounds, ledger.consumed) == (0, 0)


def test_that_it_is_over_is_said_before_every_greeting():
    """The neighbor may release as soon as it is greeted; and it may have forgotten what it was told."""
    town = Town("lowpass", 8, 3)
    town.start()
    town.run()
    (neighbor, *_), said = town.keys(3), list[bytes]()
    town.network.send = lambda sender, receiver, data: said.append(data)
    for _ in range(2):
        town.nodes[3].on_presence(neighbor, True)
    town.time.move_to(town.time.now() + 2 * SECOND)
    town.nodes[3].on_greeting(neighbor, greet(Greeting(town.keys(3)[neighbor].weight, 0, None, None)))
    assert [is_repeat(data) for data in said] == [True, False] * 3
    assert open_repeat(said[0], 10**5).is_over


def test_what_came_in_the_rounds_is_forgotten_at_the_end_and_not_taken_again():
    """Nor by one that is started again after the end."""
    town = Town("lowpass", 8, 3)
    town.start()
    town.step()
    town.deliver(100)
    node, (neighbor, *_) = town.nodes[3], town.keys(3)
    old = town.nodes[town.keys(3)[neighbor].index]._last[-1]
    town.run()
    assert not any(peer.stages for peer in node.intake._peers.values())
    town.kill(3)
    town.start(3)
    for ended in (node, town.nodes[3]):
        before = ended.intake.dropped["stale"]
        ended.on_published(neighbor, old)
        assert ended.intake.dropped["stale"] == before + 1
        assert not ended.intake._peers[neighbor].stages


@pytest.mark.parametrize("is_down", [False, True])
def test_one_that_leaves_the_network_is_not_waited_for(is_down, monkeypatch):
    """Whether the others hear of it at once or when they are started again."""
    town = Town("lowpass", 8, 3)
    town.start()
    town.step()
    town.deliver(2000)
    town.kill(5)
    before = town.keys
    monkeypatch.setattr(
        town, "keys", lambda agent: {name: key for name, key in before(agent).items() if name != "agent5"}
    )
    others = list(town.nodes)
    for agent in others:
        if is_down:
            town.kill(agent)
        else:
            town.nodes[agent].set_neighbors(town.keys(agent), 1)
    if is_down:
        town.start(*others)
    began = town.time.now()
    town.run()
    assert town.time.now() - began < TIMEOUT * SECOND / 4
    assert any(node.direction is not None for node in town.nodes.values())


# Liars.


class Liar:
    """Speaks for an agent, with its key."""

    def __init__(self, town, agent):
        self._town, self._agent = town, agent

    def relay(self, stage, number, vector, *, key=None):
        payload = encode(number, np.array(vector, float))
        life = self._town.lives[self._agent]
        return sign(RelayBody(NETWORK, self._town.name(self._agent), stage, number, payload), key or life.key)

    def tell(self, other, data):
        self._town.nodes[other].on_published(self._town.name(self._agent), data)


def test_hostile_relays_are_dropped_and_counted():
    town = Town("lowpass", 8, 3)
    town.start()
    town.step()
    town.deliver(1000)
    liar, (victim, *_) = Liar(town, 0), [key.index for key in town.keys(0).values()]
    node = town.nodes[victim]
    before = node.intake.dropped.copy()
    honest = liar.relay("reach", 0, [0, 0, 0, -1, -1, -1])
    cases: dict[Any, list[bytes]] = {
        "not_finite": [liar.relay("hop", 0, [np.nan]), liar.relay("hop", 0, [np.inf])],
        "too_large": [
            liar.relay("hop", 0, [2 * RELAY_BOUND]),
            liar.relay("mean/agree", 0, [2 * RELAY_BOUND]),
        ],
        "wrong_dimension": [liar.relay("hop", 0, np.zeros(410)), liar.relay("hop", 0, [])],
        "bad_signature": [liar.relay("hop", 0, [1.0], key=town.lives[1].key)],
        "malformed": [honest[:-1], b"mur\x01"],
        "oversized": [bytes(100_000)],
    }
    for reason, relays in cases.items():
        for data in relays:
            liar.tell(victim, data)
        assert node.intake.dropped[reason] - before[reason] == len(relays), reason
    duplicates = node.intake.duplicates
    liar.tell(victim, liar.relay("late", 5, [1.0]))
    liar.tell(victim, liar.relay("late", 5, [1.0]))
    assert node.intake.duplicates == duplicates + 1
    liar.tell(victim, liar.relay("late", 5, [2.0]))
    assert node.intake.dropped["equivocation"] == 1
    liar.tell(victim, liar.relay("late", 50, [2.0]))
    liar.tell(victim, liar.relay("late", 5, [1.0]))
    assert node.intake.dropped["replayed"] == 1
    town.run()
    assert_as_simulated(town)


def test_a_relay_of_another_size_is_left_out_of_its_round():
    town = Town("lowpass", 8, 3)
    liar, (victim, *_) = Liar(town, 0), [key.index for key in town.keys(0).values()]
    town.start()
    liar.tell(victim, liar.relay("degree", 0, [1.0, 2.0]))
    town.run()
    assert town.nodes[victim].intake.dropped["wrong_dimension"] == 1
    assert all(node.is_over for node in town.nodes.values())


def test_garbage_in_place_of_a_repeat_changes_nothing():
    source, town = random.Random(4), Town("lowpass", 6, 3)
    town.start()
    town.step()
    town.deliver(400)
    node, (neighbor, *_) = town.nodes[0], town.keys(0)
    good = say_again(Repeat(False, False, town.nodes[town.keys(0)[neighbor].index]._last))
    waiting, rounds = node._talk.waiting, node.rounds
    for _ in range(500):
        data = bytearray(good)
        for _ in range(source.randrange(1, 4)):
            data[source.randrange(8, len(data))] = source.randrange(256)
        town.time.move_to(town.time.now() + SECOND // 100)
        node.on_greeting(neighbor, bytes(data[: source.randrange(9, len(data) + 1)]))
        node.on_greeting("stranger", bytes(data))
    assert (node._talk.waiting, node.rounds) == (waiting, rounds)
    assert node.intake.dropped["unknown_sender"] == 500
    town.run()
    assert_as_simulated(town)


def test_a_repeat_has_one_form():
    repeat = Repeat(True, False, [b"one", b"two"])
    assert is_repeat(say_again(repeat))
    assert open_repeat(say_again(repeat), 100) == repeat
    assert not is_repeat(greet(Greeting(1.0, 0, None, None)))
    for wrong in (say_again(repeat)[:-1], say_again(Repeat(True, False, [b"1", b"2", b"3"]))):
        with pytest.raises(Rejected, match="malformed"):
            open_repeat(wrong, 100)
    with pytest.raises(Rejected, match="oversized"):
        open_repeat(say_again(repeat), 10)


ABSURD = {
    "zeros": lambda stage, vector: np.zeros(len(vector)),
    "huge": lambda stage, vector: np.full(len(vector), 1e59),
    "negative": lambda stage, vector: -np.abs(vector) - 1,
    "noise": lambda stage, vector: np.random.default_rng(0).normal(size=len(vector)) * 1e6,
    "infinite": lambda stage, vector: np.full(len(vector), np.inf) if "agree" in stage else vector,
    "a leader that nobody knows": lambda stage, vector: (
        np.array([-9.0, 0, 0, 7, 1e9, 1e9]) if stage == "reach" else vector
    ),
}


@pytest.mark.parametrize("lie", ABSURD)
@pytest.mark.parametrize("method", METHODS)
def test_lies_spoil_what_is_averaged_and_nothing_else(method, lie, monkeypatch):
    """Everyone comes to an end, with a finite model of its own, and has released once."""
    monkeypatch.setattr("flockwise.net.conversing.MOST_ROUNDS", 300)
    monkeypatch.setattr("flockwise.method.lowpass.reach.MOST_ROUNDS", 100)
    town = Town(method, 6, 3)
    town.start()
    signer = town.nodes[0]._voice.signer
    signer.relay = lying(signer.relay, ABSURD[lie])
    town.run()
    assert_released_once(town)
    for agent, node in town.nodes.items():
        assert np.isfinite(finished(town.own_problem(agent), node.direction)).all()


@pytest.mark.parametrize("method", METHODS)
def test_nobody_says_what_honest_neighbors_refuse(method):
    """A lie that all take leaves everyone without a mean: they learn alone, and nobody waits for anybody."""
    town = Town(method, 8, 3)
    town.start()
    signer = town.nodes[0]._voice.signer
    signer.relay = lying(
        signer.relay,
        lambda stage, vector: np.full(len(vector), np.inf) if stage == "mean/agree" else vector,
    )
    town.run(TIMEOUT / 4)
    assert not town.dropped().keys() & {"not_finite", "too_large"}
    assert all(node.direction is None for node in town.nodes.values())
    assert_released_once(town)


def lying(sign_relay, say):
    def lie(relay):
        return sign_relay(Relay(relay.sender, relay.stage, relay.round, say(relay.stage, relay.vector)))

    return lie


# The journal.


def test_no_more_is_heard_than_the_journal_may_hold(monkeypatch):
    monkeypatch.setattr("flockwise.net.conversing.MOST_BYTES", 100_000)
    town = Town("lowpass", 8, 3)
    town.start()
    town.run()
    for agent, node in town.nodes.items():
        assert node.direction is None
        most = len(town.keys(agent)) * 8 * largest_relay(town.task, 3)
        assert node._bytes < 100_000 + most


def test_a_journal_on_disk_holds_what_one_in_memory_does(tmp_path):
    rounds = [{3: np.array([1.5, -np.inf]), 1: np.array([0.0])}, {}, {2: np.linspace(0, 1, 7)}]
    file, memory = FileJournal(tmp_path), MemoryJournal()
    for journal in (file, memory):
        assert journal.load().ties is None
        journal.begin({3: 0.5, 1: 2.0})
        for heard in rounds:
            journal.add(heard)
    file.close()
    file = FileJournal(tmp_path)
    for journal in (file, memory):
        record = journal.load()
        assert record.ties == {3: 0.5, 1: 2.0}
        assert record.ended is None
        for heard, expected in zip(journal.rounds(), rounds, strict=True):
            assert heard.keys() == expected.keys()
            for sender, vector in heard.items():
                np.testing.assert_array_equal(vector, expected[sender])
    full = (tmp_path / "conversation.sqlite").stat().st_size
    for journal in (file, memory):
        journal.end(Ended(Direction(np.array([1.0, 2.0]), 0.25), [b"a", b"b"], 3))
    file.close()
    file = FileJournal(tmp_path)
    for journal in (file, memory):
        record: Any = journal.load()
        assert list(journal.rounds()) == []
        assert (record.ended.relays, record.ended.rounds) == ([b"a", b"b"], 3)
        assert record.ended.direction.quality == 0.25
        np.testing.assert_array_equal(record.ended.direction.vector, [1.0, 2.0])
    file.end(Ended(None, [], 9))
    assert file.load().ended == Ended(None, [], 9)
    file.close()
    assert (tmp_path / "conversation.sqlite").stat().st_size <= full


def test_a_journal_that_cannot_be_read_is_an_error_that_says_so(tmp_path):
    (tmp_path / "conversation.sqlite").write_bytes(b"this is no database, whatever its name says" * 50)
    with pytest.raises(NetworkError, match=r"conversation\.sqlite: the agent's state cannot be used"):
        FileJournal(tmp_path)


def test_a_full_disk_silences_the_agent_until_it_is_started_again(monkeypatch):
    town = Town("lowpass", 8, 3)
    town.start()
    town.step()
    town.deliver(1000)

    def fails(heard):
        raise NetworkError("the disk is full")

    monkeypatch.setattr(town.lives[5].journal, "add", fails)
    town.deliver(200)
    assert town.nodes[5].obstacle == "store"
    monkeypatch.undo()
    town.kill(5)
    town.start(5)
    town.run()
    assert_as_simulated(town)
