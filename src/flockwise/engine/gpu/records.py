"""The place of an agent's numbers: beside each other, so one read of memory fetches them all.

A record is a model, then the agent's next tick (64 bits), its updates and how many neighbors tick before it
(32 bits each). A place has eight words of 32 bits: where the agent's samples and edges begin (64 bits each),
how many of both there are, and the agent's number.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import NamedTuple

import torch
import triton.language as tl

PLACE_WORDS = tl.constexpr(8)
# In words of 64 bits.
ROW = tl.constexpr(0)
EDGE = tl.constexpr(1)
# In words of 32 bits.
SAMPLES = tl.constexpr(4)
DEGREE = tl.constexpr(5)
NUMBER = tl.constexpr(6)
# Behind a model.
CLOCK_BYTES = 16


class Agents(NamedTuple):
    """Views of records and places, of what stands there for each agent.

    steps: α_i, μ·c_i and 2λ_i. earlier: how many neighbors tick before it does.
    """

    models: torch.Tensor
    ticks: torch.Tensor
    updates: torch.Tensor
    earlier: torch.Tensor
    places: torch.Tensor
    counts: torch.Tensor
    steps: torch.Tensor

    @classmethod
    def of(cls, records: torch.Tensor, places: torch.Tensor, steps: torch.Tensor) -> Agents:
        """Kernels step from agent to agent by the length of a record or place."""
        words = records.view(torch.int32)
        ticks = records.view(torch.int64)[:, -2]
        return cls(records, ticks, words[:, -2], words[:, -1], places, places.view(torch.int32), steps)
