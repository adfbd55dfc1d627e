"""Conversations on a network: the simulated protocol, whatever gets lost, who dies, and what liars say."""

import random
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.network.conversations import (
    PROTOCOLS,
    TIMEOUT,
    Conversation,
    UnreliableQueue,
    assert_same_direction,
)
from tests.network.signers import Signer
from tests.network.world import name_of

from flockwise.errors import NetworkError
from flockwise.net.conversing import MOST_MISSED
from flockwise.net.intake import RELAY_BOUND
from flockwise.net.journal import Ended, FileJournal
from flockwise.net.time import SECOND
from flockwise.net.wire import (
    Greeting,
    Rejected,
    RelayBody,
    Repeat,
    greet,
    is_repeat,
    open_repeat,
    open_signed,
    say_again,
)
from flockwise.privacy.messages import Relay
from flockwise.protocol.conversation import Direction
from flockwise.runtime.own_model import along
from flockwise.runtime.testing import MemoryJournal, Packet

METHODS = tuple(PROTOCOLS)


def assert_as_simulated(world):
    expected = world.simulated()
    assert expected
    for agent, outcome in expected.items():
        assert_same_direction(world.nodes[agent].role.direction, outcome)


def assert_released_once(world):
    for agent in range(world.n_agents):
        has_said = bool(world.keys(agent)) and world.problem.population.sample_counts[agent] > 0
        assert world.memory(agent).ledger.consumed == has_said


@pytest.mark.parametrize("method", METHODS)
def test_agents_come_to_the_results_of_the_simulated_protocol(method):
    """An isolated agent spends nothing and learns alone."""
    world = Conversation(method, isolated=1)
    world.start()
    world.run_to_the_end()
    assert_as_simulated(world)
    assert_released_once(world)
    assert not world.dropped()
    alone = world.nodes[world.n_agents - 1]
    assert (alone.role.direction, alone.role.is_over, alone.role.rounds) == (None, False, 0)


@pytest.mark.parametrize("method", METHODS)
def test_packets_that_are_lost_doubled_or_reordered_do_not_change_the_results(method):
    world = Conversation(method, 10, 3, queue=UnreliableQueue(1, loss=0.1, twice=0.1))
    world.start()
    world.run_to_the_end()
    assert_as_simulated(world)
    assert_released_once(world)
    assert not world.dropped().keys() - {"stale"}  # greetings that were overtaken


@pytest.mark.parametrize("method", METHODS)
def test_agents_that_die_at_any_moment_go_on_where_they_were(method):
    """They say the same bytes again: nobody ever sees two relays for one round."""
    source, world = random.Random(2), Conversation(method, 10, 3, queue=UnreliableQueue(2, loss=0.02))
    world.start()
    deaths = 0
    while deaths < 25:
        world.deliver(source.randrange(600))
        victim = source.randrange(world.n_agents)
        deaths += not world.nodes[victim].role.is_over
        world.kill(victim)
        if source.random() < 0.5:
            world.step()
        world.start(victim)
        world.step()
    world.run_to_the_end()
    assert_as_simulated(world)
    assert_released_once(world)
    assert not world.dropped().keys() & {"equivocation", "bad_signature"}


def test_a_result_outlasts_the_process_and_neighbors_can_ask_for_the_last_relays():
    world = Conversation("lowpass", 8, 3)
    world.start()
    world.run_to_the_end()
    before = world.nodes[3].role.direction
    world.kill(3)
    world.start(3)
    assert world.nodes[3].role.direction.quality == before.quality
    np.testing.assert_array_equal(world.nodes[3].role.direction.vector, before.vector)
    assert not list(world.memory(3).journal.rounds())
    # A neighbor that lost its own end finds it with the help of those who have ended.
    lagging = world.nodes[3].intake.neighbors["agent4"].index
    assert lagging == 4
    answers = []
    world.network.send = lambda sender, receiver, data: answers.append((receiver, data))
    world.nodes[3].role._repeated_at.clear()
    world.nodes[3].on_greeting("agent4", say_again(Repeat(True, False, [])))
    ((receiver, data),) = answers
    assert receiver == "agent4"
    repeat = open_repeat(data, 10**5)
    assert (repeat.waits, repeat.is_over, len(repeat.relays)) == (False, True, 2)


