"""Populations of any size, generated part by part: python -m benchmarks.populations FOLDER --agents N.

Agents stand on a circle. Each has a separator of its own, which turns once around the circle, and resembles
the next few agents on either side. FOLDER/samples and FOLDER/edges are Parquet files, for
`flockwise.open_population` and `flockwise.read_edges`; no more than one part of them is in memory at a time.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flockwise.files import new_folder

AGENTS_PER_PART = 10_000
# On either side.
NEIGHBORS = 3
FLIPPED = 0.05


def write_population(
    folder: Path, n_agents: int, dimension: int, samples: int, seed: int = 0, per_part: int = AGENTS_PER_PART
) -> None:
    """Every agent has from half to one and a half times so many samples."""
    with new_folder(folder) as made:
        for kind in ("samples", "edges"):
            (made / kind).mkdir()
        for part, first in enumerate(range(0, n_agents, per_part)):
            agents = np.arange(first, min(first + per_part, n_agents))
            random = np.random.default_rng([seed, part])
            _write(_samples(agents, n_agents, dimension, samples, random), made / "samples", part)
            _write(_edges(agents, n_agents), made / "edges", part)


def _samples(
    agents: np.ndarray, n_agents: int, dimension: int, samples: int, random: np.random.Generator
) -> pa.Table:
    """Features lie in a cube; the separators in the plane of the first two of them."""
    counts = random.integers(samples - samples // 2, samples + samples // 2 + 1, len(agents))
    owners = np.repeat(agents, counts)
    features = random.random((dimension, len(owners)), np.float32)
    features -= np.float32(0.5)
    angles = 2 * math.pi * owners / n_agents
    is_one = features[0] * np.cos(angles) + features[1] * np.sin(angles) > 0
    is_one ^= random.random(len(owners)) < FLIPPED
    targets = np.where(is_one, 1, -1).astype(np.float32)
    columns = {f"x{column}": values for column, values in enumerate(features)}
    return pa.table({"agent": owners, "y": targets, **columns})


def _edges(agents: np.ndarray, n_agents: int) -> pa.Table:
    steps = np.arange(1, min(NEIGHBORS, (n_agents - 1) // 2) + 1)
    sources = np.repeat(agents, len(steps))
    targets = (sources + np.tile(steps, len(agents))) % n_agents
    return pa.table({"source": sources, "target": targets, "weight": np.ones(len(sources))})


def _write(table: pa.Table, folder: Path, part: int) -> None:
    # Random numbers do not become smaller by compression.
    file, options = folder / f"part-{part:05d}.parquet", {"compression": "none", "use_dictionary": False}
    pq.write_table(table, file, row_group_size=1 << 16, write_page_checksum=True, **options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agents", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=100)
    parser.add_argument("--samples", type=int, default=55)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write_population(given.folder, given.agents, given.dimension, given.samples, given.seed)
    written = sum(file.stat().st_size for file in given.folder.rglob("*.parquet"))
    print(f"{given.agents:,} agents in {given.folder}: {written / 1e9:.1f} GB")
