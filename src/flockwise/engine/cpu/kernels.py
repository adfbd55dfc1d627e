"""The compiled pass over one agent's samples: scores, slopes and gradient while each row is in cache.

A local term is what an agent adds to Eq. (2) by itself: a loss on its data, or the distance to an
anchor (supplement C). Engines are written once for both; numba picks the right code by type.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from flockwise.engine.cpu.lanes import (
    ROWS_TOGETHER,
    VECTOR_BYTES,
    add_products,
    add_weighted,
    no_sums,
    spread,
    store_totals,
)
from flockwise.method.rules import LocalData
from flockwise.objective.compiled import loss_slope, loss_slopes

# Sums may be reordered and fused for speed; NaN and infinity keep their meaning.
REORDER = {"reassoc", "contract", "nsz", "arcp"}
CACHE_LINE_BYTES = 64
# Cache lines whose reads start at a step over ROWS_TOGETHER rows: both passes together start what they use.
LINES_A_STEP = ROWS_TOGETHER * VECTOR_BYTES // (2 * CACHE_LINE_BYTES)
# Rows that are scored before their gradients are added up, a multiple of ROWS_TOGETHER: they stay in cache.
ROWS_AT_ONCE = 16
# Rows between the one in work and the one whose read starts: the time that a read takes.
ROWS_AHEAD = 16


class DataTerm(NamedTuple):
    """ℒ_i(θ) = mean loss over the agent's samples + λ_i‖θ‖²."""

    loss: Any
    features: NDArray[Any]
    targets: NDArray[Any]
    offsets: NDArray[np.int64]
    l2_penalties: NDArray[Any]


def data_term(local: LocalData) -> DataTerm:
    """Eq. (1) of all agents."""
    penalties = local.l2_penalties.astype(local.features.dtype)
    return DataTerm(local.loss, local.features, local.targets, local.offsets, penalties)


class ClippedTerm(NamedTuple):
    """The same with each sample's gradient clipped to a bound, so no sample can move ℒ_i's far.

    The gradient of one sample is φ'(θᵀx, y)·x: its norm is at most the bound if |φ'| ≤ bound/‖x‖, which is
    `slope_bounds` of the sample. `norm_is_l1` says in which norm; with several scores it is that of φ' too.
    """

    loss: Any
    features: NDArray[Any]
    targets: NDArray[Any]
    offsets: NDArray[np.int64]
    l2_penalties: NDArray[Any]
    slope_bounds: NDArray[Any]
    norm_is_l1: bool


class AnchorTerm(NamedTuple):
    """ℒ_i(θ) = ½‖θ − anchor_i‖²: model propagation."""

    anchors: NDArray[Any]


class Ahead(NamedTuple):
    """What this thread needs next, to be read while it computes.

    `agent` is whose turn comes next; it will need the models that neighbors[start:stop] name.
    """

    agent: int
    models: NDArray[Any]
    neighbors: NDArray[np.int32]
    start: int
    stop: int


@intrinsic
def prefetch(typing_context, array, index):
    """Start to read the cache line of the flat element `index`, and go on."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # Into the second-level cache: the first is full of the rows in work.
        read, second_level, data_cache = flag(0), flag(2), flag(1)
        builder.call(function, [pointer, read, second_level, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


def numbers_in(size, array):
    """How many of an array's numbers so many bytes hold: a constant to the compiler, unlike itemsize."""
    raise NotImplementedError("compiled code only")


@overload(numbers_in, inline="always")
def _compile_numbers_in(size, array):
    bytes_each = array.dtype.bitwidth // 8
    return lambda size, array: size // bytes_each


@njit(inline="always")
def prefetch_range(array, start, stop):
    """Start to read the flat elements from `start` to `stop`."""
    step = numbers_in(CACHE_LINE_BYTES, array)
    while start < stop:
        prefetch(array, start)  # pyright: ignore[reportCallIssue]
        start += step


@njit(inline="always")
def prefetch_models(ahead, start, stop):
    """Start to read the models that neighbors[start:stop] name."""
    size = ahead.models.shape[1]
    for e in range(start, min(stop, ahead.stop)):
        model = np.int64(ahead.neighbors[e]) * size
        prefetch_range(ahead.models, model, model + size)


def prefetch_term(term, agent):
    """Start to read where an agent's own samples are, and its share of the term."""
    raise NotImplementedError("compiled code only")


@overload(prefetch_term, jit_options={"forceinline": True})
def _compile_prefetch_term(term, agent):
    if term.instance_class is AnchorTerm:
        return lambda term, agent: prefetch_range(
            term.anchors, agent * term.anchors.shape[1], (agent + 1) * term.anchors.shape[1]
        )

    def prefetch_places(term, agent):
        prefetch(term.offsets, agent)  # pyright: ignore[reportCallIssue]
        prefetch(term.l2_penalties, agent)  # pyright: ignore[reportCallIssue]

    return prefetch_places


