"""What one agent does when it wakes, as pure functions of its state."""

from flockwise.method.admm import Gossip, GossipADMM, paper_vectors
from flockwise.method.baselines import Global, Local
from flockwise.method.coordinate_descent import CoordinateDescent
from flockwise.method.descent import Descent, descent_update
from flockwise.method.local_dp import LocalDP
from flockwise.method.lowpass import LowPass
from flockwise.method.private_updates import PrivateUpdates, PublicModels, WarmStart
from flockwise.method.propagation import ModelPropagation
from flockwise.method.release_once import ReleaseOnce

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
