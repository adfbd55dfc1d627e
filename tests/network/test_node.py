"""A node drives the simulator's agent, sends nothing that is not on disk, and keeps quiet when it must."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.support import random_problem

from flockwise.data import Population
from flockwise.engine import Conditions
from flockwise.engine.reference import ReferenceEngine, SimulatedClock
from flockwise.errors import LedgerError, NetworkError, PrivacyError
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent, PrivateUpdates
from flockwise.net.intake import Intake, NeighborKey
from flockwise.net.learner import Protection, Settings, make_agent
from flockwise.net.memory import MemoryNetwork
from flockwise.net.node import GREETING_GAP, GREETING_PERIOD, PATIENCE, WRITING_GAP, Node
from flockwise.net.outbox import GateOutbox, PlainOutbox, Signer
from flockwise.net.signing import new_signing_key, public_key_of
from flockwise.net.store import MemoryStore
from flockwise.net.time import SECOND, ManualTime, PoissonClock, RealTime
from flockwise.net.wire import Greeting, ModelBody, PrivacyLabel, greet, open_greeting, open_signed, sign
from flockwise.objective import Logistic, Problem, Quadratic
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.mechanisms import Gaussian
from flockwise.privacy.messages import decode, encode
from flockwise.privacy.noise import SimulatedNoise
from flockwise.privacy.plan import Plan

NETWORK = "test"
SETTINGS = Settings(Quadratic(), tradeoff=1.0, max_samples=4, feature_bound=1.0)
KEYS = {name: new_signing_key() for name in ("anna", "ben", "carl")}
POINTS = np.array([[0.5, 0.5], [0.1, -0.7], [-0.3, 0.2], [0.6, 0.0]])
TARGETS = np.array([1.0, -0.5, 0.3, 2.0])
UPDATES = 5


class EverySecond:
    def next_tick(self, updates, now):
        return now + SECOND


class FakeTransport:
    """Remembers what was sent."""

    def __init__(self):
        self.published = []
        self.greetings = []

    def publish(self, sender, data):
        self.published.append(data)

    def send(self, sender, receiver, data):
        self.greetings.append((receiver, open_greeting(data, len(data))))


class FullDisk(MemoryStore):
    """Cannot write while it is full."""

    is_full = False

    def save_sent(self, sent):
        self._check()
        super().save_sent(sent)

    def save_received(self, received, forgotten=()):
        self._check()
        super().save_received(received, forgotten)

    def _check(self):
        if self.is_full:
            raise NetworkError("the disk is full")


class FailingLedger(MemoryLedger):
    fails = False

    def _store_entry(self, row, after):
        if self.fails:
            raise LedgerError("the disk is full")


def neighbor_keys(weights):
    return {name: NeighborKey(public_key_of(KEYS[name]), weight) for name, weight in weights.items()}


class Bench:
    """Anna's node, and hands to play her neighbors."""

    gate: Any
    ledger: Any
    store: Any

    def __init__(self, *, private=False, store=None, ledger=None, weights=None):
        self.time, self.transport = ManualTime(), FakeTransport()
        self.store = FullDisk() if store is None else store
        self.ledger = (FailingLedger("anna") if ledger is None else ledger) if private else None
        self.label: PrivacyLabel = "dp" if private else "none"
        weights = {"ben": 1.0, "carl": 2.0} if weights is None else weights
        clock, problem = EverySecond(), SETTINGS.problem(POINTS, TARGETS)
        signer = Signer(NETWORK, "anna", self.label, KEYS["anna"])
        protection, self.gate = None, None
        if self.ledger is not None:
            plan = Plan.fitting(Budget(1.0, 1e-3), Gaussian(0.5, 1.0), accountant="gdp", updates=UPDATES)
            self.gate = Gate(plan, self.ledger, SimulatedNoise(0, 0), start=np.zeros(2))
            protection = Protection(self.gate, 1.0)
        ties: dict[Any, float] = weights
        self.agent = make_agent("anna", problem, ties, clock, protection=protection)
        if self.ledger is None:
            outbox = PlainOutbox(signer, self.store, self.agent.model)
        else:
            outbox = GateOutbox(signer, self.gate, self.ledger)
        intake = Intake(
            "anna",
            NETWORK,
            2,
            [self.label],
            neighbor_keys(weights),
            1e6,
            public_key=public_key_of(KEYS["anna"]),
            clock=self.time.now,
        )
        self.node = Node(self.agent, clock, intake, outbox, self.store, self.transport, self.time)
        self.node.start(0)

    def run(self, seconds):
        end = self.time.now() + round(seconds * SECOND)
        while (wake := self.node.next_wake()) is not None and wake <= end:
            self.time.move_to(max(wake, self.time.now()))
            self.node.tick(self.time.now())
        self.time.move_to(end)

    def model(self, sender, number, values):
        payload = encode(number, np.array(values, float))
        return sign(ModelBody(NETWORK, sender, number, self.label, payload), KEYS[sender])

    def greeting(self, weight, mine=None, yours=None):
        return greet(Greeting(weight, 0, mine, yours))

    def among_all(self):
        for name, neighbor in self.agent.neighbors.items():
            self.meet(name, neighbor.weight)
        return self

    def meet(self, sender, weight, *, yours=None):
        self.node.on_presence(sender, True)
        self.node.on_greeting(sender, self.greeting(weight, self.model(sender, 0, [0, 0]), yours))


