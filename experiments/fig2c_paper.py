"""Figures 2 (c) and 3 by the paper's protocol: private descent from a private start, tuned elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments import published
from experiments.drawing import WIDTH, legend, on_clean_labels, percent, published_points
from experiments.noisy_descent import NOT_PRIVATE
from experiments.published import AGENTS, DELTA, FIG3_SIZES, fig2c_value, fig3_value
from experiments.result import PAPER_RUNS, Claim, Result, Row, Variant, summary
from experiments.scale import Scale
from experiments.synthetic import BOX, PAPER_GRAPH, best_tradeoff
from experiments.tradeoff import QUICK, TUNING_INSTANCES
from experiments.tuned import (
    KINDS,
    SIZES,
    START_EPSILON,
    Kind,
    measure,
    measure_printed,
    tune,
    tune_printed,
)
from experiments.workbook import Workbook
from flockwise.report.theme import BLUE, ORANGE, PURPLE, SKY, draw

NAME = "fig2c_paper"
TITLE = "Figures 2 (c) and 3: private descent, tuned on other instances"
CAPTION = (
    "Test accuracy on clean labels by the number of features; published points are drawn as they would be on "
    "clean labels. Private coordinate descent from a private, propagated start; updates and clip tuned on "
    "other instances for each dimension and ε. As printed, which guarantees nothing; with Laplace and with "
    "normal noise and every gradient clipped, which have the stated guarantee; and so from zero models."
)

EPSILONS = (1.05, 0.55, 0.15)
# With a guarantee: tuned in these dimensions and for the largest ε alone, for reasons of time.
SOUND_DIMENSIONS = (10, 25, 100)
COLOURS = {1.05: BLUE, 0.55: SKY, 0.15: PURPLE}
LARGEST = 100
WITHOUT_PRIVACY = ("local", "collaborative")
WORDS = {
    "printed": "as printed, not private",
    "laplace": "Laplace noise, with a guarantee",
    "gaussian": "normal noise, with a guarantee",
    "zeros": "normal noise from zeros, with a guarantee",
}
# Noise and models, in the order in which the section tells them.
TOLD = (
    ("printed", "last", "As printed, with nothing clipped and no guarantee, the last models"),
    ("zeros", "tail", "Normal noise, a clip in L2 and a guarantee, from zeros, averages of released models"),
    ("zeros", "own", "Own models of these runs"),
    ("gaussian", "tail", "The same noise from the private start, averages of released models"),
    ("laplace", "tail", "Laplace noise, a clip in L1 and the guarantee of Theorem 1, from the private start"),
    ("gaussian", "own", "Own models of the runs with normal noise from the private start"),
)


def run(scale: Scale, book: Workbook) -> Result:
    dimensions = scale.pick(quick=(10,), full=(2, 10, 25, 50, 75, 100))
    epsilons = scale.pick(quick=EPSILONS[:1], full=EPSILONS)
    seeds = _seeds(scale)
    sound = [dimension for dimension in dimensions if dimension in SOUND_DIMENSIONS]
    runs = len(dimensions) + (len(KINDS) - 1) * len(sound)
    book.expect(runs * len(seeds) + scale.pick(quick=0, full=runs + len(dimensions)))
    tradeoffs = {dimension: _tradeoff(dimension, scale, book) for dimension in dimensions}
    chosen: dict[int, dict[str, Any]] = {dimension: {} for dimension in dimensions}
    found: dict[int, list[Mapping[str, Any]]] = {dimension: [] for dimension in dimensions}
    for kind in KINDS:
        budgets = epsilons if kind == "printed" else epsilons[:1]
        for dimension in dimensions if kind == "printed" else sound:
            tradeoff = tradeoffs[dimension]
            settings = _settings(dimension, tradeoff, budgets, kind, scale, book)
            chosen[dimension] |= {f"{kind} {e}": one for e, one in settings.items()}
            found[dimension] += _measured(dimension, tradeoff, kind, settings, scale, book)
    rows = [row for dimension in dimensions for row in _rows(dimension, found[dimension], chosen[dimension])]
    return Result(
        NAME,
        seeds,
        rows,
        guarantees=list(dict.fromkeys(words for one in found[dimensions[-1]] for words in one["guarantees"])),
        settings={
            "tradeoff": tradeoffs,
            "chosen": chosen,
            "graph": PAPER_GRAPH,
            "ε of the start": START_EPSILON,
            "test points": scale.pick(quick=100, full=1000),
        },
        claims=claims(rows),
    )


def _seeds(scale: Scale) -> range:
    return scale.pick(quick=range(1), full=range(PAPER_RUNS))


def _tradeoff(dimension: int, scale: Scale, book: Workbook) -> float:
    if scale.quick:
        return QUICK
    grid = scale.tuning_seeds(TUNING_INSTANCES)
    return book.compute(f"p{dimension}-tradeoff", best_tradeoff, dimension, grid, PAPER_GRAPH)


def _settings(
    dimension: int, tradeoff: float, epsilons: Sequence[float], kind: Kind, scale: Scale, book: Workbook
) -> dict[float, dict[str, Any]]:
    if scale.quick:
        return {epsilon: {"updates": 4, "clip": 1.0} for epsilon in epsilons}
    name, tuning = f"p{dimension}-{kind}", tuple(scale.tuning_seeds(TUNING_INSTANCES))
    if kind == "printed":
        found = book.compute(name, tune_printed, dimension, tradeoff, tuple(epsilons), tuning)
        return {float(epsilon): one for epsilon, one in found.items()}
    return {
        epsilon: book.compute(f"{name}-{epsilon}", tune, dimension, tradeoff, epsilon, kind, tuning)
        for epsilon in epsilons
    }


def _measured(
    dimension: int,
    tradeoff: float,
    kind: Kind,
    settings: Mapping[float, Mapping[str, Any]],
    scale: Scale,
    book: Workbook,
) -> list[Mapping[str, Any]]:
    """Of every instance."""
    step: Callable[..., dict[str, Any]] = measure_printed if kind == "printed" else measure
    plain: tuple[Any, ...] = tuple((epsilon, one["updates"]) for epsilon, one in settings.items())
    if kind != "printed":
        plain = tuple((f"{kind} {e}", one["updates"], one["clip"]) for e, one in settings.items())
    test = scale.pick(quick=100, full=1000)
    return [
        book.compute(f"p{dimension}-{kind}-{seed}", step, dimension, tradeoff, plain, seed, test)
        for seed in _seeds(scale)
    ]


def _rows(dimension: int, found: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Row]:
    rows = []
    for name in dict.fromkeys(name for one in found for name in one["accuracy"]):
        measured = [one for one in found if name in one["accuracy"]]
        row = _row(name, dimension, [one["accuracy"][name] for one in measured], settings)
        rows.append(row)
        if dimension != LARGEST:
            continue
        for size in SIZES:
            values = [one["sizes"][name][size] for one in measured]
            rows.append(_of_size(row, size, [value for value in values if value is not None]))
    return rows


def _row(name: str, dimension: int, values: Sequence[float], settings: Mapping[str, Any]) -> Row:
    if name in WITHOUT_PRIVACY:
        return Row(
            name,
            AGENTS,
            dimension,
            "baseline",
            "own" if name == "local" else "released",
            "accuracy",
            paper=published.FIG2C[name].get(dimension),
            value=fig2c_value(name, dimension),
            **summary(values),
        )
    kind, words, shown = name.split()
    epsilon = float(words)
    is_printed = kind == "printed"
    variant: Variant = "published" if is_printed else "honest"
    own = settings[f"{kind} {words}"]
    more: dict[str, Any] = {"noise": kind, "shown": shown, "updates": int(own["updates"])}
    more |= NOT_PRIVATE if is_printed else {"clip": own["clip"]}
    if own.get("edge"):
        more["edge of the grid"] = own["edge"]
    return Row(
        "private",
        AGENTS,
        dimension,
        variant,
        "own" if shown == "own" else "released",
        "accuracy",
        epsilon=epsilon,
        delta=DELTA,
        paper=published.FIG2C[epsilon].get(dimension),
        value=fig2c_value(epsilon, dimension) if is_printed else None,
        more=more,
        **summary(values),
    )


def _of_size(row: Row, size: str, values: Sequence[float]) -> Row:
    """The same for the agents with so many points: Figure 3."""
    place = FIG3_SIZES.index(size)
    key = row.what if row.epsilon is None else row.epsilon
    return Row(
        row.what,
        row.agents,
        row.dimension,
        row.variant,
        row.model,
        "accuracy",
        epsilon=row.epsilon,
        delta=row.delta,
        paper=published.FIG3[key][place],
        value=None if row.value is None else fig3_value(key, size),
        more={**row.more, "samples": size},
        **summary(values),
    )


def _of(rows: Sequence[Row], noise: str, shown: str, size: str | None = None) -> list[Row]:
    return [
        row
        for row in rows
        if (row.more.get("noise"), row.more.get("shown"), row.more.get("samples")) == (noise, shown, size)
    ]


def _gain(rows: Sequence[Row], row: Row) -> float:
    """Over purely local models."""
    size = row.more.get("samples")
    return row.ours - next(
        one.ours
        for one in rows
        if one.what == "local" and (one.dimension, one.more.get("samples")) == (row.dimension, size)
    )


def claims(rows: Sequence[Row]) -> list[Claim]:
    printed, least = _of(rows, "printed", "last"), min(row.epsilon or 0 for row in rows if row.epsilon)
    found = [
        Claim(
            f"On points of {BOX}, as printed, which guarantees nothing, the private method reaches the "
            "published accuracies of Figure 2 (c) in every dimension and at every ε",
            all(row.verdict in ("holds", "better") for row in printed),
        ),
        Claim(
            f"On points of {BOX}, as printed, private models beat purely local ones in every dimension even "
            f"at ε = {least:g}",
            all(_gain(rows, row) > 0 for row in printed if row.epsilon == least),
        ),
        Claim(
            "Without privacy, collaboration beats purely local models in every dimension",
            all(_gain(rows, row) > 0 for row in rows if row.what == "collaborative"),
        ),
    ]
    for noise, words in (
        ("zeros", "normal noise from zeros"),
        ("gaussian", "normal noise from the private start"),
        ("laplace", "Laplace noise from the private start"),
    ):
        for wins in (True, False):
            where = _cells([row for row in _of(rows, noise, "tail") if (_gain(rows, row) > 0) is wins])
            if where:
                found.append(
                    Claim(
                        f"With {words} and a guarantee that holds, released models of private descent beat "
                        f"learning alone at {where}",
                        wins,
                        "ours",
                    )
                )
    found += _claims_by_size(rows)
    return found


def _cells(rows: Sequence[Row]) -> str:
    """Where these rows are, in words."""
    parts = []
    for epsilon in EPSILONS:
        dimensions = [str(row.dimension) for row in rows if row.epsilon == epsilon]
        if dimensions:
            parts.append(f"ε = {epsilon:g} (p = {', '.join(dimensions)})")
    return ", ".join(parts)


def _claims_by_size(rows: Sequence[Row]) -> list[Claim]:
    largest = [row for row in rows if row.more.get("samples") == "91 to 100" and row.what == "private"]
    if not largest:
        return []
    printed = [row for row in largest if row.more["noise"] == "printed"]
    own = [
        row
        for row in largest
        if (row.more["noise"], row.more["shown"], row.epsilon) == ("zeros", "own", max(EPSILONS))
    ]
    small = [
        row for row in rows if row.more.get("samples") == "10 to 20" and row.more.get("noise") == "printed"
    ]
    return [
        Claim(
            f"On points of {BOX}, as printed, agents with the largest data sets gain as well, at every ε. In "
            "the paper's own Figure 3 they lose at ε = 0.15: .69 against .71",
            all(_gain(rows, row) > 0 for row in printed),
        ),
        Claim(
            f"On points of {BOX}, as printed, the smallest data sets gain, and more than the largest, at "
            "every ε",
            all(_gain(rows, a) > max(_gain(rows, b), 0) for a, b in zip(small, printed, strict=True)),
        ),
        *(
            Claim(
                "With normal noise from zeros and a guarantee that holds, own models of agents with the "
                "largest data sets gain at ε = 1.05 and p = 100",
                _gain(rows, row) > 0,
                "ours",
            )
            for row in own
        ),
    ]


def picture(result: Result) -> Figure:
    def paint(figure: Figure) -> None:
        grid = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
        local = [row for row in result.where(what="local") if "samples" not in row.more]
        for axes, kind in zip(grid, KINDS, strict=True):
            axes.plot([r.dimension for r in local], [r.ours for r in local], color=ORANGE)
            for epsilon, colour in COLOURS.items():
                rows = [r for r in _of(result.rows, kind, "last") if r.epsilon == epsilon]
                axes.plot([r.dimension for r in rows], [r.ours for r in rows], color=colour)
                published_points(axes, on_clean_labels(published.FIG2C[epsilon]), colour)
            axes.set_title(WORDS[kind])
        for axes in grid[2:]:
            axes.set_xlabel("dimension p")
        for axes in grid[::2]:
            axes.set_ylabel("test accuracy")
        percent(grid[0])
        entries = [("local", {"color": ORANGE})]
        entries += [(f"ε = {epsilon:g}", {"color": colour}) for epsilon, colour in COLOURS.items()]
        legend(figure, entries, columns=5)

    return draw(WIDTH, 6.4, paint)


def story(result: Result) -> str:
    rows = result.rows
    parts = []
    for noise, shown, words in TOLD:
        found = {e: [row for row in _of(rows, noise, shown) if row.epsilon == e] for e in EPSILONS}
        values = [
            f"{' / '.join(f'{row.ours:.3f}' for row in own)} at ε = {epsilon:g}"
            for epsilon, own in found.items()
            if own
        ]
        if values:
            where = sorted({row.dimension for own in found.values() for row in own})
            some = "" if len(where) == len(result.settings["tradeoff"]) else f", p = {_slashed(where)}"
            parts.append(f"{words}{some}: {'; '.join(values)}.")
    alone, together = (
        " / ".join(f"{row.ours:.3f}" for row in rows if row.what == what and "samples" not in row.more)
        for what in WITHOUT_PRIVACY
    )
    return (
        f"This is the {result.settings['graph']} graph, with points of {BOX}. Settings were tuned on other "
        "instances: μ for every p, by the accuracy of the optimum without privacy; updates for every p and "
        "ε. In runs with a guarantee the clip was tuned as well, in three dimensions and at ε = 1.05 only. "
        "Runs start from zeros or from released local models that are propagated, for "
        f"ε = {START_EPSILON:g} of the budget. How they are released is our choice: shrunk, with one "
        "constant λ where the paper has 1/m_i, and with normal noise, or Laplace noise where the updates "
        "have that. In the runs as printed start and updates have a δ of e⁻⁵ each. "
        f"Values are on clean labels, for p = {_slashed(result.settings['tradeoff'])}; the table of all "
        f"published values has them on noisy ones. Purely local models: {alone}. The optimum of Eq. (2): "
        f"{together}. {' '.join(parts)} {_edges(result)}{_fewest(result)}"
    )


def _fewest(result: Result) -> str:
    """What it means where a single update is best."""
    chosen = [own for settings in result.settings["chosen"].values() for own in settings.values()]
    if all(own["updates"] > 1 for own in chosen):
        return ""
    return " One update is the fewest possible: noise is so large that each further one does harm."


def _slashed(values: Iterable[Any]) -> str:
    return " / ".join(map(str, values))


def _edges(result: Result) -> str:
    """Which settings were chosen at an end of their grid, and how often."""
    chosen = [
        (name.split()[0], own)
        for settings in result.settings["chosen"].values()
        for name, own in settings.items()
    ]
    ends = Counter((kind, name, own[name]) for kind, own in chosen for name in own.get("edge", ()))
    if not ends:
        return "No setting was chosen at the edge of its grid."
    runs = Counter(kind for kind, _ in chosen)
    found = (
        f"{name} {value:g} in {count} of {runs[kind]} choices ({WORDS[kind]})"
        for (kind, name, value), count in ends.items()
    )
    return f"Chosen at the edge of a grid: {', '.join(found)}."
