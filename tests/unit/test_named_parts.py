"""The package asks a part what it is, and knows none by its class or name outside the part's own package.

Parts are methods, statistics, mechanisms, kinds of graph and privacy sections.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import flockwise
from flockwise.config.sections import NoPrivacy
from flockwise.deploy.folder import NoBudget, OwnBudget
from flockwise.graph.kinds import GRAPHS
from flockwise.method import METHODS, PrivateUpdates
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.release.statistic import STATISTICS

SOURCE = Path(flockwise.__file__).parent
# Where the word stands for something else, and for what.
ALLOWED = {
    ("config/schema.py", "method.name"): 'a configuration\'s "auto", which is no method',
    ("deploy/settings.py", "mean"): "which mean of its neighbors' models an agent takes",
    ("deploy/settings.py", "objective"): "a key of the roster's settings",
    ("engine/gpu/noise.py", "laplace"): "the law of a sampler, which a mechanism of any name may have",
    ("graph/similarity.py", "mean"): "how an asymmetric matrix is made symmetric",
    ("protocol/aggregation.py", "mean"): "which mean of its neighbors' models an agent takes",
    ("results/plots.py", "objective"): "a column of the records",
}
ABOUT_A_PART = re.compile(r"(method|mechanism|statistic|privacy|budget|sampler)s?$", re.IGNORECASE)


def package_of(kind: type) -> str:
    return kind.__module__.split(".")[1]


def homes() -> tuple[dict[str, str], dict[str, set[str]]]:
    """The package of every class, and those of every name."""
    named = [(variant.name, variant.kind) for variant in METHODS]
    named += [(kind.name, kind) for registry in (STATISTICS, MECHANISMS, GRAPHS) for kind in registry]
    named += [(label, kind) for label, kinds in SECTIONS.items() for kind in kinds]
    ours = [(name, kind) for name, kind in named if kind.__module__.startswith("flockwise.")]
    names: dict[str, set[str]] = {}
    for name, kind in ours:
        names.setdefault(name, set()).add(package_of(kind))
    kinds = {kind.__name__: package_of(kind) for _, kind in ours}
    return kinds | {PrivateUpdates.__name__: package_of(PrivateUpdates)}, names


SECTIONS = {
    "none": (NoBudget, NoPrivacy),
    "dp": (OwnBudget, NoPrivacy),
    "one_budget": (OwnBudget,),
    "batches": (OwnBudget,),
}
KINDS, NAMES = homes()


def last_word(node: ast.AST) -> str:
    """The name of a variable, an attribute or a registry of which one is taken."""
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word):
            return word
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return last_word(inner)
    return ""


def known_in(nodes: list[ast.expr], package: str) -> Iterator[str]:
    """Classes and names of other packages' parts among these, or in their tuples, lists, sets and unions."""
    for node in nodes:
        match node:
            case ast.Constant(value=str(name)) if name in NAMES and package not in NAMES[name]:
                yield name
            case ast.Name() | ast.Attribute() if KINDS.get(last_word(node), package) != package:
                yield last_word(node)
            case ast.Attribute(attr="name", value=inner):
                yield from known_in([inner], package)
                if ABOUT_A_PART.search(last_word(inner)):
                    yield f"{last_word(inner)}.name"
            case ast.Tuple(elts=inner) | ast.List(elts=inner) | ast.Set(elts=inner):
                yield from known_in(inner, package)
            case ast.BinOp(left=left, right=right):
                yield from known_in([left, right], package)


def found_in(source: str, package: str) -> Iterator[str]:
    """Whatever a module of this package takes apart by class or name, and should ask."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                yield from known_in([kinds], package)
            case ast.Call(func=ast.Name(id="type"), args=[argument]):
                words = (last_word(part) for part in ast.walk(argument))
                yield from (f"type({word})" for word in words if ABOUT_A_PART.search(word))
            case ast.Compare(left=left, comparators=others) if package != "method":
                yield from known_in([left, *others], package)
            case ast.Compare(left=left, comparators=others):
                yield from (one for one in known_in([left, *others], package) if not one.endswith(".name"))
            case ast.Dict(keys=keys) | ast.Set(elts=keys):
                # A table of parts. A document may have a key of the same name among many others.
                known = list(known_in([key for key in keys if key is not None], package))
                yield from known if 2 * len(known) >= len(keys) else []
            case ast.MatchValue(value=value):
                yield from known_in([value], package)
            case ast.MatchClass(cls=kind):
                yield from known_in([kind], package)


def test_no_part_is_taken_apart_by_its_class_or_name_outside_its_package():
    found = {
        (path.relative_to(SOURCE).as_posix(), what)
        for path in SOURCE.rglob("*.py")
        for what in found_in(path.read_text(encoding="utf-8"), path.relative_to(SOURCE).parts[0])
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("isinstance(method, ReleaseOnce)", "ReleaseOnce"),
        ("isinstance(own, NoBudget | folder.OwnBudget)", "NoBudget"),
        ("issubclass(kind, (Laplace, Gaussian))", "Laplace"),
        ("run.method == 'cd'", "cd"),
        ("source.kind in ('matrix', 'complete')", "complete"),
        ("growth != 'batches'", "batches"),
        ("kind is LowPass", None),
        ("kind is PointMean", "PointMean"),
        ("name == KNorm.name", "KNorm"),
        ("other.name != experiment.method.name", "method.name"),
        ("looks = {'local': 's'}", "local"),
        ("draws = {Laplace: 1}", "Laplace"),
        ("type(MECHANISMS[name].sampler())", "type(sampler)"),
        ("match one:\n case Global(): pass", "Global"),
        ("match one:\n case 'dp': pass", "dp"),
        ("type(error).__name__ == 'local_dp_error' and isinstance(rule, Descent)", None),
    ],
)
def test_the_search_finds_what_it_looks_for(source, expected):
    found = list(found_in(source, "report"))
    assert found[:1] == ([] if expected is None else [expected])


def test_a_package_may_know_its_own_parts():
    assert not list(found_in("isinstance(event, Laplace)", "privacy"))
    assert list(found_in("isinstance(event, Laplace)", "method")) == ["Laplace"]