# The same agents as in the simulator


def equal_to_the_simulator(problem, method, *, limit=12, seed=3):
    """Nodes on a network in memory, on the clocks of the simulator, against its oracle."""
    descent = method.prepare(problem)
    table = Conditions().table(problem.n_agents)
    engine = ReferenceEngine(descent, table, seed, limit, ideal=True)
    engine.advance(2**60)
    time, network, nodes = ManualTime(), MemoryNetwork(), []
    keys = [new_signing_key() for _ in range(problem.n_agents)]
    settings = Settings(problem.loss, problem.tradeoff, problem.sample_cap, problem.feature_bound, problem.l2)
    label: PrivacyLabel = "none" if descent.noise is None else "dp"
    for i in range(problem.n_agents):
        name, store = f"agent{i}", MemoryStore()
        clock = SimulatedClock(table, np.uint64(seed), i, limit)
        neighbors, weights = problem.graph.neighbors_of(i)
        ties = {
            f"agent{j}": NeighborKey(public_key_of(keys[j]), w)
            for j, w in zip(neighbors.tolist(), weights.tolist(), strict=True)
        }
        signer, protection, outbox = Signer(NETWORK, name, label, keys[i]), None, None
        if descent.noise is not None and (plan := descent.noise.plan_of(i)) is not None:
            ledger = MemoryLedger(name)
            gate = Gate(plan, ledger, SimulatedNoise(seed, i), start=np.zeros(problem.dimension))
            protection = Protection(gate, descent.noise.clip)
            outbox = GateOutbox(signer, gate, ledger)
        agent = make_agent(
            name,
            settings.problem(*problem.population.samples(i)),
            {name: key.weight for name, key in ties.items()},
            clock,
            protection=protection,
        )
        if outbox is None:
            outbox = PlainOutbox(signer, store, agent.model)
        intake = Intake(
            name,
            NETWORK,
            problem.dimension,
            [label],
            ties,
            1e6,
            public_key=public_key_of(keys[i]),
            clock=time.now,
        )
        node = Node(agent, clock, intake, outbox, store, network, time)
        node.start(0)
        network.attach(name, node, ties)
        nodes.append(node)
    network.deliver_all()
    while True:
        ticks = [
            (node.agent.next_tick, i) for i, node in enumerate(nodes) if node.agent.next_tick is not None
        ]
        if not ticks:
            break
        now, i = min(ticks)
        time.move_to(now)
        nodes[i].tick(now)
        network.deliver_all()
    assert [node.agent.updates for node in nodes] == engine.updates.tolist()
    models = np.stack([node.agent.model for node in nodes])
    np.testing.assert_allclose(models, engine.models, rtol=0, atol=1e-10)
    assert all(not node.intake.dropped for node in nodes)


