"""Conversations between neighbors: no samples, no graph, no input or output."""

from flockwise.protocol.conversation import PROTOCOLS
from flockwise.protocol.lowpass import LowPassProtocol
from flockwise.protocol.propagation import PropagationProtocol

__all__ = ["PROTOCOLS", "LowPassProtocol", "PropagationProtocol"]
