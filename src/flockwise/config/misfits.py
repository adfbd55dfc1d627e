"""Values that are right one by one and do not fit each other: one line each, like other problems."""

from __future__ import annotations

from collections.abc import Iterator

from flockwise.config.private_misfits import private_misfits
from flockwise.config.sections import (
    AdmmMethod,
    AngularGraph,
    Data,
    Engine,
    Graph,
    KnnGraph,
    LowPassMethod,
    Method,
    MovieLensData,
    Objective,
    PlannedMethod,
    Privacy,
    SimulatedMethod,
    SyntheticData,
    TableData,
)


def misfits(
    data: Data, graph: Graph, objective: Objective, method: Method, privacy: Privacy, engine: Engine
) -> list[str]:
    """What does not fit, in the order of the file, and then what does not fit the kind of privacy."""
    return [
        *_in_data(data),
        *_in_graph(graph, data),
        *_in_objective(objective),
        *_in_method(method),
        *private_misfits(data, objective, method, privacy),
        *_in_engine(engine, method),
    ]


def _in_data(data: Data) -> Iterator[str]:
    if not isinstance(data, SyntheticData):
        return
    if data.min_samples > data.max_samples:
        yield f"data.min_samples: got {data.min_samples}; allowed: at most max_samples, {data.max_samples}"
    if data.informative > data.dimension:
        yield f"data.informative: got {data.informative}; allowed: at most dimension, {data.dimension}"


def _in_graph(graph: Graph, data: Data) -> Iterator[str]:
    if not isinstance(graph, AngularGraph | KnnGraph):
        return
    if graph.origin == "targets" and not isinstance(data, SyntheticData):
        yield 'graph.from: got "targets"; true targets are known for data.source = "synthetic" only'
    if graph.origin == "ratings" and not isinstance(data, MovieLensData):
        yield 'graph.from: got "ratings"; there are ratings for data.source = "movielens" only'
    if graph.origin == "profiles":
        if isinstance(data, SyntheticData):
            yield 'graph.from: got "profiles"; agents of data.source = "synthetic" have none'
        if isinstance(data, TableData) and graph.file is None:
            yield "graph.file: missing; name the table of public profiles, one row per agent"
    for key in ("file", "columns", "agent"):
        if getattr(graph, key) is not None and not _reads_profiles(graph):
            yield f'graph.{key}: only for from = "profiles" with a file; leave it out'


def _reads_profiles(graph: AngularGraph | KnnGraph) -> bool:
    return graph.origin == "profiles" and graph.file is not None


def _in_objective(objective: Objective) -> Iterator[str]:
    if objective.classes is not None and objective.loss != "softmax":
        yield 'objective.classes: only for loss = "softmax"; leave it out'
    if objective.loss == "softmax" and objective.classes is None:
        yield 'objective.classes: missing; loss = "softmax" needs the number of classes'
    if objective.width is not None and objective.loss != "huber":
        yield 'objective.width: only for loss = "huber"; leave it out'
    if objective.validation_share is not None and objective.tradeoff != "auto":
        yield 'objective.validation_share: only for tradeoff = "auto"; leave it out'


def _in_method(method: Method) -> Iterator[str]:
    if isinstance(method, SimulatedMethod):
        limits = (method.updates, method.ticks, method.time, method.tolerance)
        if all(limit is None for limit in limits):
            yield "method.updates: missing; say when to stop by updates, ticks, time or tolerance"


def _in_engine(engine: Engine, method: Method) -> Iterator[str]:
    if isinstance(method, AdmmMethod | LowPassMethod | PlannedMethod):
        for key in ("delay", "loss", "offline_share"):
            if value := getattr(engine, key):
                name = method.name
                yield f'engine.{key}: got {value}; name = "{name}" needs an ideal network, leave it out'
