"""The names that users may build on: adding or removing one is a decision, not an accident."""

import subprocess
import sys

import flockwise

SURFACE = {
    "Agent",
    "Budget",
    "CollaborativeObjective",
    "Conditions",
    "CoordinateDescent",
    "Global",
    "GossipADMM",
    "Huber",
    "Local",
    "LocalDP",
    "Logistic",
    "Message",
    "ModelPropagation",
    "FlockwiseError",
    "Population",
    "PrivateUpdates",
    "Problem",
    "Quadratic",
    "ReleaseOnce",
    "SimilarityGraph",
    "Softmax",
    "Trajectory",
    "angular_graph",
    "choose_tradeoff",
    "convergence_theory",
    "knn_graph",
    "linear_classification",
    "load_movielens",
    "population_from_frame",
    "profile_graph",
    "read_edges",
    "read_population",
    "simulate",
    "solve_optimum",
}


def test_the_surface_is_frozen():
    assert set(flockwise.__all__) == SURFACE
    assert all(hasattr(flockwise, name) for name in SURFACE)


def test_every_public_name_says_what_it_is():
    for name in SURFACE:
        assert getattr(flockwise, name).__doc__, f"{name} has no docstring"


def test_the_privacy_package_starts_without_the_engines():
    code = "import sys, flockwise.privacy.gate; sys.exit('numba' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