# Neighbors that fall silent.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_dead_neighbor_is_left_out_after_a_time_out(method, stage):
    """Before its first word, in the search for the leader, and later on."""
    world = Conversation(method, 8, 3)
    world.start(*(agent for agent in range(8) if stage or agent != 5))
    world.step()
    if stage:
        world.deliver(60 if stage == 1 else 2000)
        assert not world.nodes[5].role.is_over
        world.kill(5)
    began = world.time.now()
    world.run_to_the_end()
    waited = (world.time.now() - began) / SECOND
    assert TIMEOUT <= waited < 2 * TIMEOUT if stage else 10 * TIMEOUT <= waited < 11 * TIMEOUT
    for node in world.nodes.values():
        assert node.role.is_over
        assert node.role.direction is None or np.isfinite(node.role.direction.vector).all()


def test_after_one_time_out_nobody_else_is_given_up():
    """A live neighbor is waited for, though it waits itself: nobody else is given up."""
    world = Conversation("lowpass", 10, 3)
    world.start()
    world.step()
    world.deliver(2000)
    world.kill(5)
    world.run_to_the_end()
    for agent, node in world.nodes.items():
        lost = {number for number, state in node.role._states.items() if state.is_lost}
        assert lost == ({5} if "agent5" in world.keys(agent) else set())


class Stalling(deque):
    """Packets on their way. Agent 5 seems to live, and says every second round, ahead of time."""

    is_on = False

    def append(self, packet):
        if not self.is_on or "agent5" not in (packet.sender, packet.receiver):
            super().append(packet)
        elif packet.receiver == "agent5":
            self._answer(packet)

    def _answer(self, packet):
        last = packet.data
        if is_repeat(last):
            last = open_repeat(last, 10**6).relays[-1]
            sign_of_life = say_again(Repeat(True, False, []))
            super().append(Packet("agent5", packet.sender, "greeting", sign_of_life))
        elif packet.kind == "greeting":
            return
        heard = open_signed(last, 10**6)
        assert isinstance(heard.body, RelayBody)
        ahead = heard.body.round + 1 + heard.body.round % 2
        data = Signer("agent5").relay(heard.body.stage, ahead, np.zeros(heard.vector.size))
        super().append(Packet("agent5", packet.sender, "published", data))


def test_a_live_neighbor_that_answers_every_second_round_is_dropped_before_long():
    """It never misses two rounds in a row."""
    queue = Stalling()
    world = Conversation("lowpass", 8, 3, queue=queue)
    world.start()
    world.step()
    world.deliver(1400)
    while world.nodes[4].role._talk.waiting[1] % 2:
        world.deliver(1)
    queue.is_on, began = True, world.time.now()
    honest = [node for agent, node in world.nodes.items() if agent != 5]
    world.run_until(lambda: all(node.role.is_over for node in honest), 30 * TIMEOUT)
    assert world.time.now() - began > 20 * TIMEOUT * SECOND, "it was waited for again and again"
    neighbors = [node for node in honest if "agent5" in node.intake.neighbors]
    assert {node.role._states[5].missed_in_all for node in neighbors} == {MOST_MISSED}
    for node in honest:
        assert {number for number, state in node.role._states.items() if state.is_lost} <= {5}


def test_an_agent_that_comes_back_too_late_ends_its_conversation_too():
    world = Conversation("lowpass", 8, 3)
    world.start()
    world.step()
    world.deliver(1500)
    world.kill(2)
    world.run_to_the_end()
    world.start(2)
    world.run_to_the_end(60)
    assert world.nodes[2].role.is_over
    assert_released_once(world)