def public_problem(seed):
    drawn = random_problem(seed, n_agents=9, density=0.5)
    samples = drawn.population
    lengths = np.linalg.norm(samples.features, axis=1, keepdims=True)
    scaled = Population.packed(samples.features / np.maximum(lengths, 1), samples.targets, samples.offsets)
    return Problem(
        scaled, drawn.graph, Logistic(), tradeoff=0.7, smoothness="public", feature_bound=1.0, l2=0.3
    )


def test_nodes_learn_what_simulated_agents_learn():
    equal_to_the_simulator(public_problem(4), CoordinateDescent())


def test_private_nodes_release_what_simulated_agents_release():
    """Isolated agents are left out: a simulated one spends its budget alone, a real one for nobody."""
    weights = np.ones((6, 6)) - np.eye(6)
    edges = np.argwhere(np.triu(weights) > 0)
    drawn = random_problem(5, n_agents=6, n_features=2)
    lengths = np.maximum(np.linalg.norm(drawn.population.features, axis=1, keepdims=True), 1)
    problem = Problem(
        Population.packed(
            drawn.population.features / lengths, drawn.population.targets, drawn.population.offsets
        ),
        SimilarityGraph.from_edges(6, edges, np.linspace(0.5, 2, len(edges))),
        Logistic(),
        smoothness="public",
        feature_bound=1.0,
        l2=0.3,
    )
    equal_to_the_simulator(
        problem, CoordinateDescent(privacy=PrivateUpdates(Budget(1.0, 1e-3), updates=12, clip=1.0))
    )


def test_step_sizes_from_the_data_are_refused_where_releases_would_tell():
    gate = Bench(private=True).gate
    problem = Settings(Quadratic(), 1.0, 4, None).problem(POINTS, TARGETS)
    with pytest.raises(PrivacyError, match="feature_bound"):
        make_agent("anna", problem, {}, EverySecond(), protection=Protection(gate, 1.0))


# Sending


def test_what_is_published_is_on_disk_already():
    bench = Bench().among_all()
    published = []

    def publish(sender, data):
        assert bench.store.load().sent.data == data
        published.append(data)

    bench.transport.publish = publish
    bench.run(3)
    assert [decode(open_signed(data, len(data)).body.payload)[0] for data in published] == [1, 2, 3]


def test_the_first_update_waits_a_little_for_neighbors():
    late, early = Bench(), Bench()
    late.meet("ben", 1.0)
    late.run(PATIENCE / SECOND - 0.5)
    assert late.agent.updates == 0
    late.run(2)
    assert late.agent.updates > 0
    early.among_all().run(1)
    assert early.agent.updates == 1


def test_a_restart_goes_on_where_it_was():
    first = Bench()
    first.meet("ben", 1.0)
    first.node.on_published("ben", first.model("ben", 4, [1, 2]))
    first.run(WRITING_GAP / SECOND + 1)
    again = Bench(store=first.store)
    np.testing.assert_array_equal(again.agent.model, first.agent.model)
    assert again.agent.updates == first.agent.updates > 0
    assert again.node.sent == first.node.sent
    assert again.agent.neighbors["ben"].number == 4
    assert again.agent.neighbors["carl"].model is None


def test_a_private_restart_sends_the_same_bytes_at_no_cost():
    first = Bench(private=True)
    first.meet("ben", 1.0)
    first.run(3)
    ledger = FailingLedger("anna")
    ledger.grant(first.ledger.policy)
    for entry in first.ledger.entries:
        ledger.record(entry)
    again = Bench(private=True, store=first.store, ledger=ledger)
    assert again.node.sent == first.node.sent
    assert again.node.sent.number == 3
    again.meet("ben", 1.0, yours=first.node.sent.data)
    again.run(10)
    assert again.ledger.consumed == UPDATES


