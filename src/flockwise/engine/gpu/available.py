"""Where the engine can run, and one line on what is missing elsewhere. Imports nothing heavy by itself."""

# pyright: reportMissingImports=false

from __future__ import annotations

from importlib.util import find_spec

from flockwise.errors import FlockwiseError, MissingExtra, SimulationError


def missing() -> FlockwiseError | None:
    """Why there is no run here, or None."""
    if find_spec("torch") is None or find_spec("triton") is None:
        return MissingExtra("engine 'gpu'", "gpu")
    import torch

    if not torch.cuda.is_available() and not is_interpreted():
        return SimulationError(
            "engine 'gpu' needs an NVIDIA GPU, and PyTorch finds none: install its driver and a PyTorch "
            "that is built for CUDA, or use engine='cpu'"
        )
    return None


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, which takes no GPU and a long time."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def device() -> str:
    """Where tensors live."""
    return "cpu" if is_interpreted() else "cuda"
