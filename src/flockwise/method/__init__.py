"""Methods: what each prepares a problem into. Engines run the rules, and know no method."""

from flockwise.method.admm import GossipADMM, paper_vectors
from flockwise.method.base import METHODS, Candidate, Method, Prepared, PublicFacts, candidates
from flockwise.method.baselines import Global, Local, ModelPropagation
from flockwise.method.coordinate_descent import CoordinateDescent
from flockwise.method.descent import descent_update, step
from flockwise.method.local_dp import LocalDP
from flockwise.method.private import PrivateUpdates
from flockwise.method.release_once import LowPass, Propagation, ReleaseOnce
from flockwise.method.start import PublicModels, WarmStart

__all__ = [
    "METHODS",
    "Candidate",
    "CoordinateDescent",
    "Global",
    "GossipADMM",
    "Local",
    "LocalDP",
    "LowPass",
    "Method",
    "ModelPropagation",
    "Prepared",
    "PrivateUpdates",
    "Propagation",
    "PublicFacts",
    "PublicModels",
    "ReleaseOnce",
    "WarmStart",
    "candidates",
    "descent_update",
    "paper_vectors",
    "step",
]
