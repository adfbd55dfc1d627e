"""Conversations of all agents together, who ask for sums: with a share of the noise from each, or at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import count
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.base import RunSettings
from flockwise.engine.conditions import is_online
from flockwise.method.rules import Contributions, Outcome, Rounds, Traffic
from flockwise.privacy.sums import OpenedSum, added_up
from flockwise.protocol.conversation import SumRequest
from flockwise.randomness.clocks import TIME_UNIT

Positions: TypeAlias = NDArray[np.intp]
# What agents at these positions add up to, noise included: from the number of the sum, and who asks for what.
Adds: TypeAlias = Callable[[int, Mapping[int, SumRequest], Positions], NDArray[np.int64]]


def add_up(rule: Rounds, sums: Contributions, settings: RunSettings) -> Outcome:
    """Everyone talks for itself, and adds its part and its share of the noise. The oracle."""

    def share(position: int, number: int, request: SumRequest) -> NDArray[np.int64]:
        part = sums.part(position, request)
        return part + sums.noise.share(int(rule.ids[position]), number, request, len(part))

    def total(number: int, requests: Mapping[int, SumRequest], present: Positions) -> NDArray[np.int64]:
        return added_up([share(position, number, requests[position]) for position in present.tolist()])

    return _talk(rule, sums, settings, range(rule.n_agents), total)


def add_up_at_once(rule: Rounds, sums: Contributions, settings: RunSettings) -> Outcome:
    """The same sums with one noise in place of all shares. Everyone asks for the same sums and hears the same
    totals, so one agent talks for all."""

    def total(number: int, requests: Mapping[int, SumRequest], present: Positions) -> NDArray[np.int64]:
        whole = sums.whole(present, requests[0])
        return whole + sums.noise.whole(len(present), number, requests[0], len(whole))

    return _talk(rule, sums, settings, range(1), total)


def _talk(
    rule: Rounds, sums: Contributions, settings: RunSettings, speakers: Iterable[int], total: Adds
) -> Outcome:
    """Sum after sum, until every speaker has its outcome."""
    talks = {position: rule.converse(position, int(rule.ids[position]), {}) for position in speakers}
    traffic, results, answer = Traffic.none(), dict[int, Any](), None
    for number in count(1):
        requests = _requests(talks, answer, results)
        if not requests:
            break
        present = present_at(rule, settings, number)
        is_opened = len(present) >= sums.least_present
        answer = OpenedSum(total(number, requests, present), tuple(present.tolist())) if is_opened else None
        traffic.add(requests[0].kind, len(present), len(sums.noise.stds[number - 1]))
    return rule.collect(results, traffic)


def _requests(
    talks: dict[int, Generator[Any, Any, Any]], answer: OpenedSum | None, results: dict[int, Any]
) -> dict[int, SumRequest]:
    """What everyone asks for next; who has nothing to ask any more has a result."""
    requests = {}
    for position, talk in list(talks.items()):
        try:
            requests[position] = talk.send(answer)
        except StopIteration as end:
            results[position] = end.value
            del talks[position]
    return requests


def present_at(rule: Rounds, settings: RunSettings, number: int) -> Positions:
    """The agents that deliver to sum number k: those that are online at time k."""
    table, seed, time = settings.conditions.table(rule.ids), np.uint64(settings.seed), number * TIME_UNIT
    online = [is_online(table, seed, agent, time) for agent in rule.ids.tolist()]
    return np.flatnonzero(online)
