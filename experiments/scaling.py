"""Beyond the paper: privacy gets cheaper in a larger network; what wrong edges and rotated features do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MultipleLocator, NullFormatter, NullLocator, StrMethodFormatter

from experiments import published
from experiments.drawing import WIDTH, legend, on_clean_labels, percent, published_points
from experiments.lowpass import own_models_after, solve_lowpass
from experiments.published import AGENTS, DELTA
from experiments.result import Claim, Curve, Model, Result, Row, summary
from experiments.scale import Scale
from experiments.sparse_models import solve_sparse_models
from experiments.synthetic import NEAREST, Network, network
from experiments.workbook import Workbook
from flockwise.privacy.budget import Budget
from flockwise.protocol.filter import DEGREES
from flockwise.report.theme import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, draw
from flockwise.solve import solve_local_models

NAME = "scaling"
TITLE = "Beyond the paper: privacy gets cheaper in a larger network"
CAPTION = (
    "Own models after one release per agent, low-pass smoothing and a silent finish (p = 100, δ = e⁻⁵, about "
    f"{NEAREST} neighbors each). Top left: accuracy by the number of agents, crosses on randomly rotated "
    "features, beside purely local models. Top right: gain over purely local models when a share of the "
    "edges is random. Bottom left: accuracy by the hops of the filter at ε = 1.05, ring where agents stop. "
    "Bottom right: what an agent sends in all, set-up included. Circles: published, as they would be on "
    "clean labels."
)

EPSILONS = (1.05, 0.55, 0.15)
COLOURS = {1.05: BLUE, 0.55: SKY, 0.15: PURPLE}
DIMENSION = 100
FEW_FEATURES = 20
# Instances by the number of agents: large networks differ less from draw to draw, and cost more.
RUNS = {100: 10, 400: 10, 1600: 2, 6400: 1}
QUICK_RUNS = {100: 1, 400: 1}
# Every number of hops is computed anew, which takes long in larger networks.
LARGEST_BY_HOPS = 1600
RANDOM_EDGES = (0.1, 0.3)
# Rotated and fewer features are shown up to this size: hours would tell nothing more.
LARGEST_VARIED = 1600
LOSS = 0.002

WANTED = {400: 0.85, 1600: 0.915, 6400: 0.95}
LEAST_GAIN = -0.002


@dataclass(frozen=True)
class Setting:
    """One network to measure: its size, its features, and the share of its edges that are random."""

    agents: int
    dimension: int = DIMENSION
    random_edges: float = 0.0
    rotated: bool = False

    @property
    def key(self) -> str:
        kind = "rotated" if self.rotated else f"random{100 * self.random_edges:.0f}"
        return f"n{self.agents}-p{self.dimension}-{kind}"

    @property
    def is_main(self) -> bool:
        """As the paper draws the task, with 100 features."""
        return self.dimension == DIMENSION and not self.rotated

    @property
    def is_published(self) -> bool:
        """What figure 2 (c) shows."""
        return (self.agents, self.random_edges, self.rotated) == (AGENTS, 0.0, False)

    @property
    def more(self) -> dict[str, Any]:
        """What its rows say of it."""
        edges = f"{self.random_edges:.0%} random" if self.random_edges else "right"
        return {"edges": edges, "features": "rotated" if self.rotated else "as drawn"}

    def draw(self, seed: int) -> Network:
        return network(
            self.agents, self.dimension, seed, random_edges=self.random_edges, rotated=self.rotated
        )


def run(scale: Scale, book: Workbook) -> Result:
    runs = scale.pick(quick=QUICK_RUNS, full=RUNS)
    test = scale.pick(quick=500, full=4000)
    cells = [(setting, seed) for setting in _settings(scale) for seed in range(_instances(setting, runs))]
    alone = [(setting, seed) for setting, seed in cells if not setting.random_edges]
    sizes = [agents for agents in runs if agents <= LARGEST_BY_HOPS]
    book.expect(len(alone) + len(cells) * len(EPSILONS) + len(sizes))
    found: dict[tuple[Setting, float | None], list[Any]] = {}
    for setting, seed in alone:
        value = book.compute(f"{setting.key}-{seed}-alone", measure_alone, setting, seed, test)
        found.setdefault((setting, None), []).append(value)
    for setting, seed in cells:
        for epsilon in EPSILONS:
            value = book.compute(f"{setting.key}-{seed}-{epsilon}", measure, setting, epsilon, seed, test)
            found.setdefault((setting, epsilon), []).append(value)
    rows = [row for (setting, epsilon), values in found.items() for row in _rows(setting, epsilon, values)]
    return Result(
        NAME,
        range(max(runs.values())),
        rows,
        guarantees=_guarantees(),
        curves=list(_curves_by_hops(book, sizes, test)),
        settings={"test points": test, "instances": runs, "nearest agents": NEAREST},
        claims=_claims(rows),
    )


def _settings(scale: Scale) -> Iterator[Setting]:
    """Right edges, random ones, and up to some size rotated features and fewer of them."""
    for agents in scale.pick(quick=QUICK_RUNS, full=RUNS):
        yield Setting(agents)
        if agents <= scale.pick(quick=AGENTS, full=max(RUNS)):
            yield from (Setting(agents, random_edges=share) for share in RANDOM_EDGES)
        if agents <= scale.pick(quick=AGENTS, full=LARGEST_VARIED):
            yield Setting(agents, rotated=True)
            yield Setting(agents, FEW_FEATURES)


def _instances(setting: Setting, runs: Mapping[int, int]) -> int:
    """Half as many for what is beside the point."""
    return runs[setting.agents] if setting.is_main else math.ceil(runs[setting.agents] / 2)


def measure_alone(setting: Setting, seed: int, test: int) -> dict[str, float]:
    """Accuracy of purely local models, by their penalty. Edges do not matter to them."""
    drawn = setting.draw(seed)
    models = {"local": solve_local_models(drawn.problem), "local_l1": solve_sparse_models(drawn.problem)}
    scores = drawn.accuracies(list(models.values()), test).mean(axis=1)
    return dict(zip(models, scores.tolist(), strict=True))


def measure(setting: Setting, epsilon: float, seed: int, test: int) -> dict[str, float]:
    """Accuracies of released and own models, who gains and loses by it, and what was sent for it."""
    drawn = setting.draw(seed)
    own, smoothing, traffic, _ = solve_lowpass(drawn.problem, Budget(epsilon, DELTA), seed)
    models = [solve_local_models(drawn.problem), own, smoothing.beliefs.vectors]
    alone, together, released = drawn.accuracies(models, test)
    found = {
        "own": float(together.mean()),
        "released": float(released.mean()),
        "gain": float((together - alone).mean()),
        "losing": float((together - alone < -LOSS).mean()),
        "collaborating": float(smoothing.beliefs.collaborates.mean()),
        "hops": float(smoothing.hops.mean()),
    }
    if setting.is_main and epsilon == EPSILONS[0]:
        found |= {
            "vectors": traffic.all_vectors / setting.agents,
            "bytes": traffic.all_bytes / setting.agents,
            "bytes_of_hops": traffic.bytes["hop"] / setting.agents,
        }
    return found


def measure_by_hops(setting: Setting, epsilon: float, seed: int, test: int) -> dict[str, Any]:
    """Accuracy of own models after each number of hops that agents decide among, and which they choose."""
    drawn = setting.draw(seed)
    budget = Budget(epsilon, DELTA)
    smoothing = solve_lowpass(drawn.problem, budget, seed).smoothing
    degrees = [degree for degree in DEGREES if degree <= smoothing.hops.max()]
    models = [own_models_after(drawn.problem, budget, seed, degree) for degree in degrees]
    scores = drawn.accuracies(models, test).mean(axis=1)
    return {"hops": degrees, "own": scores.tolist(), "chosen": int(smoothing.degrees.max())}


def _curves_by_hops(book: Workbook, sizes: Iterable[int], test: int) -> Iterator[Curve]:
    for agents in sizes:
        epsilon = max(EPSILONS)
        key = f"hops-n{agents}-{epsilon}"
        found = book.compute(key, measure_by_hops, Setting(agents), epsilon, 0, test)
        yield Curve(f"n = {agents}", found["hops"], found["own"], {"chosen": found["chosen"]})


def _guarantees() -> list[str]:
    problem = Setting(AGENTS).draw(0).problem
    return [solve_lowpass(problem, Budget(epsilon, DELTA), 0).guarantee for epsilon in EPSILONS]


def _rows(setting: Setting, epsilon: float | None, found: Sequence[Mapping[str, float]]) -> Iterator[Row]:
    common: dict[str, Any] = {"agents": setting.agents, "dimension": setting.dimension}
    if epsilon is None:
        for what in ("local", "local_l1"):
            # With the L2 penalty, rotation changes nothing.
            if what == "local_l1" or not setting.rotated:
                yield Row(
                    what,
                    variant="baseline",
                    model="own",
                    metric="accuracy",
                    more={"features": setting.more["features"]},
                    **common,
                    **summary([one[what] for one in found]),
                )
        return
    common |= {"what": "private", "variant": "honest", "epsilon": epsilon, "delta": DELTA}
    means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    judged = {key: round(means[key], 4) for key in ("gain", "losing", "collaborating", "hops")}
    sent = {key: round(means[key]) for key in ("vectors", "bytes", "bytes_of_hops") if key in means}
    paper = published.FIG2C[epsilon].get(setting.dimension) if setting.is_published else None
    for model in get_args(Model):
        yield Row(
            model=model,
            metric="accuracy",
            paper=paper,
            more=setting.more | (judged | sent if model == "own" else {}),
            **common,
            **summary([one[model] for one in found]),
        )
    if setting.is_main and not setting.random_edges:
        # The published gain is that of the paper's 100 agents: with more of them it is not its equal.
        yield Row(
            model="own",
            metric="gain",
            paper=published_gain(epsilon) if setting.agents == AGENTS else None,
            more=setting.more,
            **common,
            **summary([one["gain"] for one in found]),
        )


def published_gain(epsilon: float) -> float:
    """Of private over purely local models at p = 100, read off figure 2 (c)."""
    return round(published.FIG2C[epsilon][DIMENSION] - published.FIG2C["local"][DIMENSION], 4)


def _own(rows: Sequence[Row], dimension: int = DIMENSION, metric: str = "accuracy", **more: str) -> list[Row]:
    wanted = {"edges": "right", "features": "as drawn"} | more
    return [
        row
        for row in rows
        if (row.what, row.model, row.dimension, row.metric) == ("private", "own", dimension, metric)
        and wanted.items() <= row.more.items()
    ]


def _claims(rows: Sequence[Row]) -> list[Claim]:
    right = {(row.agents, row.epsilon): row.ours for row in _own(rows)}
    sizes = sorted({agents for agents, _ in right})
    shown = [agents for agents in sizes if agents in WANTED]
    asked = ", ".join(f"{100 * WANTED[agents]:g} % with {agents}" for agents in shown)
    gains = {(row.agents, row.epsilon): row.as_published for row in _own(rows, metric="gain")}
    wrong = [row for share in RANDOM_EDGES for row in _own(rows, edges=_edges(share))]
    return [
        Claim(
            f"At p = 100 and ε = 1.05 own models reach an accuracy of {asked} agents",
            all(right[agents, 1.05] >= WANTED[agents] for agents in shown),
            "ours",
        ),
        Claim(
            "The published gain over purely local models at p = 100 and ε = 1.05 is passed, with a guarantee "
            "that holds, by 400 agents",
            gains[400, 1.05] >= published_gain(1.05),
            "ours",
        ),
        Claim(
            f"The published gains are passed, with a guarantee that holds, at every ε by {sizes[-1]} agents",
            all(gains[sizes[-1], epsilon] >= published_gain(epsilon) for epsilon in EPSILONS),
            "ours",
        ),
        Claim(
            "Privacy gets cheaper in a larger network: at every ε accuracy rises with the number of agents",
            all(right[few, e] < right[many, e] for e in EPSILONS for few, many in pairwise(sizes)),
            "ours",
        ),
        Claim(
            "With 10 % and 30 % random edges the mean gain over purely local models is at least −0.002 at "
            "every ε and every number of agents",
            all(row.more["gain"] >= LEAST_GAIN for row in wrong),
            "ours",
        ),
        Claim(
            "Rotated features change the accuracy of own models by less than 2 points, and take most of the "
            "lead that an L1 penalty gives local models",
            _rotation_matters_to_sparse_models_alone(rows),
            "ours",
        ),
    ]


def _edges(share: float) -> str:
    return Setting(AGENTS, random_edges=share).more["edges"]


def _rotation_matters_to_sparse_models_alone(rows: Sequence[Row]) -> bool:
    alone = {
        (row.what, row.more["features"]): row.ours
        for row in rows
        if row.variant == "baseline" and (row.agents, row.dimension) == (AGENTS, DIMENSION)
    }
    local, sparse = alone["local", "as drawn"], alone["local_l1", "as drawn"]
    takes_most = alone["local_l1", "rotated"] - local < (sparse - local) / 2
    return _rotation(rows) < 0.02 and takes_most


def _rotation(rows: Sequence[Row]) -> float:
    """The largest difference that rotation makes to the accuracy of own models."""
    drawn = {(row.agents, row.epsilon): row.ours for row in _own(rows)}
    return max(abs(row.ours - drawn[row.agents, row.epsilon]) for row in _own(rows, features="rotated"))


def picture(result: Result) -> Figure:
    def paint(figure: Figure) -> None:
        (accuracy, wrong), (hops, traffic) = figure.subplots(2, 2)
        _paint_accuracy(accuracy, result)
        _paint_random_edges(wrong, result)
        _paint_hops(hops, result)
        _paint_traffic(traffic, result)
        entries = [(f"ε = {epsilon:g}", {"color": COLOURS[epsilon]}) for epsilon in EPSILONS]
        entries += [
            ("local", {"color": ORANGE}),
            ("local, L1", {"color": ORANGE, "linestyle": ":"}),
            ("local, L1, rotated", {"color": ORANGE, "linestyle": "-."}),
        ]
        legend(figure, entries, columns=4)

    return draw(WIDTH, 7.0, paint)


def _by_agents(axes: Axes, rows: Sequence[Row], key: str | None = None, **style: Any) -> None:
    values = [row.ours if key is None else row.more[key] for row in rows]
    axes.plot([row.agents for row in rows], values, **style)


def _agents_axis(axes: Axes, result: Result) -> None:
    sizes = sorted({row.agents for row in result.rows})
    axes.set_xscale("log")
    axes.set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlabel("agents")


def _paint_accuracy(axes: Axes, result: Result) -> None:
    for epsilon, colour in COLOURS.items():
        rows = [row for row in _own(result.rows) if row.epsilon == epsilon]
        _by_agents(axes, rows, color=colour, marker=".", markersize=8)
        rotated = [row for row in _own(result.rows, features="rotated") if row.epsilon == epsilon]
        _by_agents(axes, rotated, color=colour, linestyle="none", marker="x", markersize=7)
        published_points(axes, on_clean_labels({AGENTS: published.FIG2C[epsilon][DIMENSION]}), colour)
    for what, features, style in (
        ("local", "as drawn", "-"),
        ("local_l1", "as drawn", ":"),
        ("local_l1", "rotated", "-."),
    ):
        rows = result.where(what=what, features=features, dimension=DIMENSION)
        _by_agents(axes, rows, color=ORANGE, linestyle=style, marker=".", markersize=8)
    _agents_axis(axes, result)
    axes.set(title="own models, right edges", ylabel="test accuracy")
    percent(axes)


def _paint_random_edges(axes: Axes, result: Result) -> None:
    for epsilon, colour in COLOURS.items():
        for share, style, marker in zip(RANDOM_EDGES, ("-", "--"), (".", "x"), strict=True):
            rows = [row for row in _own(result.rows, edges=_edges(share)) if row.epsilon == epsilon]
            _by_agents(axes, rows, "gain", color=colour, linestyle=style, marker=marker, markersize=8)
    axes.axhline(0, color=INK, linewidth=0.8)
    _agents_axis(axes, result)
    axes.set(title="10 % random edges; 30 % (dashed)", ylabel="gain over purely local models")
    percent(axes)


def _paint_hops(axes: Axes, result: Result) -> None:
    for curve, colour in zip(result.curves, (BLUE, GREEN, ORANGE), strict=False):
        axes.plot(curve.x, curve.y, color=colour, marker=".", label=curve.name)
        chosen = list(curve.x).index(curve.more["chosen"])
        axes.plot(curve.x[chosen], curve.y[chosen], "o", markersize=11, color=colour, fillstyle="none")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_major_locator(MultipleLocator(0.05))
    axes.legend(loc="lower right")
    axes.set(title="own models, by hops of the filter", xlabel="hops", ylabel="test accuracy")
    percent(axes)


def _paint_traffic(axes: Axes, result: Result) -> None:
    rows = [row for row in _own(result.rows) if "bytes" in row.more]
    sizes = [row.agents for row in rows]
    axes.plot(
        sizes, [row.more["bytes"] / 1e6 for row in rows], color=INK, marker=".", markersize=8, label="in all"
    )
    axes.plot(
        sizes,
        [row.more["bytes_of_hops"] / 1e6 for row in rows],
        color=GREEN,
        marker=".",
        markersize=8,
        label="hops of the filter alone",
    )
    _agents_axis(axes, result)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(1, None)
    axes.set(title="what one agent sends, ε = 1.05", ylabel="megabytes")
    axes.legend()


def story(result: Result) -> str:
    right = _own(result.rows)
    sizes = sorted({row.agents for row in right})
    top = {row.agents: row.ours for row in right if row.epsilon == 1.05}
    low = {row.agents: row.ours for row in right if row.epsilon == 0.15}
    local = result.find(what="local", agents=AGENTS, dimension=DIMENSION).ours
    drawn, turned = (
        result.find(what="local_l1", agents=AGENTS, dimension=DIMENSION, features=features).ours
        for features in ("as drawn", "rotated")
    )
    wrong = [row.more["gain"] for share in RANDOM_EDGES for row in _own(result.rows, edges=_edges(share))]
    largest = max((row for row in right if "bytes" in row.more), key=lambda row: row.agents)
    return (
        f"At the same ε a larger network is more accurate. With {_listed(sizes)} agents own models reach "
        f"{_listed([f'{top[n]:.3f}' for n in sizes])} at ε = 1.05, and "
        f"{_listed([f'{low[n]:.3f}' for n in sizes])} at ε = 0.15 (p = 100). Purely local ones have "
        f"{local:.3f}. With 10 or 30 % random edges the mean gain is never below "
        f"{100 * min(wrong):+.1f} points. Purely local models with an L1 penalty have {drawn:.3f}, but "
        f"{turned:.3f} on rotated features, with the penalty chosen on unrotated ones. Own models differ by "
        f"at most {100 * _rotation(result.rows):.1f} points between the two, on other instances. Of the "
        "largest networks there are only one or two instances. The price is traffic: with "
        f"{largest.agents} agents each sends {largest.more['vectors']:,} vectors, "
        f"{largest.more['bytes'] / 1e6:,.0f} MB. Most of it serves to set up and to agree how far to smooth."
    )


def _listed(items: Sequence[Any]) -> str:
    return ", ".join(str(item) for item in items[:-1]) + f" and {items[-1]}"
