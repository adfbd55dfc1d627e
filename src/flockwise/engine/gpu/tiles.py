"""Vectors as a few tiles of 32 columns, in registers: 8 lanes read 4 columns each, so a warp reads 4 rows."""

# pyright: reportMissingImports=false

from __future__ import annotations

import triton
import triton.language as tl

COLUMNS = tl.constexpr(32)


@triton.jit
def columns_of(tile):
    """The columns of a tile."""
    return tile * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def read_tiles(vector, SIZE: tl.constexpr, TILES: tl.constexpr):
    """A vector; zeros behind its end."""
    tiles = ()
    for tile in tl.static_range(TILES):
        column = columns_of(tile)
        tiles = tiles + (tl.load(vector + column, mask=column < SIZE, other=0.0),)
    return tiles


@triton.jit
def read_rows(rows, is_row, tile, SIZE: tl.constexpr):
    """One tile of several rows, given by pointers to their beginnings; it will not be read again soon."""
    column = columns_of(tile)
    return tl.load(
        rows[:, None] + column[None, :],
        mask=is_row[:, None] & (column[None, :] < SIZE),
        other=0.0,
        eviction_policy="evict_first",
    )


@triton.jit
def weighted_rows(rows, is_row, weight, tile, SIZE: tl.constexpr):
    """The weighted sum of one tile of several rows."""
    column = columns_of(tile)
    mask = is_row[:, None] & (column[None, :] < SIZE)
    return tl.sum(tl.load(rows[:, None] + column[None, :], mask=mask, other=0.0) * weight[:, None], axis=0)


@triton.jit
def add_tiles(ones, others, TILES: tl.constexpr):
    sums = ()
    for tile in tl.static_range(TILES):
        sums = sums + (ones[tile] + others[tile],)
    return sums