@pytest.mark.parametrize("method", METHODS)
def test_agents_that_come_back_too_late_do_not_change_the_results_of_others(method):
    """Two neighbors were away for longer than the time-out: what the others end with is theirs alone."""

    def others(comes_back):
        world = Conversation(method, 8, 3)
        world.start()
        world.step()
        world.deliver(1500)
        for agent in (2, 3):
            world.kill(agent)
        rounds = world.nodes[6].role.rounds
        while world.nodes[6].role.rounds < rounds + 20:
            world.deliver(50)
            if not len(world.network.queue):
                world.step()
        assert not any(node.role.is_over for node in world.nodes.values())
        if comes_back:
            world.start(2, 3)
        world.run_to_the_end()
        return [node.role.direction for agent, node in sorted(world.nodes.items()) if agent not in (2, 3)]

    for one, other in zip(others(False), others(True), strict=True):
        assert one is not None
        np.testing.assert_array_equal(one.vector, other.vector)


def test_an_agent_that_starts_after_the_end_is_told_so_and_spends_nothing():
    """Everyone has gone through it without agent 2, which starts only now."""
    world = Conversation("lowpass", 8, 3)
    world.start(*(agent for agent in range(8) if agent != 2))
    world.run_to_the_end()
    world.start(2)
    for _ in range(100):
        world.step()
    assert world.time.now() > 20 * SECOND
    ledger = world.memory(2).ledger
    assert (world.nodes[2].role.direction, world.nodes[2].role.rounds, ledger.consumed) == (None, 0, 0)


def test_an_agent_does_not_release_if_its_only_connected_neighbor_has_ended():
    """All neighbors of agent 2 but one are gone for good, and that one went through it without them."""
    world = Conversation("lowpass", 8, 3)
    first, *others = [key.index for key in world.keys(2).values()]
    assert others
    world.start(*(agent for agent in range(8) if agent not in (2, *others)))
    world.run_to_the_end()
    world.start(2)
    for _ in range(100):
        world.step()
    node, ledger = world.nodes[2], world.memory(2).ledger
    assert node.neighbors_up == [name_of(first)]
    assert (node.role.rounds, ledger.consumed) == (0, 0)


def test_an_agent_that_has_ended_says_so_before_every_greeting():
    """The neighbor may release as soon as it is greeted; and it may have forgotten what it was told."""
    world = Conversation("lowpass", 8, 3)
    world.start()
    world.run_to_the_end()
    (neighbor, *_), said = world.keys(3), list[bytes]()
    world.network.send = lambda sender, receiver, data: said.append(data)
    for _ in range(2):
        world.nodes[3].on_presence(neighbor, True)
    world.time.move_to(world.time.now() + 2 * SECOND)
    world.nodes[3].on_greeting(neighbor, greet(Greeting(world.keys(3)[neighbor].weight, 1, None, None)))
    assert [is_repeat(data) for data in said] == [True, False] * 3
    assert open_repeat(said[0], 10**5).is_over


def test_relays_are_forgotten_at_the_end_and_refused_afterwards():
    """Nor by one that is started again after the end."""
    world = Conversation("lowpass", 8, 3)
    world.start()
    world.step()
    world.deliver(100)
    node, (neighbor, *_) = world.nodes[3], world.keys(3)
    old = world.nodes[world.keys(3)[neighbor].index].role._last[-1]
    world.run_to_the_end()
    assert not any(peer.stages for peer in node.intake._peers.values())
    world.kill(3)
    world.start(3)
    for ended in (node, world.nodes[3]):
        before = ended.intake.dropped["stale"]
        ended.on_published(neighbor, old)
        assert ended.intake.dropped["stale"] == before + 1
        assert not ended.intake._peers[neighbor].stages


@pytest.mark.parametrize("is_down", [False, True])
def test_an_agent_that_leaves_the_network_is_not_waited_for(is_down):
    """Whether the others hear of it at once or when they are started again."""
    world = Conversation("lowpass", 8, 3)
    world.start()
    world.step()
    world.deliver(2000)
    world.kill(5)
    world.definitions = {name: without_agent5(one) for name, one in world.definitions.items()}
    others = list(world.nodes)
    for agent in others:
        if is_down:
            world.kill(agent)
        else:
            world.nodes[agent].set_neighbors(world.keys(agent), 2)
    if is_down:
        world.start(*others)
    began = world.time.now()
    world.run_to_the_end()
    assert world.time.now() - began < TIMEOUT * SECOND / 4
    assert any(node.role.direction is not None for node in world.nodes.values())


