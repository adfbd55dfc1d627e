"""The names that users may build on: adding or removing one is a decision, not an accident."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import flockwise
from flockwise import extend

SOURCE = Path(flockwise.__file__).parent

SURFACE = {
    "ACCOUNTANTS",
    "Agent",
    "Budget",
    "CappedLogistic",
    "Checkpoint",
    "CollaborativeObjective",
    "Conditions",
    "CoordinateDescent",
    "ENGINES",
    "FlockwiseError",
    "FlockwiseWarning",
    "GRAPHS",
    "Gate",
    "Global",
    "GossipADMM",
    "GraphSource",
    "Guarantee",
    "Huber",
    "LOSSES",
    "LearnedPrior",
    "Ledger",
    "Local",
    "LocalDP",
    "Logistic",
    "LowPass",
    "ManualTime",
    "MemoryNetwork",
    "MemoryStore",
    "MECHANISMS",
    "METHODS",
    "Message",
    "ModelPropagation",
    "Objective",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PersonalizedClassifier",
    "PersonalizedRegressor",
    "Plan",
    "PointMean",
    "Population",
    "Prepared",
    "PrivateUpdates",
    "Problem",
    "Propagation",
    "PublicModels",
    "Quadratic",
    "RayEngine",
    "Record",
    "ReleaseOnce",
    "RunSettings",
    "STATISTICS",
    "SecureNoise",
    "SimilarityGraph",
    "Softmax",
    "Trajectory",
    "TunedLocal",
    "WarmStart",
    "__version__",
    "angular_graph",
    "choose_l2",
    "choose_tradeoff",
    "complete_graph",
    "convergence_theory",
    "default_delta",
    "descent_update",
    "knn_graph",
    "linear_classification",
    "load_movielens",
    "open_population",
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

# Of flockwise.extend: what parts from other packages are made of.
PIECES = {
    "ACCOUNTANTS",
    "ENGINES",
    "GRAPHS",
    "LOSSES",
    "MECHANISMS",
    "METHODS",
    "PROTOCOLS",
    "STATISTICS",
    "Allowed",
    "Bounded",
    "Candidate",
    "Choice",
    "ClippedDescent",
    "ConfigError",
    "Configured",
    "Contributions",
    "Conversation",
    "Count",
    "CountFromZero",
    "DataError",
    "Deployment",
    "Descent",
    "DescentNoise",
    "Edges",
    "Engine",
    "Gate",
    "GraphError",
    "GraphSource",
    "Guarantee",
    "IntegerLaw",
    "Judge",
    "Key",
    "LocalAnchors",
    "LocalData",
    "Loss",
    "Mechanism",
    "Meetings",
    "MemoryLedger",
    "Method",
    "Misfit",
    "NetworkError",
    "Norm",
    "NotNegative",
    "Origin",
    "Outcome",
    "Part",
    "Plan",
    "Positive",
    "Prepared",
    "PrivacyError",
    "Probability",
    "Public",
    "PublicFacts",
    "Registry",
    "Relay",
    "Release",
    "ReleaseRequest",
    "Released",
    "Result",
    "Rounds",
    "Rows",
    "Rule",
    "Run",
    "RunAtOnce",
    "RunSettings",
    "Sampler",
    "Samples",
    "Say",
    "Schedule",
    "SimulatedNoise",
    "SimulationError",
    "Solved",
    "State",
    "Statistic",
    "Status",
    "SumRequest",
    "Sums",
    "Talk",
    "Traffic",
    "check_fields",
    "declared_by",
    "distinct_budgets",
    "draw_fractions",
    "draw_laplaces",
    "draw_normals",
    "finish_along_directions",
    "finish_around_models",
    "finish_own_block",
    "has_two_classes",
    "padded",
    "release_once",
    "show_solved",
}


def test_the_surface_is_frozen():
    assert set(flockwise.__all__) == SURFACE
    assert all(hasattr(flockwise, name) for name in SURFACE)


def test_what_parts_of_other_packages_are_made_of_is_frozen():
    assert set(extend.__all__) == PIECES


def test_a_name_means_the_same_to_users_and_to_makers_of_parts():
    shared = SURFACE & PIECES
    assert {"METHODS", "Prepared", "Plan"} <= shared
    assert all(getattr(flockwise, name) is getattr(extend, name) for name in shared)


def test_the_example_of_a_package_of_parts_imports_public_names_alone():
    example = Path(__file__).parents[1] / "outside" / "toy_parts.py"
    imports = [node for node in ast.walk(ast.parse(example.read_text())) if isinstance(node, ast.ImportFrom)]
    assert {str(node.module) for node in imports if "flockwise" in str(node.module)} == {"flockwise.extend"}


def test_every_public_name_says_what_it_is():
    for name in SURFACE:
        assert getattr(flockwise, name).__doc__, f"{name} has no docstring"


def test_the_version_is_that_of_the_installed_package():
    assert flockwise.__version__ == importlib.metadata.version("flockwise")


def test_the_privacy_package_starts_without_the_engines():
    code = "import sys, flockwise.privacy.gate; sys.exit('numba' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


def test_public_names_are_found_without_a_folder_of_files(tmp_path):
    """They are read from the package's own source: a zip archive has it as well as a wheel."""
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for name in ("__init__.py", "later.py"):
            archive.write(SOURCE / name, f"flockwise/{name}")
    code = "import flockwise; print(flockwise.__file__, *flockwise.__all__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "package.zip")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    place, *names = done.stdout.split()
    assert str(tmp_path) in place
    assert names == flockwise.__all__


def words_of_refusals():
    """Every text that a raise statement or a misfit is made of."""
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            is_misfit = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Misfit"
            if is_misfit or isinstance(node, ast.Raise | ast.Yield):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value


def test_every_class_and_function_that_an_error_message_recommends_is_public():
    """A word such as PublicModels or choose_l2( that is defined in the package can be imported from it."""
    defined = {
        node.name
        for file in SOURCE.rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    }
    written = re.compile(r"(?<![.\w])([A-Z][a-z]+[A-Z]\w*|[A-Z]\w*(?=[.(])|[a-z]\w*(?=\())")
    recommended = {name for words in words_of_refusals() for name in written.findall(words)} & defined
    recommended -= {"MovieLens"}  # the data set, not the class
    assert {"PublicModels", "Trajectory", "choose_l2"} <= recommended
    assert recommended <= set(flockwise.__all__)


def test_in_memory_parts_for_tests_of_other_programs_are_public():
    network, time, store = flockwise.MemoryNetwork(), flockwise.ManualTime(), flockwise.MemoryStore()
    assert {type(part).__module__ for part in (network, time, store)} == {"flockwise.runtime.testing"}


def test_no_two_classes_of_the_package_share_a_name():
    homes: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path.name)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
