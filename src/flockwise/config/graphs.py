"""The [graph] section → who resembles whom."""

from __future__ import annotations

from typing import Any

import numpy as np

from flockwise.config.samples import Samples
from flockwise.config.schema import Config
from flockwise.config.sections import AngularGraph, EdgesGraph, KnnGraph, RandomGraph, TableData
from flockwise.data import Population
from flockwise.errors import ConfigError, DataError, GraphError
from flockwise.graph import (
    GraphSource,
    SimilarityGraph,
    angular_graph,
    knn_graph,
    profile_graph,
    random_graph,
    read_edges,
)
from flockwise.graph.tables import read_table
from flockwise.objective import Loss, Problem, solve_local_models


def build_graph(config: Config, samples: Samples, loss: Loss) -> SimilarityGraph:
    """The graph over the agents of the training samples."""
    section, train = config.graph, samples.train
    if isinstance(section, RandomGraph):
        return random_graph(train.n_agents, section.degree, config.seed)
    if isinstance(section, EdgesGraph):
        source = GraphSource("edges", section.file.name, private=section.private)
        columns: Any = tuple(section.columns)
        return read_edges(section.file, train.agent_names, columns=columns, source=source)
    if section.origin == "profiles" and section.file is not None:
        return _profile_graph(config, section, train)
    vectors = _vectors(config, section, samples, loss)
    source = GraphSource(section.origin)
    if isinstance(section, AngularGraph):
        return angular_graph(vectors, gamma=section.gamma, threshold=section.threshold, source=source)
    return knn_graph(vectors, section.k, metric=_metric(section), source=source)


def _vectors(config: Config, section: AngularGraph | KnnGraph, samples: Samples, loss: Loss) -> Any:
    """One row per agent; [graph] and [data] are known to fit."""
    if section.origin == "models":
        strangers = SimilarityGraph.from_edges(samples.train.n_agents, np.empty((0, 2), np.int64))
        return solve_local_models(Problem(samples.train, strangers, loss, l2=config.objective.l2))
    return {
        "targets": samples.targets,
        "ratings": samples.rating_matrix,
        "profiles": samples.profiles,
    }[section.origin]


def _profile_graph(config: Config, section: AngularGraph | KnnGraph, train: Population) -> SimilarityGraph:
    agent = section.agent or (config.data.agent if isinstance(config.data, TableData) else "agent")
    file = section.file
    assert file is not None
    options: dict[str, Any]
    if isinstance(section, AngularGraph):
        options = {"gamma": section.gamma, "threshold": section.threshold}
    else:
        options = {"k": section.k, "metric": _metric(section)}
    try:
        table = read_table(file, text_columns=[agent])
        return profile_graph(table, section.columns, agent=agent, agent_names=train.agent_names, **options)
    except (DataError, GraphError) as error:
        raise ConfigError(f"{file}: {error}") from None


def _metric(section: KnnGraph) -> Any:
    # Profiles are standardised columns, where distances mean something; vectors of models differ in length.
    return section.metric or ("euclidean" if section.origin == "profiles" else "cosine")
