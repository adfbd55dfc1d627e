"""How many hops apart two agents can be, found by the agents themselves: the echo algorithm.

Everyone floods its own number and joins the flood of the smallest one that it hears of. An agent that has
joined answers its parent, by which it joined, once all its neighbors have joined and all its children have
answered. So only the smallest number of all, the leader, ever gets all answers (Chang 1982, "Echo
algorithms"). It then knows the hops to the farthest agent. No two agents are more than twice as many
apart, and that is the public number: everyone learns it in as many rounds again, and at which round all of
them stop.

A neighbor that is not heard in a round is left out of it. If the leader disappears or was faked, everyone
stops after MOST_ROUNDS, and takes the same number for the reach.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from flockwise.protocol.conversation import Conversation, Say, Vector

UNKNOWN: Final = -1
# Rounds after which nobody waits for the leader any more, and the reach that everyone takes then.
MOST_ROUNDS: Final = 4096
REACH_WITHOUT_LEADER: Final = 64


class _State(NamedTuple):
    """One round of an agent's messages: whom it follows, and what it knows of the answers and of the end."""

    leader: int
    hops_to_leader: int
    parent: int
    farthest: int = UNKNOWN
    reach: int = UNKNOWN
    last_round: int = UNKNOWN

    @classmethod
    def of_vector(cls, vector: Vector) -> _State:
        return cls(*(int(number) for number in vector))


def find_reach(number: int) -> Conversation[int]:
    """A bound on the hops between any two agents, the same for all of them."""
    state, rounds = _State(number, 0, number), 0
    while state.last_round == UNKNOWN or rounds < state.last_round:
        if rounds == MOST_ROUNDS:
            return REACH_WITHOUT_LEADER
        heard = yield Say("reach", np.array(state, np.float64))
        if not heard:  # all have gone on
            break
        rounds += 1
        neighbors = {sender: _State.of_vector(vector) for sender, vector in sorted(heard.items())}
        state = _told(_answered(_joined(state, neighbors), neighbors, number), neighbors, number, rounds)
    return min(max(state.reach, 1), MOST_ROUNDS)


def _joined(state: _State, neighbors: dict[int, _State]) -> _State:
    """Following the smallest leader, by the first neighbor who does."""
    for sender, other in neighbors.items():
        if other.leader < state.leader:
            state = _State(other.leader, other.hops_to_leader + 1, sender)
    return state


def _answered(state: _State, neighbors: dict[int, _State], number: int) -> _State:
    """With the hops to the farthest agent behind it, as soon as all that are behind it have answered."""
    children = [other for other in neighbors.values() if other.parent == number]
    if any(other.leader != state.leader for other in neighbors.values()):
        return state
    if any(child.farthest == UNKNOWN for child in children):
        return state
    return state._replace(farthest=max([state.hops_to_leader, *(child.farthest for child in children)]))


def _told(state: _State, neighbors: dict[int, _State], number: int, rounds: int) -> _State:
    """With the end of it, which the leader sets far enough ahead for the last agent to hear of it in time."""
    if state.last_round != UNKNOWN:
        return state
    if state.leader == number and state.farthest != UNKNOWN:
        return state._replace(reach=2 * state.farthest, last_round=rounds + state.farthest)
    for other in neighbors.values():
        if other.last_round != UNKNOWN:
            return state._replace(reach=other.reach, last_round=other.last_round)
    return state
