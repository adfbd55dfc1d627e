"""What one agent does when it wakes, as pure functions of its state."""

from murmura.method.admm import Gossip, GossipADMM, paper_vectors
from murmura.method.baselines import Global, Local
from murmura.method.coordinate_descent import CoordinateDescent
from murmura.method.descent import Descent, descent_update
from murmura.method.local_dp import LocalDP
from murmura.method.lowpass import LowPass
from murmura.method.private_updates import PrivateUpdates, PublicModels, WarmStart
from murmura.method.propagation import ModelPropagation
from murmura.method.release_once import ReleaseOnce

__all__ = [
    "CoordinateDescent",
    "Descent",
    "Global",
    "Gossip",
    "GossipADMM",
    "Local",
    "LocalDP",
    "LowPass",
    "ModelPropagation",
    "PrivateUpdates",
    "PublicModels",
    "ReleaseOnce",
    "WarmStart",
    "descent_update",
    "paper_vectors",
]
