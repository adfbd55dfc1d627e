"""The published values: what the paper's figures and its table show.

Bellet, Guerraoui, Taziki and Tommasi, "Personalized and Private Peer-to-Peer Machine Learning", AISTATS
2018 (arXiv:1705.08435). Table 1 is printed there; all others were read off the figures by eye, to about
±.005 in accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

DELTA = math.exp(-5)
AGENTS = 100
# μ in supplement D, "as in the previous synthetic experiment".
PRINTED_TRADEOFF = 0.04

# Figure 1, p = 100, from the local models: by iterations, then by vectors.
FIG1_BY_ITERATIONS = {
    "cd": {
        "accuracy": {0: 0.66, 500: 0.855, 1000: 0.868, 1500: 0.875},
        "objective": {0: 6.6, 500: 0.85, 1000: 0.77, 1500: 0.74},
    },
    "admm": {
        "accuracy": {0: 0.66, 500: 0.705, 1000: 0.77, 1500: 0.805},
        "objective": {0: 6.6, 500: 4.6, 1000: 2.4, 1500: 1.5},
    },
}
FIG1_BY_VECTORS = {
    "cd": {
        "accuracy": {0: 0.66, 5000: 0.835, 10_000: 0.86, 12_000: 0.865},
        "objective": {0: 6.6, 5000: 1.1, 10_000: 0.8, 12_000: 0.78},
    },
    "admm": {
        "accuracy": {0: 0.66, 5000: 0.735, 10_000: 0.79, 12_000: 0.805},
        "objective": {0: 6.6, 5000: 3.2, 10_000: 1.8, 12_000: 1.5},
    },
}
# ADMM's objective rises at first, to this.
FIG1_HIGHEST = 7.1

# Figure 2 (a) and (b), p = 100: at the start ("0"), then at the end for so many updates per agent.
FIG2A = {
    "accuracy": {0: 0.50, 1: 0.67, 2: 0.70, 4: 0.75, 8: 0.74},
    "objective": {0: 1.7, 1: 1.25, 2: 1.2, 4: 1.4, 8: 2.35},
}
FIG2B = {
    "accuracy": {0: 0.64, 1: 0.735, 2: 0.775, 4: 0.81, 8: 0.81},
    "objective": {0: 1.43, 1: 1.1, 2: 1.03, 4: 1.0, 8: 1.2},
}

# Figure 2 (c): accuracy by dimension; private curves by ε.
FIG2C = {
    "local": {2: 0.89, 10: 0.82, 25: 0.76, 50: 0.705, 75: 0.68, 100: 0.66},
    "collaborative": {2: 0.925, 10: 0.92, 25: 0.90, 50: 0.898, 75: 0.887, 100: 0.875},
    1.05: {2: 0.925, 10: 0.905, 25: 0.882, 50: 0.858, 75: 0.835, 100: 0.815},
    0.55: {2: 0.925, 10: 0.89, 25: 0.865, 50: 0.83, 75: 0.80, 100: 0.77},
    0.15: {2: 0.91, 10: 0.845, 25: 0.805, 50: 0.747, 75: 0.707, 100: 0.687},
}

# Figure 3, p = 100: accuracy of agents with 10 to 20 and with 90 to 100 points.
FIG3 = {
    "local": (0.60, 0.71),
    "collaborative": (0.87, 0.88),
    1.05: (0.80, 0.82),
    0.55: (0.74, 0.78),
    0.15: (0.64, 0.69),
}

# Figure 4: accuracy of local models learned from points under local privacy, by ε (None: no privacy).
FIG4 = {
    None: {2: 0.89, 100: 0.66},
    1.0: {2: 0.595, 100: 0.53},
    0.5: {2: 0.56, 100: 0.515},
    0.1: {2: 0.515, 100: 0.50},
}

# Table 1: per-user test RMSE on MovieLens-100K; private cells by ε.
TABLE1 = {"local": 1.2834, "collaborative": 0.9502, 1.0: 0.9527, 0.5: 0.9545, 0.1: 0.9855}

WHO = {
    "local": "local",
    "collaborative": "CD",
    1.05: "ε = 1.05",
    1.0: "ε = 1",
    0.55: "ε = 0.55",
    0.5: "ε = 0.5",
    0.15: "ε = 0.15",
    0.1: "ε = 0.1",
    None: "no privacy",
}
FIG3_SIZES = ("10 to 20", "91 to 100")


def fig1_value(method: str, metric: str, place: int, unit: str) -> str:
    return f"1: {method}, {metric} after {place} {unit}"


def fig1_highest() -> str:
    return "1: admm, objective, highest"


def fig2_value(figure: str, metric: str, updates: int) -> str:
    return f"{figure}: {metric}, {f'T/n = {updates}' if updates else 'start'}"


def fig2c_value(who: str | float, dimension: int) -> str:
    return f"2c: {WHO[who]}, p = {dimension}"


def fig3_value(who: str | float, size: str) -> str:
    return f"3: {WHO[who]}, {size} points"


def fig4_value(epsilon: float | None, dimension: int) -> str:
    return f"4: {WHO[epsilon]}, p = {dimension}"


def table1_value(who: str | float) -> str:
    return f"Table 1: {WHO[who]}"


def _values() -> Iterator[str]:
    """Figure 1 has one start for both methods; its objective is the unit of all others."""
    for unit, figure in (("iterations", FIG1_BY_ITERATIONS), ("vectors", FIG1_BY_VECTORS)):
        for method, curves in figure.items():
            for metric, points in curves.items():
                for place in points:
                    if place or (unit, method, metric) == ("iterations", "cd", "accuracy"):
                        yield fig1_value(method, metric, place, unit)
    yield fig1_highest()
    for name, figure in (("2a", FIG2A), ("2b", FIG2B)):
        for metric, points in figure.items():
            yield from (fig2_value(name, metric, updates) for updates in points)
    for who, points in FIG2C.items():
        yield from (fig2c_value(who, dimension) for dimension in points)
    yield from (fig3_value(who, size) for who in FIG3 for size in FIG3_SIZES)
    for epsilon, points in FIG4.items():
        yield from (fig4_value(epsilon, dimension) for dimension in points)
    yield from map(table1_value, TABLE1)


# Every published value that this file has, once.
VALUES = tuple(_values())
