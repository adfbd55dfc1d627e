"""A node drives the simulator's agent, sends nothing that is not on disk, and keeps quiet when it must."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.network.signers import NETWORK, Signer
from tests.network.world import (
    SAMPLES,
    EverySecond,
    FullDisk,
    MemoryWorld,
    named,
    samples_of,
    settings_of,
)
from tests.support import random_problem

from flockwise.deploy.folder import OwnBudget
from flockwise.deploy.settings import NetworkSettings
from flockwise.engine import Conditions
from flockwise.engine.base import RunSettings
from flockwise.engine.reference import SimulatedClock
from flockwise.engine.reference.descent import ReferenceDescent
from flockwise.errors import LedgerError, NetworkError, PrivacyError
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent, PrivateUpdates
from flockwise.net.node import GREETING_GAP, GREETING_PERIOD, PATIENCE, STEADY, WRITING_GAP
from flockwise.net.time import SECOND, PoissonClock, RealTime
from flockwise.net.wire import Greeting, PrivacyLabel, greet, open_greeting, open_signed
from flockwise.objective import Objective, Problem, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.privacy.messages import decode
from flockwise.runtime.testing import AgentMemory, ManualTime, MemoryNetwork, SimulatedNoise, define_agents

UPDATES = 5
BUDGET = OwnBudget(epsilon=1.0, delta=1e-3, updates=UPDATES, clip=1.0)


def around_anna(*, private=False, weights=None, version=1):
    """Anna and her neighbors, as the roster has them."""
    weights = {"ben": 1.0, "carl": 2.0} if weights is None else weights
    label: PrivacyLabel = "dp" if private else "none"
    settings = NetworkSettings(Objective(Quadratic(), max_samples=4, feature_bound=1.0), label)
    edges = np.array([(0, 1 + i) for i in range(len(weights))])
    graph = SimilarityGraph.from_edges(1 + len(weights), edges, np.array([*weights.values()]))
    samples, privacy = dict.fromkeys(["anna", *weights], SAMPLES), BUDGET if private else None
    return define_agents(settings, graph, samples, privacy, network=NETWORK, version=version)


class RecordingNetwork(MemoryNetwork):
    """Delivers nothing, and remembers what was sent."""

    def __init__(self):
        super().__init__()
        self.published = []
        self.greetings = []

    def publish(self, sender, data):
        self.published.append(data)

    def send(self, sender, receiver, data):
        self.greetings.append((receiver, open_greeting(data, len(data))))


class AnnaAlone(MemoryWorld):
    """Anna's node runs; the test plays her neighbors."""

    def __init__(self, *, private=False, memory=None, weights=None):
        self.transport = RecordingNetwork()
        super().__init__(around_anna(private=private, weights=weights), network=self.transport)
        self.label: PrivacyLabel = "dp" if private else "none"
        if memory is None:
            self.memories["anna"].store = FullDisk()
        else:
            self.memories["anna"] = memory
        self.start("anna")
        self.node = self["anna"].node
        self.agent = self.node.agent

    @property
    def store(self) -> Any:
        return self.memories["anna"].store

    @property
    def ledger(self):
        return self.memories["anna"].ledger

    def model(self, sender, number, values):
        return Signer(sender).model(number, values, privacy=self.label)

    def greeting(self, weight, mine=None, yours=None):
        return greet(Greeting(weight, 1, mine, yours))

    def among_all(self):
        for name, neighbor in self.agent.neighbors.items():
            self.meet(name, neighbor.weight)
        return self

    def meet(self, sender, weight, *, yours=None):
        self.node.on_presence(sender, True)
        self.node.on_greeting(sender, self.greeting(weight, self.model(sender, 0, [0, 0]), yours))


# The same agents as in the simulator


def equal_to_the_simulator(problem, method, privacy=None, *, limit=12, seed=3):
    """Nodes on a network in memory, on the clocks of the simulator, against its oracle."""
    table = Conditions().table(np.arange(problem.n_agents))
    oracle = ReferenceDescent(method.prepare(problem, seed).rule, RunSettings(seed, limit))
    oracle.advance(2**60)
    settings = settings_of(problem, "none" if privacy is None else "dp")
    world = MemoryWorld(
        define_agents(settings, problem.neighbors, named(samples_of(problem)), privacy),
        noise=lambda number: SimulatedNoise(seed, number),
        make_clock=lambda number, *_: SimulatedClock(table, np.uint64(seed), number, limit),
    )
    world.start()
    nodes = list(world.nodes.values())
    # In the simulator no agent hears the average that another one sends when its budget is spent.
    conclusions = [delayed_conclusion(node) for node in nodes]
    while any(node.agent.next_tick is not None for node in nodes):
        world.step()
    assert [node.agent.updates for node in nodes] == oracle.updates.tolist()
    assert_equal_models(nodes, oracle.models)
    assert all(not node.intake.dropped for node in nodes)
    for conclude in conclusions:
        conclude()
    return nodes, oracle