def prefetch_targets(term, start, stop):
    """Start to read what is kept of these samples beside their rows."""
    raise NotImplementedError("compiled code only")


@overload(prefetch_targets, jit_options={"forceinline": True})
def _compile_prefetch_targets(term, start, stop):
    if term.instance_class is not ClippedTerm:
        return lambda term, start, stop: prefetch_range(term.targets, start, stop)

    def prefetch_with_bounds(term, start, stop):
        prefetch_range(term.targets, start, stop)
        prefetch_range(term.slope_bounds, start, stop)

    return prefetch_with_bounds


@njit
def copy_into(target, source):
    """target[:] = source for vectors of equal length, without the checks that slow compilation down."""
    for d in range(target.shape[0]):
        target[d] = source[d]


def clip_slopes(term, start, stop, slopes):
    """Bound the slopes of these samples where the term says so."""
    raise NotImplementedError("compiled code only")


# No reordering here: a slope that is not a number must come out as one that is bounded. Inlined, since a call
# would copy every array descriptor of the term.
@overload(clip_slopes, jit_options={"forceinline": True})
def _compile_clipping(term, start, stop, slopes):
    if term.instance_class is not ClippedTerm:
        return lambda term, start, stop, slopes: None

    def clip_each(term, start, stop, slopes):
        for k in range(stop - start):
            bound = term.slope_bounds[start + k]
            slope = slopes[k]
            slope = slope if slope <= bound else bound
            slopes[k] = slope if slope >= -bound else -bound

    return clip_each


def clip_outer(term, row, slopes):
    """Scale the slopes of one sample down to its bound where the term says so."""
    raise NotImplementedError("compiled code only")


@overload(clip_outer)
def _compile_outer_clipping(term, row, slopes):
    if term.instance_class is not ClippedTerm:
        return lambda term, row, slopes: None

    def scale_down(term, row, slopes):
        length = 0.0
        for k in range(slopes.shape[0]):
            length += abs(slopes[k]) if term.norm_is_l1 else slopes[k] * slopes[k]
        length = length if term.norm_is_l1 else np.sqrt(length)
        bound = term.slope_bounds[row]
        if not length <= bound:
            # Not a number: nothing of this sample.
            share = bound / length if length < np.inf else 0.0
            for k in range(slopes.shape[0]):
                slopes[k] = slopes[k] * share if share > 0 else 0.0

    return scale_down


def add_local_gradient(term, agent, model, gradient, scores, ahead):
    """Write the gradient of the agent's local term at `model` into `gradient`.

    `scores` is scratch room for ROWS_AT_ONCE numbers.
    Meanwhile the rows and models of `ahead` are fetched.
    """
    raise NotImplementedError("compiled code only")


# Inlined, since a call would copy every array descriptor of the term.
@overload(add_local_gradient, inline="always")
def _compile_local_gradient(term, agent, model, gradient, scores, ahead):
    if term.instance_class is AnchorTerm:
        return _anchor_gradient
    if hasattr(term.types[0].instance_class, "slopes"):
        return _many_scores_gradient
    return _one_score_gradient


def _anchor_gradient(term, agent, model, gradient, scores, ahead):
    prefetch_models(ahead, ahead.start, ahead.stop)
    for d in range(model.shape[0]):
        gradient[d] = model[d] - term.anchors[agent, d]


def _one_score_gradient(term, agent, model, gradient, scores, ahead):
    start, stop = term.offsets[agent], term.offsets[agent + 1]
    sum_of_gradients(term, start, stop, model, gradient, scores, ahead)
    finish_gradient(stop - start, term.l2_penalties[agent], model, gradient)


@njit(fastmath=REORDER, forceinline=True)
def finish_gradient(n_samples, l2_penalty, model, gradient):
    """From the sum over samples to the gradient of ℒ_i: divide by m_i, add 2λ_iθ."""
    share = gradient.dtype.type(1.0 / max(n_samples, 1))
    shrink = gradient.dtype.type(2.0 * l2_penalty)
    for d in range(model.shape[0]):
        gradient[d] = gradient[d] * share + shrink * model[d]


