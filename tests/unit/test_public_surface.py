"""The names that users may build on: adding or removing one is a decision, not an accident."""

import importlib.metadata
import subprocess
import sys

import flockwise

SURFACE = {
    "ACCOUNTANTS",
    "Agent",
    "Budget",
    "CappedLogistic",
    "CollaborativeObjective",
    "Conditions",
    "CoordinateDescent",
    "ENGINES",
    "FlockwiseError",
    "GRAPHS",
    "Global",
    "GossipADMM",
    "GraphSource",
    "Guarantee",
    "Huber",
    "LOSSES",
    "Local",
    "LocalDP",
    "Logistic",
    "LowPass",
    "MECHANISMS",
    "METHODS",
    "Message",
    "ModelPropagation",
    "Objective",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PointMean",
    "Population",
    "Prepared",
    "PrivateUpdates",
    "Problem",
    "Propagation",
    "PublicModels",
    "Quadratic",
    "Record",
    "ReleaseOnce",
    "RunSettings",
    "STATISTICS",
    "SimilarityGraph",
    "Softmax",
    "Trajectory",
    "WarmStart",
    "__version__",
    "angular_graph",
    "choose_tradeoff",
    "complete_graph",
    "convergence_theory",
    "default_delta",
    "descent_update",
    "knn_graph",
    "linear_classification",
    "load_movielens",
    "population_from_frame",
    "profile_graph",
    "random_graph",
    "read_edges",
    "read_population",
    "simulate",
    "solve_local_models",
    "solve_optimum",
    "step",
    "utility_theory",
}


def test_the_surface_is_frozen():
    assert set(flockwise.__all__) == SURFACE
    assert all(hasattr(flockwise, name) for name in SURFACE)


def test_every_public_name_says_what_it_is():
    for name in SURFACE:
        assert getattr(flockwise, name).__doc__, f"{name} has no docstring"


def test_the_version_is_that_of_the_installed_package():
    assert flockwise.__version__ == importlib.metadata.version("flockwise")


def test_the_privacy_package_starts_without_the_engines():
    code = "import sys, flockwise.privacy.gate; sys.exit('numba' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