def delayed_conclusion(node):
    """Keep an agent from sending its average at the end; what makes up for it."""
    conclude = node._outbox.conclude
    node._outbox.conclude = lambda: None

    def make_up():
        node._outbox.conclude = conclude
        node._conclude(0)

    return make_up


def assert_equal_models(nodes, expected):
    found = np.stack([node.agent.model for node in nodes])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("feature_bound", [None, 1.0])
def test_nodes_learn_what_simulated_agents_learn(feature_bound):
    """Step sizes from the data, and from a bound that many samples are longer than."""
    problem = random_problem(4, n_agents=9, density=0.5, l2=0.3, feature_bound=feature_bound)
    if feature_bound is not None:
        assert (np.linalg.norm(problem.population.features, axis=1) > feature_bound).mean() > 0.5
    equal_to_the_simulator(problem, CoordinateDescent())


def private_problem(n_agents=6):
    """Every agent has a neighbor: a simulated one without any spends its budget, and a real one does not."""
    pairs = np.column_stack(np.triu_indices(n_agents, 1))
    graph = SimilarityGraph.from_edges(n_agents, pairs, np.linspace(0.5, 2, len(pairs)))
    drawn = random_problem(5, n_agents=n_agents, n_features=2)
    return Problem(drawn.population, graph, Objective(l2=0.3, feature_bound=1.0))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_private_nodes_release_what_simulated_agents_release(growth, mechanism):
    """To the last digits, and so is the average at the end, where one is sent.

    Agents that pay by batches send none, nor does one without samples, which has nothing to hide.
    """
    simulated = PrivateUpdates(Budget(1.0, 1e-3), updates=12, clip=1.0, mechanism=mechanism)
    real = OwnBudget(epsilon=1.0, delta=1e-3, updates=12, clip=1.0, growth=growth, mechanism=mechanism)
    problem = private_problem()
    nodes, oracle = equal_to_the_simulator(problem, CoordinateDescent(privacy=simulated), real)
    averages = (problem.population.sample_counts > 0) & (growth == "one_budget")
    assert averages.any() == (growth == "one_budget")
    assert_equal_models(nodes, np.where(averages[:, None], oracle.result().models, oracle.models))


def test_a_network_of_private_agents_needs_step_sizes_that_come_from_no_data():
    with pytest.raises(NetworkError, match=r"objective\.feature_bound: missing"):
        NetworkSettings(Objective(Quadratic(), max_samples=4), "dp")


# Sending


def test_a_message_is_on_disk_before_it_is_published():
    anna = AnnaAlone().among_all()
    published = []

    def publish(sender, data):
        assert anna.store.load().sent.data == data
        published.append(data)

    anna.transport.publish = publish
    anna.run(3)
    assert [decode(open_signed(data, len(data)).body.payload)[0] for data in published] == [1, 2, 3]


def test_the_first_update_waits_a_little_for_neighbors():
    late, early = AnnaAlone(), AnnaAlone()
    late.meet("ben", 1.0)
    late.run(PATIENCE / SECOND - 0.5)
    assert late.agent.updates == 0
    late.run(2)
    assert late.agent.updates > 0
    early.among_all().run(1)
    assert early.agent.updates == 1


def test_a_restart_goes_on_where_it_was():
    first = AnnaAlone()
    first.meet("ben", 1.0)
    first.node.on_published("ben", first.model("ben", 4, [1, 2]))
    first.run(WRITING_GAP / SECOND + 1)
    again = AnnaAlone(memory=first.memories["anna"])
    np.testing.assert_array_equal(again.agent.model, first.agent.model)
    assert again.agent.updates == first.agent.updates > 0
    assert again.node.sent == first.node.sent
    assert again.agent.neighbors["ben"].number == 4
    assert again.agent.neighbors["carl"].model is None


