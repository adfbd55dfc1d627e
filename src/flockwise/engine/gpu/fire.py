"""The exact clock queue as one kernel: programs fire ready agents until the barrier, and never meet.

Each agent counts the neighbors that tick before it. One whose count is 0 is ready and stands in the queue. A
program takes a turn in the queue, waits until an agent stands there, and fires it: update, next tick, the own
count; then it decrements the counts of the neighbors that have overtaken it, and queues those that reach 0.

All neighbors of a ready agent wait for it, so no program changes their clocks or models while it fires. There
is one memory fence per update. All writes and reads of the program come before it. After it, the program
queues agents, also those that became ready by its update before. The program that takes an agent from there
(an acquire) sees everything before that fence.
"""

# pyright: reportMissingImports=false, reportOperatorIssue=false
# pyright: reportGeneralTypeIssues=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

from flockwise.engine.gpu.clocks import NEVER, tick_gap, ticks_before
from flockwise.engine.gpu.gradient import narrow_gradient, wide_gradient
from flockwise.engine.gpu.records import DEGREE, EDGE, NUMBER, PLACE_WORDS, ROW, SAMPLES
from flockwise.engine.gpu.tiles import COLUMNS, add_tiles, columns_of, read_tiles, weighted_rows

HEAD = tl.constexpr(0)
TAIL = tl.constexpr(32)  # in another cache line
NOBODY = tl.constexpr(-1)