def test_a_full_disk_stops_it_and_it_still_listens():
    bench = Bench().among_all()
    bench.run(2)
    bench.store.is_full = True
    bench.run(5)
    assert bench.node.obstacle == "store"
    assert len(bench.transport.published) == 2
    bench.node.on_published("ben", bench.model("ben", 1, [1, 1]))
    assert bench.agent.neighbors["ben"].number == 1
    bench.store.is_full = False
    bench.run(5)
    assert bench.store.load().received["ben"] == bench.model("ben", 1, [1, 1])
    assert bench.node.obstacle == "store"  # until it is started again


def test_a_failing_ledger_stops_it():
    bench = Bench(private=True)
    bench.meet("ben", 1.0)
    bench.run(1.5)
    bench.ledger.fails = True
    bench.run(5)
    assert bench.node.obstacle == "ledger"
    assert len(bench.transport.published) == 1


def test_a_spent_budget_ends_in_silence():
    bench = Bench(private=True)
    bench.meet("ben", 1.0)
    bench.run(20)
    assert len(bench.transport.published) == UPDATES
    assert bench.node.obstacle is None
    bench.node.on_published("ben", bench.model("ben", 9, [1, 1]))
    assert bench.agent.neighbors["ben"].number == 9


def test_only_the_gate_makes_messages_of_an_agent_with_a_budget():
    bench = Bench(private=True)
    plain = Bench().agent.on_tick(0)[0]
    with pytest.raises(PrivacyError, match="did not come from its gate"):
        bench.node._outbox.ready(plain)


# Waiting for listeners and for what they know


def test_nothing_is_spent_for_nobody():
    bench = Bench(private=True)
    bench.run(30)
    assert bench.ledger.consumed == 0
    bench.meet("ben", 1.0)
    bench.run(3)
    assert bench.ledger.consumed == 3
    bench.node.on_presence("ben", False)
    bench.run(30)
    assert bench.ledger.consumed == 3


def test_every_neighbor_that_is_up_is_asked_first():
    bench = Bench(private=True)
    bench.meet("ben", 1.0)
    bench.node.on_presence("carl", True)
    bench.run(3)
    assert bench.ledger.consumed == 0
    bench.node.on_greeting("carl", bench.greeting(2.0, bench.model("carl", 0, [0, 0])))
    bench.run(1)
    assert bench.ledger.consumed == 1


def test_one_that_stays_silent_is_not_waited_for_for_ever():
    bench = Bench(private=True)
    bench.meet("ben", 1.0)
    bench.node.on_presence("carl", True)
    bench.run(PATIENCE / SECOND + 1)
    assert bench.ledger.consumed > 0


def test_one_answer_at_least_is_needed():
    bench = Bench(private=True)
    bench.node.on_presence("carl", True)
    bench.run(180)
    assert bench.ledger.consumed == 0


def test_one_that_does_not_answer_is_asked_again_and_ever_more_rarely():
    bench, times = Bench(private=True), []
    bench.transport.send = lambda sender, receiver, data: times.append(bench.time.now())
    bench.node.on_presence("carl", True)
    bench.run(150)
    gaps = [(later - time) / GREETING_GAP for time, later in pairwise(times)]
    assert gaps == [1, 2, 4, 8, 16, 30, 30, 30]
    bench.node.on_presence("carl", False)
    bench.node.on_presence("carl", True)
    bench.run(GREETING_GAP / SECOND)
    assert times[-1] - times[-2] == GREETING_GAP


def test_a_ledger_that_is_behind_never_releases_again():
    old, new = Bench(private=True), Bench(private=True)
    for bench in (old, new):
        bench.meet("ben", 1.0)
    new.run(4)
    old.run(1)
    old.node.on_greeting("ben", old.greeting(1.0, yours=new.node.sent.data))
    assert old.node.obstacle == "behind"
    old.run(60)
    assert old.ledger.consumed == 1
    assert old.store.load().behind == 4
    ledger = FailingLedger("anna")
    ledger.grant(old.ledger.policy)
    again = Bench(private=True, store=old.store, ledger=ledger)
    again.meet("ben", 1.0)
    again.run(60)
    assert again.node.obstacle == "behind"
    assert again.ledger.consumed == 0


