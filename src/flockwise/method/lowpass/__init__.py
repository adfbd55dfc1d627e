"""Release once, low-pass over many hops, anchored silent finish."""

from flockwise.method.lowpass.method import LowPass

__all__ = ["LowPass"]