@triton.jit
def fence(CONCURRENT: tl.constexpr):
    """A program that sees a write from after the fence also sees everything from before it."""
    tl.debug_barrier()
    if CONCURRENT:
        tl.inline_asm_elementwise(
            "fence.acq_rel.gpu; mov.u32 $0, 0;",
            "=r,r,~{memory}",
            [tl.program_id(0)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def put(queue, agent, is_ready):
    """Add the agents that are ready to the queue. The caller puts a fence before."""
    count = tl.sum(is_ready.to(tl.int32))
    if count > 0:
        first = tl.atomic_add(queue.counters + TAIL, count, sem="relaxed")
        place = first + tl.cumsum(is_ready.to(tl.int32), axis=0) - 1
        tl.atomic_xchg(queue.agents + place, agent, mask=is_ready, sem="relaxed")


@triton.jit
def let_pass(agents, until, neighbor, their_tick, has_overtaken, RECORD: tl.constexpr):
    """Neighbors that now tick before an agent no longer count it. Returns which of them are ready to fire."""
    place = agents.earlier + neighbor.to(tl.int64) * RECORD
    count = tl.atomic_add(place, -1, mask=has_overtaken, sem="relaxed")
    return has_overtaken & (count == 1) & (their_tick <= until)


@triton.jit
def read_edges(edges, edge, stop, NEIGHBORS: tl.constexpr):
    """Up to so many neighbors, the shares of their models, and which of these there are."""
    here = edge + tl.arange(0, NEIGHBORS)
    is_edge = here < stop
    neighbor = tl.load(edges.neighbors + here, mask=is_edge, other=0)
    share = tl.load(edges.shares + here, mask=is_edge, other=0.0)
    return neighbor, share, is_edge


@triton.jit
def read_passing(
    edges, agents, edge, stop, upcoming, agent, NEIGHBORS: tl.constexpr, RECORD: tl.constexpr
):  # fmt: skip
    """Up to so many neighbors, their ticks, and which of them tick before the agent's upcoming one."""
    neighbor, _, is_edge = read_edges(edges, edge, stop, NEIGHBORS)
    tick = tl.load(agents.ticks + neighbor.to(tl.int64) * (RECORD // 2), mask=is_edge, other=0)
    return neighbor, tick, is_edge & ticks_before(tick, neighbor, upcoming, agent)


@triton.jit
def mean_tiles(
    agents, neighbor, share, is_edge, STRIDE: tl.constexpr, SIZE: tl.constexpr, TILES: tl.constexpr
):  # fmt: skip
    """The weighted sum of the neighbors' models, as tiles."""
    rows = agents.models + neighbor.to(tl.int64) * STRIDE
    tiles = ()
    for tile in tl.static_range(TILES):
        tiles = tiles + (weighted_rows(rows, is_edge, share, tile, SIZE),)
    return tiles


@triton.jit
def noise_tiles(
    seed, noise, settings, agent, number, update, DRAW: tl.constexpr, SIZE: tl.constexpr, TILES: tl.constexpr,
    TILE_BLOCK: tl.constexpr,
):  # fmt: skip
    """The noise of one update, as tiles: drawn in a block without repetition, then taken apart."""
    tile_row = tl.arange(0, TILE_BLOCK)[:, None]
    coordinate = tile_row * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    release = tl.load(settings + 3).to(tl.int32) + update
    block = noise_scale(noise, settings, agent, update) * DRAW(seed, number, release, coordinate, SIZE)
    tiles = ()
    for tile in tl.static_range(TILES):
        tiles = tiles + (tl.sum(tl.where(tile_row == tile, block, 0.0), axis=0),)
    return tiles


@triton.jit
def noise_scale(noise, settings, agent, update):
    """Of the agent's update: its plan's multiplier times its sensitivity."""
    plan = tl.load(noise.plans + agent).to(tl.int64)
    multiplier = tl.load(noise.multipliers + plan * tl.load(settings + 5) + update - 1)
    return multiplier * tl.load(noise.sensitivities + agent)


@triton.jit
def keep_release(noise, settings, agent, update, column, model, SIZE: tl.constexpr):
    """Count a released model in the agent's tail average."""
    if update > tl.load(settings + 4):
        place = noise.tail_sums + agent.to(tl.int64) * SIZE + column
        tail = tl.load(place, mask=column < SIZE, other=0.0)
        tl.store(place, tail + model.to(tl.float64), mask=column < SIZE)


@triton.jit
def step_from(model, mean, gradient, step, pull):
    """Eq. (4): θ + α·(mean − θ − μc·∇ℒ)."""
    return model + step * (mean - model - pull * gradient)


@triton.jit
def narrow_slope(
    samples, agents, agent64, row, stop,
    SLOPE: tl.constexpr, PARAMETER: tl.constexpr, NORM: tl.constexpr, STRIDE: tl.constexpr,
    SIZE: tl.constexpr, ROW_STRIDE: tl.constexpr, TILES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A model that fits into registers, and the gradient of the agent's own term at it."""
    model = read_tiles(agents.models + agent64 * STRIDE, SIZE, TILES)
    slope = ()
    if SLOPE is None:
        anchor = read_tiles(samples.features + agent64 * ROW_STRIDE, SIZE, TILES)
        for tile in tl.static_range(TILES):
            slope = slope + (model[tile] - anchor[tile],)
    else:
        sums = narrow_gradient(
            samples, model, row, stop, SLOPE, PARAMETER, NORM, ROW_STRIDE, SIZE, TILES, ROWS
        )
        share = 1.0 / tl.maximum(stop - row, 1).to(model[0].dtype)
        shrink = tl.load(agents.steps + 4 * agent64 + 2)
        for tile in tl.static_range(TILES):
            slope = slope + (sums[tile] * share + shrink * model[tile],)
    return model, slope


@triton.jit
def narrow_update(
    edges, agents, noise, settings, seed, agent, number, update, edge, last_edge, model, slope,
    DRAW: tl.constexpr, STRIDE: tl.constexpr, SIZE: tl.constexpr, TILES: tl.constexpr,
    TILE_BLOCK: tl.constexpr, NEIGHBORS: tl.constexpr,
):  # fmt: skip
    """The update of a model in registers."""
    if DRAW is not None:
        draws = noise_tiles(seed, noise, settings, agent, number, update, DRAW, SIZE, TILES, TILE_BLOCK)
        noisy = ()
        for tile in tl.static_range(TILES):
            noisy = noisy + ((slope[tile].to(tl.float64) + draws[tile]).to(slope[tile].dtype),)
        slope = noisy
    agent64 = agent.to(tl.int64)
    own = agents.models + agent64 * STRIDE
    step = tl.load(agents.steps + 4 * agent64)
    pull = tl.load(agents.steps + 4 * agent64 + 1)
    neighbor, weight, is_edge = read_edges(edges, edge, last_edge, NEIGHBORS)
    mean = mean_tiles(agents, neighbor, weight, is_edge, STRIDE, SIZE, TILES)
    following = edge + NEIGHBORS
    while following < last_edge:
        neighbor, weight, is_edge = read_edges(edges, following, last_edge, NEIGHBORS)
        more = mean_tiles(agents, neighbor, weight, is_edge, STRIDE, SIZE, TILES)
        mean = add_tiles(mean, more, TILES)
        following += NEIGHBORS
    for tile in tl.static_range(TILES):
        around = tl.where(edge == last_edge, model[tile], mean[tile])
        moved = step_from(model[tile], around, slope[tile], step, pull)
        column = columns_of(tile)
        if DRAW is not None:
            keep_release(noise, settings, agent, update, column, moved, SIZE)
        tl.store(own + column, moved, mask=column < SIZE)


@triton.jit
def wide_update(
    samples, edges, agents, noise, settings, seed, agent, number, update, row, stop, edge, last_edge, sums,
    SLOPE: tl.constexpr, PARAMETER: tl.constexpr, NORM: tl.constexpr, DRAW: tl.constexpr,
    STRIDE: tl.constexpr, SIZE: tl.constexpr, ROW_STRIDE: tl.constexpr, FEATURES: tl.constexpr,
    OUTPUTS: tl.constexpr, OUTPUT_BLOCK: tl.constexpr, ROWS: tl.constexpr, NEIGHBORS: tl.constexpr,
):  # fmt: skip
    """The update of a model of any size, tile after tile; the sum of gradients goes through memory."""
    agent64 = agent.to(tl.int64)
    own = agents.models + agent64 * STRIDE
    step = tl.load(agents.steps + 4 * agent64)
    pull = tl.load(agents.steps + 4 * agent64 + 1)
    shrink = tl.load(agents.steps + 4 * agent64 + 2)
    share = step * 0
    if SLOPE is not None:
        wide_gradient(
            samples, own, sums, row, stop, SLOPE, PARAMETER, NORM, ROW_STRIDE, FEATURES, OUTPUTS,
            OUTPUT_BLOCK, ROWS,
        )  # fmt: skip
        share = 1.0 / tl.maximum(stop - row, 1).to(step.dtype)
    if DRAW is not None:
        scale = noise_scale(noise, settings, agent, update)
        release = tl.load(settings + 3).to(tl.int32) + update
    for tile in range((SIZE + COLUMNS - 1) // COLUMNS):
        column = columns_of(tile)
        model = tl.load(own + column, mask=column < SIZE, other=0.0)
        if SLOPE is None:
            anchor = samples.features + agent64 * ROW_STRIDE + column
            slope = model - tl.load(anchor, mask=column < SIZE, other=0.0)
        else:
            slope = tl.load(sums + column, mask=column < SIZE, other=0.0) * share + shrink * model
        if DRAW is not None:
            draw = DRAW(seed, number, release, column, SIZE)
            slope = (slope.to(tl.float64) + scale * draw).to(slope.dtype)
        mean = model * 0
        here = edge
        while here < last_edge:
            neighbor, weight, is_edge = read_edges(edges, here, last_edge, NEIGHBORS)
            rows = agents.models + neighbor.to(tl.int64) * STRIDE
            mean += weighted_rows(rows, is_edge, weight, tile, SIZE)
            here += NEIGHBORS
        moved = step_from(model, tl.where(edge == last_edge, model, mean), slope, step, pull)
        if DRAW is not None:
            keep_release(noise, settings, agent, update, column, moved, SIZE)
        tl.store(own + column, moved, mask=column < SIZE)


@triton.jit
def fire(
    samples, edges, agents, noise, queue, settings, n_fires,
    SLOPE: tl.constexpr, PARAMETER: tl.constexpr, NORM: tl.constexpr, DRAW: tl.constexpr,
    STRIDE: tl.constexpr, SIZE: tl.constexpr, ROW_STRIDE: tl.constexpr, FEATURES: tl.constexpr,
    OUTPUTS: tl.constexpr, OUTPUT_BLOCK: tl.constexpr, TILES: tl.constexpr, TILE_BLOCK: tl.constexpr,
    RECORD: tl.constexpr, ROWS: tl.constexpr, NEIGHBORS: tl.constexpr, CONCURRENT: tl.constexpr,
):  # fmt: skip
    """Fire agents from the queue until all ticks up to the barrier are done."""
    end = tl.load(n_fires)
    turn = tl.atomic_add(queue.counters + HEAD, 1, sem="relaxed")
    ready = tl.zeros((NEIGHBORS,), tl.int32)
    is_ready = ready < 0
    while turn < end:
        following = tl.atomic_add(queue.counters + HEAD, 1, sem="relaxed")
        agent = tl.load(queue.agents + turn, volatile=True)
        if agent < 0:  # perhaps the program itself has to queue it
            fence(CONCURRENT)
            put(queue, ready, is_ready)
            is_ready = is_ready & (ready < 0)
            while agent < 0:
                agent = tl.load(queue.agents + turn, volatile=True)
        agent = tl.atomic_add(queue.agents + turn, 0, sem="acquire")
        agent64 = agent.to(tl.int64)
        begins, counts = agents.places + agent64 * (PLACE_WORDS // 2), agents.counts + agent64 * PLACE_WORDS
        row = tl.load(begins + ROW)
        stop = row + tl.load(counts + SAMPLES)
        edge = tl.load(begins + EDGE)
        last_edge = edge + tl.load(counts + DEGREE)
        if TILES > 0:  # first, while few registers are in use
            model, slope = narrow_slope(
                samples, agents, agent64, row, stop, SLOPE, PARAMETER, NORM, STRIDE, SIZE, ROW_STRIDE, TILES,
                ROWS,
            )  # fmt: skip
        neighbor, _, is_edge = read_edges(edges, edge, last_edge, NEIGHBORS)
        their_tick = tl.load(agents.ticks + neighbor.to(tl.int64) * (RECORD // 2), mask=is_edge, other=0)
        now = tl.load(agents.ticks + agent64 * (RECORD // 2))
        update = tl.load(agents.updates + agent64 * RECORD) + 1
        number = tl.load(counts + NUMBER)
        seed, until, limit = tl.load(settings), tl.load(settings + 1), tl.load(settings + 2)
        gap = tick_gap(seed, number, update)
        if TILES > 0:
            narrow_update(
                edges, agents, noise, settings, seed, agent, number, update, edge, last_edge, model, slope,
                DRAW, STRIDE, SIZE, TILES, TILE_BLOCK, NEIGHBORS,
            )  # fmt: skip
        else:
            wide_update(
                samples, edges, agents, noise, settings, seed, agent, number, update, row, stop, edge,
                last_edge, queue.sums + tl.program_id(0).to(tl.int64) * STRIDE,
                SLOPE, PARAMETER, NORM, DRAW, STRIDE, SIZE, ROW_STRIDE, FEATURES, OUTPUTS, OUTPUT_BLOCK,
                ROWS, NEIGHBORS,
            )  # fmt: skip
        upcoming = tl.where(update < limit, now + gap, NEVER)
        has_overtaken = is_edge & ticks_before(their_tick, neighbor, upcoming, agent)
        count = tl.sum(has_overtaken.to(tl.int32))
        more = edge + NEIGHBORS
        while more < last_edge:
            other, tick, passes = read_passing(
                edges, agents, more, last_edge, upcoming, agent, NEIGHBORS, RECORD
            )
            count += tl.sum(passes.to(tl.int32))
            more += NEIGHBORS
        tl.store(agents.ticks + agent64 * (RECORD // 2), upcoming)
        tl.store(agents.updates + agent64 * RECORD, update)
        tl.store(agents.earlier + agent64 * RECORD, count)
        fence(CONCURRENT)
        put(queue, ready, is_ready)
        if (count == 0) & (upcoming <= until):
            place = tl.atomic_add(queue.counters + TAIL, 1, sem="relaxed")
            tl.atomic_xchg(queue.agents + place, agent, sem="relaxed")
        ready = neighbor
        is_ready = let_pass(agents, until, neighbor, their_tick, has_overtaken, RECORD)
        more = edge + NEIGHBORS
        while more < last_edge:
            other, tick, passes = read_passing(
                edges, agents, more, last_edge, upcoming, agent, NEIGHBORS, RECORD
            )
            passes = let_pass(agents, until, other, tick, passes, RECORD)
            fence(CONCURRENT)
            put(queue, other, passes)
            more += NEIGHBORS
        turn = following
    fence(CONCURRENT)
    put(queue, ready, is_ready)