def test_another_release_under_a_number_of_its_own_shows_that_it_is_behind():
    """An old copy that has gone on by itself: same number, another noise."""
    one, other = Bench(private=True), Bench(private=True)
    one.meet("ben", 1.0)
    other.meet("carl", 2.0)
    other.node.on_published("carl", other.model("carl", 3, [5, 5]))
    for bench in (one, other):
        bench.run(2)
    assert one.node.sent.number == other.node.sent.number
    assert one.node.sent.data != other.node.sent.data
    one.run(1)
    one.node.on_greeting("ben", one.greeting(1.0, yours=other.node.sent.data))
    assert one.node.obstacle == "behind"


def test_own_releases_shown_again_are_no_reason_to_stop():
    bench = Bench(private=True)
    bench.meet("ben", 1.0)
    bench.run(2)
    for data in (*bench.transport.published, bench.model("anna", 0, [0, 0])):
        bench.node.on_greeting("ben", bench.greeting(1.0, yours=data))
    assert bench.node.obstacle is None


def test_without_privacy_a_later_own_model_is_taken_back():
    new, old = Bench().among_all(), Bench().among_all()
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


def test_who_comes_up_is_shown_the_last_message():
    bench = Bench()
    bench.run(2)
    bench.node.on_published("ben", bench.model("ben", 3, [1, 1]))
    bench.node.on_presence("ben", True)
    ((receiver, greeting),) = bench.transport.greetings
    assert receiver == "ben"
    assert greeting.weight == 1.0
    assert greeting.mine == bench.node.sent.data
    assert greeting.yours == bench.model("ben", 3, [1, 1])


def test_who_is_silent_greets_its_neighbors_from_time_to_time():
    bench = Bench()
    bench.meet("ben", 1.0)
    bench.agent.next_tick = None
    bench.run(5 * GREETING_PERIOD / SECOND + 1)
    assert len(bench.transport.greetings) == 6


def test_who_publishes_need_not_greet():
    bench = Bench()
    bench.meet("ben", 1.0)
    bench.run(5 * GREETING_PERIOD / SECOND + 1)
    assert len(bench.transport.greetings) == 1


def test_an_answer_is_not_answered():
    """However long it took: else two busy hosts would answer each other's answers for ever."""
    bench = Bench()
    bench.meet("ben", 1.0)
    for is_answer, answers in ((True, 0), (False, 1)):
        bench.run(2 * GREETING_GAP / SECOND)
        before = len(bench.transport.greetings)
        bench.node.on_greeting("ben", greet(Greeting(1.0, 0, None, None, is_answer)))
        assert len(bench.transport.greetings) == before + answers
    assert bench.transport.greetings[-1][1].is_answer


def test_two_do_not_greet_each_other_for_ever():
    time, network, nodes = ManualTime(), MemoryNetwork(), []
    for me, other in (("ben", "carl"), ("carl", "ben")):
        store, clock = MemoryStore(), PoissonClock(1.0, limit=0)
        agent = make_agent(me, SETTINGS.problem(POINTS, TARGETS), {other: 1.0}, clock)
        outbox = PlainOutbox(Signer(NETWORK, me, "none", KEYS[me]), store, agent.model)
        intake = Intake(
            me,
            NETWORK,
            2,
            ["none"],
            neighbor_keys({other: 1.0}),
            1e6,
            public_key=public_key_of(KEYS[me]),
            clock=time.now,
        )
        node = Node(agent, clock, intake, outbox, store, network, time)
        node.start(0)
        nodes.append((me, node, other))
    for me, node, other in nodes:
        network.attach(me, node, [other])
    assert network.deliver_all() == 2
    assert all(node.neighbors_up == [other] for _, node, other in nodes)
    network.detach("carl")
    assert nodes[0][1].neighbors_up == []


def test_another_weight_is_refused_until_both_agree():
    bench = Bench()
    bench.meet("ben", 9.0)
    bench.node.on_published("ben", bench.model("ben", 1, [1, 1]))
    assert bench.agent.neighbors["ben"].model is None
    assert bench.node.intake.dropped["weight"] == 2
    bench.node.set_neighbors(neighbor_keys({"ben": 9.0, "carl": 2.0}), 1)
    assert bench.agent.neighbors["ben"].weight == 9.0
    bench.node.on_published("ben", bench.model("ben", 2, [1, 1]))
    assert bench.agent.neighbors["ben"].number == 2


