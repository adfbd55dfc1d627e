"""The [graph] section → who resembles whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flockwise.config.generate import arguments
from flockwise.config.parts import objective_of
from flockwise.config.samples import TaskSamples
from flockwise.config.schema import Config
from flockwise.config.sections import EDGES, TableData
from flockwise.data.tables import read_table
from flockwise.errors import ConfigError, DataError, GraphError
from flockwise.graph import GRAPHS, GraphSource, SimilarityGraph, read_edges
from flockwise.graph.tabular import named_vectors
from flockwise.objective import Problem
from flockwise.solve import solve_local_models


def build_graph(config: Config, samples: TaskSamples) -> SimilarityGraph | None:
    """The graph over the agents of the training samples; None where there is no [graph]."""
    section, train = config.graph, samples.train
    if section is None:
        return None
    if section.kind == EDGES:
        source = GraphSource("edges", section.file.name, private=section.private)
        columns: Any = tuple(section.columns)
        return read_edges(section.file, train.agent_names, columns=columns, source=source)
    kind = GRAPHS[section.kind]
    graph = kind(**arguments(kind, dict(section)))
    if not hasattr(graph, "of_vectors"):
        return graph.of_agents(train.n_agents, config.seed)
    if section.origin == "profiles" and section.file is not None:
        return _of_profiles(config, graph, samples, section.file)
    return graph.of_vectors(_vectors(config, samples), GraphSource(section.origin), None)


def _vectors(config: Config, samples: TaskSamples) -> Any:
    """One row per agent; [graph] and [data] are known to fit."""
    origin = config.graph.origin
    if origin == "models":
        return solve_local_models(Problem(samples.train, None, objective_of(config, 1.0)))
    return {
        "targets": samples.targets,
        "ratings": samples.rating_matrix,
        "profiles": samples.profiles,
    }[origin]


def _of_profiles(config: Config, graph: Any, samples: TaskSamples, file: Path) -> SimilarityGraph:
    section = config.graph
    agent = section.agent or (config.data.agent if isinstance(config.data, TableData) else "agent")
    try:
        table = read_table(file, text_columns=[agent])
        vectors, names, listed = named_vectors(table, section.columns, agent, samples.train.agent_names)
        return graph.of_vectors(vectors, GraphSource("profiles", f"{file.name}, {listed}"), names)
    except (DataError, GraphError) as error:
        raise ConfigError(f"{file}: {error}") from None
