"""Memory of a run on the GPU: every array by name, so its size is known before anything is allocated."""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from flockwise.errors import SimulationError

# Rows that travel to the GPU at a time: a copy of them stands in memory meanwhile.
ROWS_AT_ONCE = 1 << 18
# The most that PyTorch takes at once to divide it among small arrays.
ALLOCATED_AT_ONCE = 20 << 20
# Of an agent, for a moment: three flags, its number and a clock, each of the latter twice.
AGENT_BYTES = 3 + 4 * 8


class ArrayShape(NamedTuple):
    """Of an array on the GPU."""

    sizes: tuple[int, ...]
    kind: torch.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.sizes) * self.kind.itemsize


Layout: TypeAlias = Mapping[str, ArrayShape]


def check_room(layout: Layout, device: str) -> None:
    """Refuse a run that does not fit, before it takes any memory."""
    needed, free = needed_bytes(layout), free_bytes(device)
    if needed > free:
        raise SimulationError(
            f"the run needs {needed / 1e9:.2f} GB of GPU memory, and {free / 1e9:.2f} GB are free; "
            "use engine='cpu', or fewer agents"
        )


def needed_bytes(layout: Layout) -> int:
    """Of the arrays, as PyTorch takes memory for them, and of what stands beside them for a moment.

    That is either a piece of an array, such as samples in double precision while their lengths are computed,
    or who may fire, and the agents' numbers and clocks as plain arrays.
    """
    arrays = sum(-(-shape.bytes // ALLOCATED_AT_ONCE) * ALLOCATED_AT_ONCE for shape in layout.values())
    piece = max(min(rows, ROWS_AT_ONCE) * math.prod(columns) for (rows, *columns), _ in layout.values())
    agents = layout["places"].sizes[0] * AGENT_BYTES
    return arrays + max(2 * torch.float64.itemsize * piece, agents)


def free_bytes(device: str) -> float:
    """What nobody uses; PyTorch first gives back what it keeps of earlier runs. No limit without a GPU."""
    if device == "cpu":
        return math.inf
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def allocate(layout: Layout, device: str) -> dict[str, torch.Tensor]:
    """The arrays, zero."""
    return {name: torch.zeros(shape.sizes, dtype=shape.kind, device=device) for name, shape in layout.items()}


def fill(tensor: torch.Tensor, array: NDArray[Any]) -> None:
    """Copy an array into a tensor; where its rows are longer than the array's, zeros stay behind them."""
    for rows in pieces(len(array)):
        piece = torch.from_numpy(np.array(array[rows]))  # its own: PyTorch wants memory that it may write
        target = tensor[rows] if piece.ndim == 1 else tensor[rows, : piece.shape[1]]
        target.copy_(piece)


def fetch(tensor: torch.Tensor, n_columns: int) -> NDArray[Any]:
    """The first columns of all rows. Whole rows travel: a part of them would first be copied on the GPU."""
    array = np.empty((len(tensor), n_columns), tensor[:0].cpu().numpy().dtype)
    for rows in pieces(len(tensor)):
        array[rows] = tensor[rows].cpu().numpy()[:, :n_columns]
    return array


def pieces(count: int) -> Iterator[slice]:
    """So many rows, ROWS_AT_ONCE at a time."""
    starts: Iterable[int] = range(0, count, ROWS_AT_ONCE)
    return (slice(start, start + ROWS_AT_ONCE) for start in starts)


def torch_kind(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