def test_a_private_restart_sends_the_same_bytes_at_no_cost():
    first = AnnaAlone(private=True)
    first.meet("ben", 1.0)
    first.run(3)
    again = AnnaAlone(private=True, memory=first.memories["anna"])
    assert again.node.sent == first.node.sent
    assert again.node.sent.number == 3
    again.meet("ben", 1.0, yours=first.node.sent.data)
    again.run(10)
    assert again.ledger.consumed == UPDATES


def test_an_agent_on_a_full_disk_stops_releasing_and_still_listens():
    anna = AnnaAlone().among_all()
    anna.run(2)
    anna.store.is_full = True
    anna.run(5)
    assert anna.node.obstacle == "store"
    assert len(anna.transport.published) == 2
    anna.node.on_published("ben", anna.model("ben", 1, [1, 1]))
    assert anna.agent.neighbors["ben"].number == 1
    anna.store.is_full = False
    anna.run(5)
    assert anna.store.load().received["ben"] == anna.model("ben", 1, [1, 1])
    assert anna.node.obstacle == "store"  # until it is started again


def test_an_agent_whose_ledger_cannot_be_written_stops_releasing():
    anna = AnnaAlone(private=True)
    anna.meet("ben", 1.0)
    anna.run(1.5)

    def fail(row, after):
        raise LedgerError("the disk is full")

    anna.ledger._store_entry = fail
    anna.run(5)
    assert anna.node.obstacle == "ledger"
    assert len(anna.transport.published) == 1


def test_a_spent_budget_ends_in_silence():
    anna = AnnaAlone(private=True)
    anna.meet("ben", 1.0)
    anna.run(20)
    numbers = [decode(open_signed(data, len(data)).body.payload)[0] for data in anna.transport.published]
    assert numbers == [*range(1, UPDATES + 1), UPDATES + 1]  # the last one is an average of releases
    assert anna.ledger.consumed == UPDATES
    assert anna.node.obstacle is None
    anna.node.on_published("ben", anna.model("ben", 9, [1, 1]))
    assert anna.agent.neighbors["ben"].number == 9


def test_only_the_gate_makes_messages_of_an_agent_with_a_budget():
    anna = AnnaAlone(private=True)
    plain = AnnaAlone().agent.on_tick(0)[0]
    with pytest.raises(PrivacyError, match="did not come from its gate"):
        anna.node._outbox.ready(plain)


# Waiting for listeners and for what they know


def test_a_private_agent_releases_only_while_a_neighbor_is_connected():
    anna = AnnaAlone(private=True)
    anna.run(30)
    assert anna.ledger.consumed == 0
    anna.meet("ben", 1.0)
    anna.run(3)
    assert anna.ledger.consumed == 3
    anna.node.on_presence("ben", False)
    anna.run(30)
    assert anna.ledger.consumed == 3


def test_a_private_agent_waits_for_the_greetings_of_all_connected_neighbors():
    anna = AnnaAlone(private=True)
    anna.meet("ben", 1.0)
    anna.node.on_presence("carl", True)
    anna.run(3)
    assert anna.ledger.consumed == 0
    anna.node.on_greeting("carl", anna.greeting(2.0, anna.model("carl", 0, [0, 0])))
    anna.run(1)
    assert anna.ledger.consumed == 1


def test_a_connected_neighbor_that_stays_silent_is_waited_for_only_so_long():
    anna = AnnaAlone(private=True)
    anna.meet("ben", 1.0)
    anna.node.on_presence("carl", True)
    anna.run(PATIENCE / SECOND + 1)
    assert anna.ledger.consumed > 0


def test_a_neighbor_that_comes_and_goes_without_a_greeting_holds_up_releases_only_once():
    anna = AnnaAlone(private=True)
    anna.meet("ben", 1.0)
    spent = []
    for _ in range(4):
        anna.node.on_presence("carl", True)
        anna.run(3)
        anna.node.on_presence("carl", False)
        spent.append(anna.ledger.consumed)
    assert spent == [0, 2, UPDATES, UPDATES]
    assert anna.node.flaps == 3


def test_a_neighbor_that_greets_and_leaves_again_and_again_uses_up_its_patience():
    anna = AnnaAlone(private=True)
    anna.meet("ben", 1.0)
    for _ in range(12):
        anna.meet("carl", 2.0)
        anna.node.on_presence("carl", False)
        anna.node.on_presence("carl", True)
        anna.run(1)
    assert anna.ledger.consumed == UPDATES