def without_agent5(definition):
    """As in a newer roster."""
    roster = definition.neighborhood
    others = tuple(link for link in roster.neighbors if link.name != "agent5")
    return replace(definition, neighborhood=replace(roster, neighbors=others, version=2))


# Liars.


def test_hostile_relays_are_dropped_and_counted():
    world = Conversation("lowpass", 8, 3)
    world.start()
    world.step()
    world.deliver(1000)
    liar, (victim, *_) = Signer("agent0"), [key.index for key in world.keys(0).values()]
    node = world.nodes[victim]
    tell = partial(node.on_published, "agent0")
    before = node.intake.dropped.copy()
    honest = liar.relay("reach", 0, [0, 0, 0, -1, -1, -1])
    cases: dict[Any, list[bytes]] = {
        "not_finite": [liar.relay("hop", 0, [np.nan]), liar.relay("hop", 0, [np.inf])],
        "too_large": [
            liar.relay("hop", 0, [2 * RELAY_BOUND]),
            liar.relay("mean/agree", 0, [2 * RELAY_BOUND]),
        ],
        "wrong_dimension": [liar.relay("hop", 0, np.zeros(410)), liar.relay("hop", 0, [])],
        "bad_signature": [Signer("agent1").relay("hop", 0, [1.0], sender="agent0")],
        "malformed": [honest[:-1], b"flk\x01"],
        "oversized": [bytes(100_000)],
    }
    for reason, relays in cases.items():
        for data in relays:
            tell(data)
        assert node.intake.dropped[reason] - before[reason] == len(relays), reason
    duplicates = node.intake.duplicates
    tell(liar.relay("late", 5, [1.0]))
    tell(liar.relay("late", 5, [1.0]))
    assert node.intake.duplicates == duplicates + 1
    tell(liar.relay("late", 5, [2.0]))
    assert node.intake.dropped["equivocation"] == 1
    tell(liar.relay("late", 50, [2.0]))
    tell(liar.relay("late", 5, [1.0]))
    assert node.intake.dropped["replayed"] == 1
    world.run_to_the_end()
    assert_as_simulated(world)


def test_a_relay_of_another_size_is_left_out_of_its_round():
    world = Conversation("lowpass", 8, 3)
    liar, (victim, *_) = Signer("agent0"), [key.index for key in world.keys(0).values()]
    world.start()
    world.nodes[victim].on_published("agent0", liar.relay("degree", 0, [1.0, 2.0]))
    world.run_to_the_end()
    assert world.nodes[victim].intake.dropped["wrong_dimension"] == 1
    assert all(node.role.is_over for node in world.nodes.values())