# Rosters


def test_who_leaves_is_forgotten_and_who_comes_is_added():
    bench = Bench(weights={"ben": 1.0})
    bench.node.on_published("ben", bench.model("ben", 1, [1, 1]))
    bench.run(WRITING_GAP / SECOND + 0.1)
    assert bench.store.load().received.keys() == {"ben"}
    bench.node.set_neighbors(neighbor_keys({"carl": 2.0}), 1)
    assert bench.agent.neighbors.keys() == {"carl"}
    bench.meet("carl", 2.0)
    bench.run(WRITING_GAP / SECOND + 0.1)
    assert bench.store.load().received.keys() == {"carl"}
    bench.node.on_published("ben", bench.model("ben", 2, [1, 1]))
    assert bench.node.intake.dropped["unknown_sender"] == 1
    assert bench.transport.greetings[-1][1].version == 1


def test_a_neighbor_that_left_while_the_agent_was_down_is_forgotten():
    bench = Bench(weights={"ben": 1.0})
    bench.node.on_published("ben", bench.model("ben", 1, [1, 1]))
    bench.node.stop()
    again = Bench(store=bench.store, weights={"carl": 2.0})
    again.run(WRITING_GAP / SECOND + 1)
    assert again.store.load().received == {}


# What comes in


def test_hostile_bytes_change_nothing():
    bench = Bench()
    good = bench.model("ben", 2, [1, 1])
    bench.node.on_published("ben", good)
    hostile = [
        b"",
        good[:-1],
        bench.model("ben", 1, [9, 9]),
        bench.model("carl", 7, [9, 9]),
        bench.model("ben", 3, [np.nan, 1]),
        bench.model("ben", 3, [1e300, 1]),
        bench.model("ben", 3, [1, 1, 1]),
        sign(ModelBody(NETWORK, "ben", 3, "none", encode(3, np.ones(2))), KEYS["carl"]),
        sign(ModelBody(NETWORK, "ben", 3, "dp", encode(3, np.ones(2))), KEYS["ben"]),
        sign(ModelBody("other", "ben", 3, "none", encode(3, np.ones(2))), KEYS["ben"]),
    ]
    for data in hostile:
        bench.node.on_published("ben", data)
        bench.node.on_greeting("ben", bench.greeting(1.0, data, data))
    bench.node.on_published("eve", good)
    bench.node.on_presence("eve", True)
    assert bench.agent.neighbors["ben"].number == 2
    np.testing.assert_array_equal(bench.agent.neighbors["ben"].model, [1, 1])
    assert bench.agent.neighbors["carl"].model is None
    assert bench.node.obstacle is None


def test_received_models_are_written_together():
    bench = Bench()
    writes = []
    bench.store.save_received = lambda received, forgotten=(): writes.append(sorted(received))
    for number in range(1, 6):
        bench.node.on_published("ben", bench.model("ben", number, [1, 1]))
        bench.node.on_published("carl", bench.model("carl", number, [1, 1]))
    bench.run(2 * WRITING_GAP / SECOND)
    assert writes == [["ben", "carl"]]
    bench.node.on_published("ben", bench.model("ben", 6, [1, 1]))
    bench.node.stop()
    assert writes == [["ben", "carl"], ["ben"]]


# Time


def test_a_poisson_clock_ticks_at_its_rate_and_ends():
    """The mean of 4000 waiting times is within 5 standard errors (an error in 10⁶)."""
    clock, now = PoissonClock(10.0, limit=4000), 0
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


def test_what_an_outbox_hands_out_is_what_the_agent_learned():
    bench = Bench().among_all()
    bench.run(1)
    body = open_signed(bench.node.sent.data, 10_000).body
    np.testing.assert_array_equal(decode(body.payload)[1], bench.agent.model)
    assert bench.agent.model.any()
