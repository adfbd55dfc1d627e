"""Methods: what each prepares a problem into. Engines run the rules, and know no method."""

from flockwise.method.admm import GossipADMM, paper_vectors
from flockwise.method.base import METHODS, Candidate, Method, Prepared, PublicFacts, candidates
from flockwise.method.baselines import Global, Local, ModelPropagation, TunedLocal
from flockwise.method.coordinate_descent import CoordinateDescent
from flockwise.method.descent import step
from flockwise.method.learned_prior import LearnedPrior
from flockwise.method.local_dp import LocalDP
from flockwise.method.private import PrivateUpdates
from flockwise.method.release_once import LowPass, Propagation, ReleaseOnce
from flockwise.method.start import PublicModels, WarmStart
from flockwise.protocol.descent import descent_update

__all__ = [
    "METHODS",
    "Candidate",
    "CoordinateDescent",
    "Global",
    "GossipADMM",
    "LearnedPrior",
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
    "TunedLocal",
    "WarmStart",
    "candidates",
    "descent_update",
    "paper_vectors",
    "step",
]