def test_garbage_in_place_of_a_repeat_changes_nothing():
    source, world = random.Random(4), Conversation("lowpass", 6, 3)
    world.start()
    world.step()
    world.deliver(400)
    node, (neighbor, *_) = world.nodes[0], world.keys(0)
    good = say_again(Repeat(False, False, world.nodes[world.keys(0)[neighbor].index].role._last))
    waiting, rounds = node.role._talk.waiting, node.role.rounds
    for _ in range(500):
        data = bytearray(good)
        for _ in range(source.randrange(1, 4)):
            data[source.randrange(8, len(data))] = source.randrange(256)
        world.time.move_to(world.time.now() + SECOND // 100)
        node.on_greeting(neighbor, bytes(data[: source.randrange(9, len(data) + 1)]))
        node.on_greeting("stranger", bytes(data))
    assert (node.role._talk.waiting, node.role.rounds) == (waiting, rounds)
    assert node.intake.dropped["unknown_sender"] == 500
    world.run_to_the_end()
    assert_as_simulated(world)


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
def test_lies_spoil_averages_and_nothing_else(method, lie, monkeypatch):
    """Everyone comes to an end, with a finite model of its own, and has released once."""
    monkeypatch.setattr("flockwise.net.conversing.MOST_ROUNDS", 300)
    monkeypatch.setattr("flockwise.protocol.reach.MOST_ROUNDS", 100)
    world = Conversation(method, 6, 3)
    world.start()
    signer = world.nodes[0].role._signer
    signer.relay = lying(signer.relay, ABSURD[lie])
    world.run_to_the_end()
    assert_released_once(world)
    for agent, node in world.nodes.items():
        assert np.isfinite(along(world.own_problem(agent), node.role.direction)).all()


class OverAtOnce(deque):
    """Packets on their way. Agent 5 says from the first greeting on that its conversation has ended."""

    def append(self, packet):
        told = say_again(Repeat(False, True, []))
        if packet.sender != "agent5":
            super().append(packet)
        elif not is_repeat(packet.data):
            super().append(Packet("agent5", packet.receiver, "greeting", told))
            super().append(packet)


def test_a_neighbor_that_says_at_once_that_it_has_ended_keeps_nobody_from_releasing():
    world = Conversation("lowpass", 8, 3, queue=OverAtOnce())
    world.start()
    others = [node for agent, node in world.nodes.items() if agent != 5]
    world.run_until(lambda: all(node.role.is_over for node in others))
    assert {world.memory(agent).ledger.consumed for agent in range(8) if agent != 5} == {1}
    heard = [node for node in others if "agent5" in node.intake.neighbors]
    assert heard
    assert all(node.role._states[5].is_over for node in heard)
    assert all(node.role.direction is not None for node in others)


@pytest.mark.parametrize("method", METHODS)
def test_an_agent_says_nothing_that_honest_neighbors_would_refuse(method):
    """A lie that all take leaves everyone without a mean: they learn alone, and nobody waits for anybody."""
    world = Conversation(method, 8, 3)
    world.start()
    signer = world.nodes[0].role._signer
    signer.relay = lying(
        signer.relay,
        lambda stage, vector: np.full(len(vector), np.inf) if stage == "mean/agree" else vector,
    )
    world.run_to_the_end(TIMEOUT / 4)
    assert not world.dropped().keys() & {"not_finite", "too_large"}
    assert all(node.role.direction is None for node in world.nodes.values())
    assert_released_once(world)


def lying(sign_relay, say):
    def lie(relay):
        return sign_relay(Relay(relay.sender, relay.stage, relay.round, say(relay.stage, relay.vector)))

    return lie


# The journal.


def test_a_conversation_ends_before_its_journal_grows_too_large(monkeypatch):
    monkeypatch.setattr("flockwise.net.conversing.MOST_BYTES", 100_000)
    world = Conversation("lowpass", 8, 3)
    world.start()
    world.run_to_the_end()
    for agent, node in world.nodes.items():
        assert node.role.direction is None
        most = len(world.keys(agent)) * 8 * world.settings.largest_relay(3)
        assert node.role._bytes < 100_000 + most


def test_a_journal_on_disk_holds_what_one_in_memory_does(tmp_path):
    rounds = [{3: np.array([1.5, -np.inf]), 1: np.array([0.0])}, {}, {2: np.linspace(0, 1, 7)}]
    file, memory = FileJournal(tmp_path), MemoryJournal()
    for journal in (file, memory):
        assert journal.load().edges is None
        journal.begin({3: 0.5, 1: 2.0})
        for heard in rounds:
            journal.add(heard)
    file.close()
    file = FileJournal(tmp_path)
    for journal in (file, memory):
        record = journal.load()
        assert record.edges == {3: 0.5, 1: 2.0}
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
    world = Conversation("lowpass", 8, 3)
    world.start()
    world.step()
    world.deliver(1000)

    def fails(heard):
        raise NetworkError("the disk is full")

    monkeypatch.setattr(world.memory(5).journal, "add", fails)
    world.deliver(200)
    assert world.nodes[5].obstacle == "store"
    monkeypatch.undo()
    world.kill(5)
    world.start(5)
    world.run_to_the_end()
    assert_as_simulated(world)
