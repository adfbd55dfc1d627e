"""The clocks of flockwise.randomness.clocks in Triton: the same integers for the same seed."""

# pyright: reportMissingImports=false

from __future__ import annotations

import triton
import triton.language as tl

from flockwise.engine.gpu.records import DEGREE, EDGE, NUMBER, PLACE_WORDS
from flockwise.randomness.clocks import BLOCK_SHIFT, CLOCK, UNIT_BITS
from flockwise.randomness.clocks import NEVER as LAST_INTEGER

NEVER = tl.constexpr(int(LAST_INTEGER))
_UNIT_BITS = tl.constexpr(UNIT_BITS)
_FRACTION_SHIFT = tl.constexpr(64 - UNIT_BITS)
_PURPOSE = tl.constexpr(CLOCK)
_BLOCK_SHIFT = tl.constexpr(int(BLOCK_SHIFT))
# Words that are compared at a time; a run of falling words is hardly ever longer.
_WORDS = tl.constexpr(16)
_NONE = tl.constexpr(1 << 30)


@triton.jit
def ticks_before(tick, agent, other_tick, other):
    """Whose tick comes first; ties go to the lower index."""
    return (tick < other_tick) | ((tick == other_tick) & (agent < other))


@triton.jit
def nth_word(seed, number, update, n):
    """The n-th 64-bit word of these clocks' streams."""
    zero = (n * 0).to(tl.uint32)
    purpose = (((n >> 1) << _BLOCK_SHIFT) | _PURPOSE).to(tl.uint32)
    a, b, c, d = tl.philox(seed, zero + number.to(tl.uint32), zero + update.to(tl.uint32), purpose, zero)
    even = (a.to(tl.uint64) << 32) | b.to(tl.uint64)
    odd = (c.to(tl.uint64) << 32) | d.to(tl.uint64)
    return tl.where((n & 1) == 0, even, odd)


@triton.jit
def waiting_time(whole, first):
    """So many whole units, and the first word of the accepted run as the fraction."""
    return (whole << _UNIT_BITS) + (first >> _FRACTION_SHIFT).to(tl.int64)


@triton.jit
def tick_gap(seed, number, update):
    """The time between one agent's update number `update` and the one before: many words compared at once."""
    start = update * 0
    place = start
    whole = start.to(tl.int64)
    gap = whole - 1
    first = whole.to(tl.uint64)
    while gap < 0:
        n = place + tl.arange(0, _WORDS)
        here = nth_word(seed, number, update, n)
        there = nth_word(seed, number, update, n + 1)
        if place == start:
            first = tl.sum(tl.where(n == start, here, here * 0))
        stop = tl.min(tl.where(there >= here, n, _NONE))
        if stop == _NONE:
            place += _WORDS
        else:
            if ((stop - start) & 1) == 0:  # a run of odd length
                gap = waiting_time(whole, first)
            else:
                whole += 1
                start = stop + 2
                place = start
    return gap


@triton.jit
def count_fires(agents, settings, n_agents, total, RECORD: tl.constexpr, BLOCK: tl.constexpr):
    """Add to `total` how many ticks come up to the barrier: each agent draws its words one by one."""
    seed, until, limit = tl.load(settings), tl.load(settings + 1), tl.load(settings + 2)
    agent = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_here = agent < n_agents
    agent64 = agent.to(tl.int64)
    number = tl.load(agents.counts + agent64 * PLACE_WORDS + NUMBER, mask=is_here, other=0)
    tick = tl.load(agents.ticks + agent64 * (RECORD // 2), mask=is_here, other=NEVER)
    update = tl.load(agents.updates + agent64 * RECORD, mask=is_here, other=0)
    is_due = (tick <= until) & (tick < NEVER)
    count = is_due.to(tl.int32)
    n = update * 0
    length = n
    whole = n.to(tl.int64)
    first = whole.to(tl.uint64)
    last = first
    draws = is_due & (update + count < limit)
    while tl.max(draws.to(tl.int32)) > 0:
        word = nth_word(seed, number, update + count, n)
        stops = (length > 0) & (word >= last)
        is_odd = (length & 1) == 1
        is_drawn = draws & stops & is_odd
        tick += tl.where(is_drawn, waiting_time(whole, first), 0)
        is_due = is_drawn & (tick <= until)
        count += is_due.to(tl.int32)
        draws = tl.where(is_drawn, is_due & (update + count < limit), draws)
        whole = tl.where(is_drawn, 0, whole + (stops & ~is_odd).to(tl.int64))
        first = tl.where(length == 0, word, first)
        last = word
        length = tl.where(stops, 0, length + 1)
        n = tl.where(is_drawn, 0, n + 1)
    tl.atomic_add(total, tl.sum(count).to(tl.int64))


@triton.jit
def count_earlier(edges, agents, n_agents, RECORD: tl.constexpr, BLOCK: tl.constexpr):
    """Write how many neighbors tick before each agent."""
    agent = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_here = agent < n_agents
    agent64 = agent.to(tl.int64)
    edge = tl.load(agents.places + agent64 * (PLACE_WORDS // 2) + EDGE, mask=is_here, other=0)
    degree = tl.load(agents.counts + agent64 * PLACE_WORDS + DEGREE, mask=is_here, other=0)
    tick = tl.load(agents.ticks + agent64 * (RECORD // 2), mask=is_here, other=0)
    count = agent * 0
    while tl.max(degree) > 0:
        is_edge = degree > 0
        neighbor = tl.load(edges.neighbors + edge, mask=is_edge, other=0)
        other_tick = tl.load(agents.ticks + neighbor.to(tl.int64) * (RECORD // 2), mask=is_edge, other=0)
        count += (is_edge & ticks_before(other_tick, neighbor, tick, agent)).to(tl.int32)
        edge += 1
        degree -= 1
    tl.store(agents.earlier + agent64 * RECORD, count, mask=is_here)
