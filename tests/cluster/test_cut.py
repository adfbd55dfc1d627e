"""Cuts of a graph by METIS, and by Mt-KaHyPar where METIS has no wheel."""

import numpy as np
import pytest
from benchmarks.shards import graph_of

from flockwise.engine.ray.cut import BAD_CUT, cut, cut_edges
from flockwise.errors import MissingExtra
from flockwise.method.rules import Edges

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("partitioner", ["pymetis", "mtkahypar"])
def test_every_shard_has_as_much_work_and_few_edges_are_cut(partitioner, monkeypatch):
    pytest.importorskip(partitioner)
    monkeypatch.setattr("flockwise.engine.ray.cut.find_spec", lambda name: name == partitioner or None)
    edges = Edges.of(graph_of("plane", 3000))
    work = np.where(np.arange(3000) < 300, 100, 10)
    parts = cut(edges, 4, work)
    assert parts.dtype == np.int32
    shares = np.bincount(parts, weights=work, minlength=4) / work.sum()
    assert shares.max() <= 1.05 / 4
    assert 0 < cut_edges(edges, parts, 4).sum() / edges.neighbors.size < BAD_CUT / 2


def test_without_a_partitioner_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("flockwise.engine.ray.cut.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"several shards needs .*flockwise\[cluster\]"):
        cut(Edges.of(graph_of("plane", 50)), 2, np.ones(50, int))