@njit(fastmath=REORDER, forceinline=True)
def sum_of_gradients(term, start, stop, model, gradient, scores, ahead):
    """Σ φ'(θᵀx, y)·x in one pass over memory: a few rows at a time are scored, then added up from cache.

    Scores, slopes and sums are loops of their own: in one loop each would wait for the one before.
    """
    size = model.shape[0]
    for d in range(size):
        gradient[d] = 0
    next_start, next_stop = term.offsets[ahead.agent], term.offsets[ahead.agent + 1]
    prefetch_targets(term, next_start, next_stop)
    own_batches = -(-(stop - start) // ROWS_AT_ONCE)
    # The read of a row starts ROWS_AHEAD rows before its turn; after the own rows come the next agent's.
    leap = next_start - (start + own_batches * ROWS_AT_ONCE)
    # The models are spread over the batches: a processor that has too many reads under way waits.
    edge, edges_a_batch = ahead.start, -(-(ahead.stop - ahead.start) // max(own_batches, 1))
    while start < stop:
        end = min(start + ROWS_AT_ONCE, stop)
        row, last = start + ROWS_AHEAD, stop
        if row >= stop:
            row, last = row + leap, next_stop
        last = min(row + ROWS_AT_ONCE, last) * size - 1
        place = score_rows(term.features, start, end, model, scores, row * size, last)
        prefetch_models(ahead, edge, edge + edges_a_batch)
        edge += edges_a_batch
        for k in range(end - start):
            scores[k] = loss_slope(term.loss, scores[k], term.targets[start + k])
        clip_slopes(term, start, end, scores)
        for k in range(end - start, ROWS_AT_ONCE):
            scores[k] = 0
        add_rows(term.features, start, end, scores, gradient, place, last)
        start = end


@njit(forceinline=True)
def row_starts(row, stop, size):
    """Where ROWS_TOGETHER rows begin; after the last one it is repeated, so nothing else is read."""
    first, last = row * size, (stop - 1) * size
    return (
        first,
        min(first + size, last),
        min(first + 2 * size, last),
        min(first + 3 * size, last),
        min(first + 4 * size, last),
        min(first + 5 * size, last),
        min(first + 6 * size, last),
        min(first + 7 * size, last),
    )


@njit(forceinline=True)
def prefetch_some(array, place, last):
    """Start to read a few cache lines, up to that of the flat element `last`; returns where to go on.

    At the end those before it are asked for again, which costs less than to look at each.
    """
    step = numbers_in(CACHE_LINE_BYTES, array)
    first = min(place, last - (LINES_A_STEP - 1) * step)
    for line in range(LINES_A_STEP):
        prefetch(array, first + line * step)  # pyright: ignore[reportCallIssue]
    return place + LINES_A_STEP * step


@njit(fastmath=REORDER, forceinline=True)
def score_rows(features, start, stop, model, scores, place, last):
    """θᵀx of each row, several rows at a time.

    Meanwhile the reads of the flat elements from `place` to `last` start, a few at every step, so
    the processor has something to do while they are under way; returns where to go on.
    """
    size, lanes = model.shape[0], numbers_in(VECTOR_BYTES, model)
    for row in range(start, stop, ROWS_TOGETHER):
        starts = row_starts(row, stop, size)
        sums = no_sums(model)  # pyright: ignore[reportCallIssue]
        d = 0
        while d + lanes <= size:
            sums = add_products(sums, features, starts, model, d, None)
            place = prefetch_some(features, place, last)
            d += lanes
        if d < size:
            sums = add_products(sums, features, starts, model, d, size - d)
        store_totals(sums, scores, row - start)
    return place


@njit(fastmath=REORDER, forceinline=True)
def add_rows(features, start, stop, slopes, gradient, place, last):
    """Add Σ slope·x to the gradient, several rows at a time, and read ahead; slopes after the last are 0."""
    size, lanes = gradient.shape[0], numbers_in(VECTOR_BYTES, gradient)
    for row in range(start, stop, ROWS_TOGETHER):
        starts = row_starts(row, stop, size)
        weights = spread(slopes, row - start)  # pyright: ignore[reportCallIssue]
        d = 0
        while d + lanes <= size:
            add_weighted(gradient, weights, features, starts, d, None)
            place = prefetch_some(features, place, last)
            d += lanes
        if d < size:
            add_weighted(gradient, weights, features, starts, d, size - d)
    prefetch_range(features, place, last + 1)


def _many_scores_gradient(term, agent, model, gradient, scores, ahead):
    start, stop = term.offsets[agent], term.offsets[agent + 1]
    prefetch_models(ahead, ahead.start, ahead.stop)
    sum_of_outer_gradients(term, start, stop, model, gradient)
    finish_gradient(stop - start, term.l2_penalties[agent], model, gradient)


# The only kernel that allocates: it needs the reference counts that sweep_part switches off.
@njit(fastmath=REORDER, _nrt=True)  # pyright: ignore[reportCallIssue]
def sum_of_outer_gradients(term, start, stop, model, gradient):
    """Σ φ'(scores, y) ⊗ x for a model of one block of weights per score."""
    features, targets, loss = term.features, term.targets, term.loss
    n_features = features.shape[1]
    outputs = model.shape[0] // n_features
    scores = np.empty(outputs, model.dtype)
    slopes = np.empty(outputs, model.dtype)
    for d in range(model.shape[0]):
        gradient[d] = 0
    for row in range(start, stop):
        x = features[row]
        for k in range(outputs):
            score = model.dtype.type(0)
            for d in range(n_features):
                score += x[d] * model[k * n_features + d]
            scores[k] = score
        loss_slopes(loss, scores, targets[row], slopes)
        clip_outer(term, row, slopes)
        for k in range(outputs):
            for d in range(n_features):
                gradient[k * n_features + d] += slopes[k] * x[d]