def test_a_neighbor_that_changes_its_mind_about_the_weight_holds_up_nothing():
    """It agrees and disagrees in turn, and never leaves."""
    anna = AnnaAlone(private=True)
    anna.among_all()
    before = anna.ledger.consumed
    for turn in range(6):
        anna.node.on_greeting("carl", anna.greeting(2.0 + turn % 2))
        anna.run(1)
    assert anna.ledger.consumed == before + min(6, UPDATES)
    assert anna.node.intake.dropped["weight"] == 3


def test_a_storm_of_greetings_is_answered_once_a_second():
    anna = AnnaAlone(private=True)
    anna.among_all()
    anna.transport.greetings.clear()
    for _ in range(2000):
        anna.node.on_greeting("carl", anna.greeting(2.0))
        anna.time.move_to(anna.time.now() + SECOND // 1000)
    assert 1 <= sum(receiver == "carl" for receiver, _ in anna.transport.greetings) <= 3
    assert anna.node.intake.dropped["flooded"] > 0


def test_a_neighbor_that_has_stayed_for_a_while_is_waited_for_when_it_comes_back():
    """It may have met another copy of the agent meanwhile, and know of a later release."""
    anna = AnnaAlone(private=True)
    anna.node.on_presence("carl", True)
    anna.run(PATIENCE / SECOND)
    anna.meet("carl", 2.0)
    anna.node.on_presence("carl", False)
    anna.meet("carl", 2.0)
    before = anna.ledger.consumed
    anna.agent.next_tick = None  # the budget is for later
    anna.run(STEADY / SECOND)
    anna.node.on_presence("carl", False)
    anna.agent.next_tick = anna.time.now() + SECOND
    anna.meet("ben", 1.0)
    anna.node.on_presence("carl", True)
    anna.run(3)
    assert anna.ledger.consumed == before
    anna.run(3)
    assert anna.ledger.consumed > before


def test_a_private_agent_needs_the_greeting_of_at_least_one_neighbor():
    anna = AnnaAlone(private=True)
    anna.node.on_presence("carl", True)
    anna.run(180)
    assert anna.ledger.consumed == 0


def test_a_neighbor_that_does_not_answer_is_greeted_again_at_growing_intervals():
    anna, times = AnnaAlone(private=True), []
    anna.transport.send = lambda sender, receiver, data: times.append(anna.time.now())
    anna.node.on_presence("carl", True)
    anna.run(150)
    gaps = [(later - time) / GREETING_GAP for time, later in pairwise(times)]
    assert gaps == [1, 2, 4, 8, 16, 30, 30, 30]
    anna.node.on_presence("carl", False)
    anna.node.on_presence("carl", True)
    anna.run(GREETING_GAP / SECOND)
    assert times[-1] - times[-2] == GREETING_GAP


def test_an_agent_whose_ledger_is_an_old_copy_never_releases_again():
    old, new = AnnaAlone(private=True), AnnaAlone(private=True)
    for anna in (old, new):
        anna.meet("ben", 1.0)
    new.run(4)
    old.run(1)
    old.node.on_greeting("ben", old.greeting(1.0, yours=new.node.sent.data))
    assert old.node.obstacle == "behind"
    old.run(60)
    assert old.ledger.consumed == 1
    assert old.store.load().newer_release == 4
    restored = AgentMemory("anna")
    restored.store = old.store
    again = AnnaAlone(private=True, memory=restored)
    again.meet("ben", 1.0)
    again.run(60)
    assert again.node.obstacle == "behind"
    assert again.ledger.consumed == 0


def test_another_release_under_its_own_number_shows_an_agent_that_its_ledger_is_an_old_copy():
    """An old copy that has gone on by itself: same number, another noise."""
    one, other = AnnaAlone(private=True), AnnaAlone(private=True)
    one.meet("ben", 1.0)
    other.meet("carl", 2.0)
    other.node.on_published("carl", other.model("carl", 3, [5, 5]))
    for anna in (one, other):
        anna.run(2)
    assert one.node.sent.number == other.node.sent.number
    assert one.node.sent.data != other.node.sent.data
    one.run(1)
    one.node.on_greeting("ben", one.greeting(1.0, yours=other.node.sent.data))
    assert one.node.obstacle == "behind"


def test_an_agent_goes_on_when_neighbors_show_it_releases_that_it_knows():
    anna = AnnaAlone(private=True)
    anna.meet("ben", 1.0)
    anna.run(2)
    for data in (*anna.transport.published, anna.model("anna", 0, [0, 0])):
        anna.node.on_greeting("ben", anna.greeting(1.0, yours=data))
    assert anna.node.obstacle is None


def test_without_privacy_an_agent_goes_on_from_a_later_model_of_its_own_that_a_neighbor_holds():
    new, old = AnnaAlone().among_all(), AnnaAlone().among_all()
    new.run(5)
    old.run(2)
    old.node.on_presence("ben", True)
    old.node.on_greeting("ben", old.greeting(1.0, yours=new.node.sent.data))
    assert old.node.sent == new.node.sent
    assert old.agent.updates == 5
    np.testing.assert_array_equal(old.agent.model, new.agent.model)
    old.run(1)
    assert old.node.sent.number == 6


# Greetings


def test_a_neighbor_that_connects_is_sent_the_last_message():
    anna = AnnaAlone()
    anna.run(2)
    anna.node.on_published("ben", anna.model("ben", 3, [1, 1]))
    anna.node.on_presence("ben", True)
    ((receiver, greeting),) = anna.transport.greetings
    assert receiver == "ben"
    assert greeting.weight == 1.0
    assert greeting.mine == anna.node.sent.data
    assert greeting.yours == anna.model("ben", 3, [1, 1])


def test_an_agent_that_publishes_nothing_greets_its_neighbors_from_time_to_time():
    anna = AnnaAlone()
    anna.meet("ben", 1.0)
    anna.agent.next_tick = None
    anna.run(5 * GREETING_PERIOD / SECOND + 1)
    assert len(anna.transport.greetings) == 6


def test_an_agent_that_publishes_need_not_greet():
    anna = AnnaAlone()
    anna.meet("ben", 1.0)
    anna.run(5 * GREETING_PERIOD / SECOND + 1)
    assert len(anna.transport.greetings) == 1


def test_an_answer_to_a_greeting_is_not_answered():
    """However long it took: else two busy hosts would answer each other's answers for ever."""
    anna = AnnaAlone()
    anna.meet("ben", 1.0)
    for is_answer, answers in ((True, 0), (False, 1)):
        anna.run(2 * GREETING_GAP / SECOND)
        before = len(anna.transport.greetings)
        anna.node.on_greeting("ben", greet(Greeting(1.0, 1, None, None, is_answer)))
        assert len(anna.transport.greetings) == before + answers
    assert anna.transport.greetings[-1][1].is_answer


def test_two_agents_do_not_greet_each_other_for_ever():
    world = MemoryWorld(around_anna(weights={"ben": 1.0}), make_clock=lambda *_: EverySecond(lambda: 0))
    world.start()
    assert world.network.deliver_all() == 2
    assert (world["anna"].node.neighbors_up, world["ben"].node.neighbors_up) == (["ben"], ["anna"])
    world.kill("ben")
    assert world["anna"].node.neighbors_up == []


def neighbors_of_anna(weights):
    return around_anna(weights=weights)["anna"].neighborhood.keys()


def test_messages_are_refused_until_both_agents_have_the_same_weight():
    anna = AnnaAlone()
    anna.meet("ben", 9.0)
    anna.node.on_published("ben", anna.model("ben", 1, [1, 1]))
    assert anna.agent.neighbors["ben"].model is None
    assert anna.node.intake.dropped["weight"] == 2
    anna.node.set_neighbors(neighbors_of_anna({"ben": 9.0, "carl": 2.0}), 2)
    assert anna.agent.neighbors["ben"].weight == 9.0
    anna.node.on_published("ben", anna.model("ben", 2, [1, 1]))
    assert anna.agent.neighbors["ben"].number == 2


# Rosters


def test_a_newer_roster_removes_and_adds_neighbors():
    anna = AnnaAlone(weights={"ben": 1.0})
    anna.node.on_published("ben", anna.model("ben", 1, [1, 1]))
    anna.run(WRITING_GAP / SECOND + 0.1)
    assert anna.store.load().received.keys() == {"ben"}
    anna.node.set_neighbors(neighbors_of_anna({"carl": 2.0}), 2)
    assert anna.agent.neighbors.keys() == {"carl"}
    anna.meet("carl", 2.0)
    anna.run(WRITING_GAP / SECOND + 0.1)
    assert anna.store.load().received.keys() == {"carl"}
    anna.node.on_published("ben", anna.model("ben", 2, [1, 1]))
    assert anna.node.intake.dropped["unknown_sender"] == 1


def test_a_roster_that_was_replaced_is_refused_at_the_next_start():
    """It may name an agent that has been removed since."""
    anna = AnnaAlone()
    newer = around_anna(weights={"ben": 1.0}, version=3)["anna"].neighborhood
    anna.node.set_neighbors(newer.keys(), newer.version)
    anna.kill("anna")
    with pytest.raises(
        NetworkError, match="agent 'anna': its roster has version 1, and version 3 was in force"
    ):
        AnnaAlone(memory=anna.memory("anna"))


def test_a_neighbor_that_left_while_the_agent_was_down_is_forgotten():
    anna = AnnaAlone(weights={"ben": 1.0})
    anna.node.on_published("ben", anna.model("ben", 1, [1, 1]))
    anna.node.stop()
    again = AnnaAlone(memory=anna.memories["anna"], weights={"carl": 2.0})
    again.run(WRITING_GAP / SECOND + 1)
    assert again.store.load().received == {}


# What comes in


def test_hostile_bytes_change_nothing():
    anna = AnnaAlone()
    good = anna.model("ben", 2, [1, 1])
    anna.node.on_published("ben", good)
    hostile = [
        b"",
        good[:-1],
        anna.model("ben", 1, [9, 9]),
        anna.model("carl", 7, [9, 9]),
        anna.model("ben", 3, [np.nan, 1]),
        anna.model("ben", 3, [1e300, 1]),
        anna.model("ben", 3, [1, 1, 1]),
        Signer("carl").model(3, np.ones(2), sender="ben"),
        Signer("ben").model(3, np.ones(2), privacy="dp"),
        Signer("ben").model(3, np.ones(2), network="other"),
    ]
    for data in hostile:
        anna.node.on_published("ben", data)
        anna.node.on_greeting("ben", anna.greeting(1.0, data, data))
    anna.node.on_published("eve", good)
    anna.node.on_presence("eve", True)
    assert anna.agent.neighbors["ben"].number == 2
    np.testing.assert_array_equal(anna.agent.neighbors["ben"].model, [1, 1])
    assert anna.agent.neighbors["carl"].model is None
    assert anna.node.obstacle is None


def test_received_models_are_written_together():
    anna = AnnaAlone()
    writes = []
    anna.store.save_received = lambda received, forgotten=(): writes.append(sorted(received))
    for number in range(1, 6):
        anna.node.on_published("ben", anna.model("ben", number, [1, 1]))
        anna.node.on_published("carl", anna.model("carl", number, [1, 1]))
    anna.run(2 * WRITING_GAP / SECOND)
    assert writes == [["ben", "carl"]]
    anna.node.on_published("ben", anna.model("ben", 6, [1, 1]))
    anna.node.stop()
    assert writes == [["ben", "carl"], ["ben"]]


# Time


def test_updates_that_a_late_machine_leaves_out_are_counted():
    anna = AnnaAlone().among_all()
    anna.run(1.5)
    assert anna.node.skipped_time == 0
    due = anna.agent.next_tick
    assert due is not None
    anna.node.tick(due + 11 * SECOND)
    assert anna.node.skipped_time == 10 * SECOND
    assert anna.agent.next_tick == due + 11 * SECOND


def test_a_poisson_clock_ticks_at_its_rate_and_ends():
    """The mean of 4000 waiting times is within 5 standard errors (an error in 10⁶)."""
    clock, now = PoissonClock(10.0, limit=lambda: 4000), 0
    for updates in range(4000):
        now = clock.next_tick(updates, now)
        assert now is not None
    assert now / SECOND == pytest.approx(400, rel=5 / 4000**0.5)
    assert clock.next_tick(4000, now) is None


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_clock_without_a_rate_is_refused(rate):
    with pytest.raises(NetworkError, match="tick_rate"):
        PoissonClock(rate)


def test_time_does_not_go_back():
    assert RealTime().now() <= RealTime().now()
    with pytest.raises(NetworkError, match="does not go back"):
        ManualTime(5).move_to(4)


def test_an_outbox_hands_out_the_model_that_the_agent_learned():
    anna = AnnaAlone().among_all()
    anna.run(1)
    body = open_signed(anna.node.sent.data, 10_000).body
    np.testing.assert_array_equal(decode(body.payload)[1], anna.agent.model)
    assert anna.agent.model.any()
