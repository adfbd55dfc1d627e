"""The gradient of an agent's local term in Triton: each sample is read once, for its score and its gradient.

`narrow` keeps model and gradient in registers: one score, up to MOST_COLUMNS features. `wide` takes any
number of features and scores; its sums lie in memory, where one program alone reads and writes them.
"""

# pyright: reportMissingImports=false, reportOperatorIssue=false
# pyright: reportGeneralTypeIssues=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

from flockwise.engine.gpu.tiles import COLUMNS, columns_of, read_rows

MOST_COLUMNS = 128


@triton.jit
def clip_each(samples, row, is_row, slope):
    """Each slope within its bound; one that is not a number becomes the bound."""
    bound = tl.load(samples.bounds + row, mask=is_row, other=0.0)
    slope = tl.where(slope <= bound, slope, bound)
    return tl.where(slope >= -bound, slope, -bound)


@triton.jit
def clip_together(samples, row, is_row, slopes, NORM: tl.constexpr):
    """The slopes of each sample scaled down to its bound; nothing of a sample where one is not a number."""
    bound = tl.load(samples.bounds + row, mask=is_row, other=0.0)
    if NORM == "l1":
        length = tl.sum(tl.abs(slopes), axis=1)
    else:
        length = tl.sqrt(tl.sum(slopes * slopes, axis=1))
    share = tl.where(length <= bound, 1.0, tl.where(length < float("inf"), bound / length, 0.0))
    return tl.where(share[:, None] > 0, slopes * share[:, None], 0.0)


@triton.jit
def narrow_gradient(
    samples, model, row, stop, SLOPE: tl.constexpr, PARAMETER: tl.constexpr, NORM: tl.constexpr,
    STRIDE: tl.constexpr, SIZE: tl.constexpr, TILES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Σ φ'(θᵀx, y)·x over the rows of an agent, as tiles."""
    sums = ()
    for tile in tl.static_range(TILES):
        sums = sums + (tl.zeros((ROWS, COLUMNS), samples.features.dtype.element_ty),)
    while row < stop:
        here = row + tl.arange(0, ROWS)
        is_row = here < stop
        rows = samples.features + row * STRIDE + tl.arange(0, ROWS) * STRIDE
        x = ()
        for tile in tl.static_range(TILES):
            x = x + (read_rows(rows, is_row, tile, SIZE),)
        products = x[0] * model[0][None, :]
        for tile in tl.static_range(1, TILES):
            products += x[tile] * model[tile][None, :]
        target = tl.load(samples.targets + here, mask=is_row, other=0.0)
        slope = SLOPE(tl.sum(products, axis=1), target, PARAMETER)
        if NORM is not None:
            slope = clip_each(samples, here, is_row, slope)
        more = ()
        for tile in tl.static_range(TILES):
            more = more + (sums[tile] + x[tile] * slope[:, None],)
        sums = more
        row += ROWS
    gradient = ()
    for tile in tl.static_range(TILES):
        gradient = gradient + (tl.sum(sums[tile], axis=0),)
    return gradient


@triton.jit
def wide_scores(
    samples, model, rows, is_row, STRIDE: tl.constexpr, FEATURES: tl.constexpr, OUTPUTS: tl.constexpr,
    OUTPUT_BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Scores of several rows, with a column for each output."""
    scores = tl.zeros((ROWS, OUTPUT_BLOCK), samples.features.dtype.element_ty)
    output_column = tl.arange(0, OUTPUT_BLOCK)[None, :]
    for output in range(OUTPUTS):
        products = tl.zeros((ROWS, COLUMNS), samples.features.dtype.element_ty)
        for tile in range((FEATURES + COLUMNS - 1) // COLUMNS):
            column = columns_of(tile)
            weights = tl.load(model + output * FEATURES + column, mask=column < FEATURES, other=0.0)
            products += read_rows(rows, is_row, tile, FEATURES) * weights[None, :]
        scores += tl.where(output_column == output, tl.sum(products, axis=1)[:, None], 0.0)
    return scores


@triton.jit
def wide_gradient(
    samples, model, sums, row, stop, SLOPE: tl.constexpr, PARAMETER: tl.constexpr, NORM: tl.constexpr,
    STRIDE: tl.constexpr, FEATURES: tl.constexpr, OUTPUTS: tl.constexpr, OUTPUT_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Σ φ'(scores, y) ⊗ x over the rows of an agent, written to `sums`."""
    output_column = tl.arange(0, OUTPUT_BLOCK)[None, :]
    for tile in range((OUTPUTS * FEATURES + COLUMNS - 1) // COLUMNS):
        column = columns_of(tile)
        tl.store(sums + column, column.to(sums.dtype.element_ty) * 0, mask=column < OUTPUTS * FEATURES)
    tl.debug_barrier()
    while row < stop:
        here = row + tl.arange(0, ROWS)
        is_row = here < stop
        rows = samples.features + here * STRIDE
        scores = wide_scores(samples, model, rows, is_row, STRIDE, FEATURES, OUTPUTS, OUTPUT_BLOCK, ROWS)
        target = tl.load(samples.targets + here, mask=is_row, other=0.0)
        slopes = SLOPE(scores, target[:, None], PARAMETER)
        if NORM is not None:
            slopes = clip_together(samples, here, is_row, slopes, NORM)
        for output in range(OUTPUTS):
            slope = tl.sum(tl.where(output_column == output, slopes, 0.0), axis=1)
            for tile in range((FEATURES + COLUMNS - 1) // COLUMNS):
                column = columns_of(tile)
                place = sums + output * FEATURES + column
                part = tl.sum(read_rows(rows, is_row, tile, FEATURES) * slope[:, None], axis=0)
                so_far = tl.load(place, mask=column < FEATURES, other=0.0)
                tl.store(place, so_far + part, mask=column < FEATURES)
        tl.debug_barrier()
        row += ROWS
