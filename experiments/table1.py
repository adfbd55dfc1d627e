"""Table 1: MovieLens-100K, per-user test RMSE; with baselines, a sound guarantee, and public features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import published
from experiments.published import DELTA, PRINTED_TRADEOFF, table1_value
from experiments.ratings_measures import (
    NOT_COVERED,
    PENALTIES,
    choose_descent_tradeoff,
    choose_settings,
    measure_honest,
    measure_paper,
    measure_without_releases,
)
from experiments.ratings_rule import FREEDOMS
from experiments.result import Claim, Result, Row, summary
from experiments.scale import Scale
from experiments.table1_picture import picture
from experiments.table1_story import CONDITION, story
from experiments.workbook import Workbook
from flockwise.data.ratings import MovieFeatures

__all__ = ["CAPTION", "NAME", "TITLE", "picture", "run", "story"]

NAME = "table1"
TITLE = "Table 1: MovieLens-100K, without privacy and with releases of bounded sensitivity"
CAPTION = (
    "Test RMSE of a user's ratings, averaged over users: lower is better. Bars are one standard deviation "
    "over random splits. Hollow marks are the published cells. Released models are what neighbors see; own "
    "models never leave their agent. Private rows at δ = 10⁻⁶ unless they say e⁻⁵."
)

SEEDS = range(6, 11)
EPSILONS = (1.0, 0.5, 0.1)
SOURCES: Mapping[MovieFeatures, str] = {
    "als": "As in the paper, with factors and graph of the agents' ratings taken as public.",
    "als_disjoint": "With factors of the ratings of other people, who are not protected, and a graph from "
    "age, gender and occupation.",
    "genres": "With genres and year as features, and a graph from age, gender and occupation.",
}
END_TO_END = (
    "Only this group, and the other one with public features, protects ratings from end to end, and this "
    f"{CONDITION}: nothing else that leaves an agent, and no setting, was made from a rating of an agent "
    "without noise."
)
NOT_END_TO_END = (
    "Features, graph and, through them, the settings were made from the ratings: taken as public, as the "
    "paper does, but not protected."
)
# What was aimed at before these splits were run, at δ = 10⁻⁶.
GOALS = {"released": {1.0: 0.948, 0.5: 0.953, 0.1: 0.970}, "own": {1.0: 0.920, 0.5: 0.922, 0.1: 0.926}}
RULE_NOTE = (
    "Settings and prior follow from public quantities alone, by simulation on generated twins: how many "
    "ratings each agent has, features, graph, ε and δ. Assumed: whole stars from 1 to 5; noise, users' means "
    "and users' tastes that vary as in the Netflix Prize (1.054 for movie means, .857 for the grand prize); "
    "neighbors who share half of this if they rate alike, a quarter if their profiles are alike; normal "
    "tastes, along all features alike; log-normal popularity. How releases are smoothed over the graph is "
    "chosen by the likelihood of the releases themselves. "
    "The form of the rule was not found blindly: which ways of smoothing it chooses among, and which "
    "variances it pools, was decided after looks at test errors on splits with seeds from 1 000 000 on, and "
    "earlier forms had been measured on splits 0 to 5. These are other splits, of the same ratings; the "
    "guarantee takes the form as public. Splits 6 to 10, reported here, had not been looked at "
    "by then; that each has a rule of its own, from two twins, was decided after they had been measured. The "
    "trade-off without privacy that is not the printed one is "
    "best on a twin with features and graph of split 1 000 000, whose training ratings include test ratings "
    "of splits 6 to 10."
)
NOISE_NOTE = (
    "This is the noise on split {}: the rule divides the budget between the two releases of each split."
)
QUICK_NOTE = "A quick run takes the middle of all settings, not the best on twins."


def run(scale: Scale, book: Workbook) -> Result:
    seeds = scale.pick(quick=SEEDS[:1], full=SEEDS)
    epsilons = scale.pick(quick=EPSILONS[:1], full=EPSILONS)
    sources: Sequence[MovieFeatures] = scale.pick(quick=("als", "genres"), full=tuple(SOURCES))
    book.expect(len(sources) * 3 * len(seeds) + len(seeds) + scale.pick(quick=0, full=1))
    settings: dict[str, Any] = {"note": f"{RULE_NOTE} {QUICK_NOTE}" if scale.quick else RULE_NOTE}
    search = not scale.quick
    rows, guarantees = [], []
    for source in sources:
        # Each split has a rule of its own: what is public of one may be made from test ratings of another.
        rules, found, alone = {}, [], []
        for seed in seeds:
            rule = book.compute(f"rule-{source}-{seed}", choose_settings, source, seed, epsilons, search)
            found.append(book.compute(f"{source}-{seed}", measure_honest, source, seed, epsilons, rule))
            alone.append(book.compute(f"alone-{source}-{seed}", measure_without_releases, source, seed, rule))
            rules[seed] = rule
        settings[source] = rules
        rows += _alone_rows(source, found[0], alone) + _honest_rows(source, found)
        scope = NOT_END_TO_END if NOT_COVERED[source] else END_TO_END
        guarantees += [
            f"{SOURCES[source]}\n{cell['guarantee']}\n{NOISE_NOTE.format(seeds[0])}\n{scope}"
            for cell in found[0]["cells"]
        ]
    guarantees.append(RULE_NOTE)
    chosen = None
    if not scale.quick:
        chosen = book.compute("tradeoff", choose_descent_tradeoff)
        settings["coordinate descent"] = chosen
    as_printed = [book.compute(f"paper-{seed}", measure_paper, seed, chosen) for seed in seeds]
    rows = _paper_rows(as_printed, chosen) + rows
    return Result(NAME, seeds, rows, guarantees, settings=settings, claims=claims(Result(NAME, seeds, rows)))


def _paper_rows(found: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any] | None) -> list[Row]:
    table = published.TABLE1

    def plain(
        what: str, variant: Any, paper: float | None = None, who: str | None = None, **more: Any
    ) -> list[Row]:
        if what not in found[0]:
            return []
        values = summary([values[what] for values in found])
        tags = {"features": "als", **more}
        value = None if who is None else table1_value(who)
        return [Row(what, 943, 20, variant, "own", "rmse", paper=paper, value=value, more=tags, **values)]

    rows = [
        *plain("user_mean", "baseline"),
        *plain("local", "baseline", table["local"], "local", form="mean, Eq. (1)"),
        *plain("local_sum", "baseline", table["local"], form="sum"),
        *plain("local_sum_weak_als", "baseline", table["local"], form="sum", als_penalty=0.02),
        _ridge_row("local_ridge_user_mean", found, 943, 20, {"features": "als", "centring": "user mean"}),
        *plain(
            "collaborative_printed",
            "published",
            table["collaborative"],
            "collaborative",
            tradeoff=PRINTED_TRADEOFF,
        ),
    ]
    if chosen is None:
        return rows
    return rows + plain("collaborative", "baseline", table["collaborative"], tradeoff=chosen["tradeoff"])


def _ridge_row(
    what: str, found: Sequence[Mapping[str, Any]], agents: int, dimension: int, more: Mapping[str, Any]
) -> Row:
    """The penalty that is best on average over these very test sets: a head start for the baseline."""
    errors = np.array([values["ridge"] for values in found])
    best = int(errors.mean(axis=0).argmin())
    more = {**more, "l2": PENALTIES[best]}
    return Row(
        what, agents, dimension, "baseline", "own", "rmse", more=more, **summary(errors[:, best].tolist())
    )


def _tags(source: MovieFeatures) -> dict[str, Any]:
    return {"features": "als" if NOT_COVERED[source] else "public", "source": source}


def _alone_rows(
    source: MovieFeatures, sizes: Mapping[str, Any], found: Sequence[Mapping[str, Any]]
) -> list[Row]:
    """Own models' start and prior without releases; then with the head start that ridge regression has."""
    errors = np.array([values["errors"] for values in found])
    best = int(errors.mean(axis=0).argmin())

    def row(what: str, values: Sequence[float], **more: Any) -> Row:
        size = sizes["agents"], sizes["dimension"]
        return Row(what, *size, "baseline", "own", "rmse", more=_tags(source) | more, **summary(values))

    return [
        row("local_same_prior", [values["by_rule"] for values in found], settings="public rule"),
        row("local_same_prior_tuned", errors[:, best].tolist(), freedom=FREEDOMS[best]),
    ]


def _honest_rows(source: MovieFeatures, found: Sequence[Mapping[str, Any]]) -> list[Row]:
    tags = _tags(source)
    agents, dimension = found[0]["agents"], found[0]["dimension"]
    rows = [_ridge_row("local_ridge", found, agents, dimension, {**tags, "centring": "public"})]
    for number, cell in enumerate(found[0]["cells"]):
        for model in ("released", "own"):
            is_in_table = source == "als" and cell["delta"] == DELTA and model == "released"
            rows.append(
                Row(
                    "private",
                    agents,
                    dimension,
                    "honest",
                    model,
                    "rmse",
                    epsilon=cell["epsilon"],
                    delta=cell["delta"],
                    paper=published.TABLE1[cell["epsilon"]] if is_in_table else None,
                    more=tags | {"guarantee": cell["label"], "settings": "public rule"},
                    **summary([values["cells"][number][model] for values in found]),
                )
            )
    return rows


def claims(result: Result) -> list[Claim]:
    honest = result.where(what="private", variant="honest", features="als")
    ridges = {row.more["source"]: row.ours for row in result.where(what="local_ridge")}
    printed = result.find(what="collaborative_printed")
    alone = {row.more["source"]: row.ours for row in result.where(what="local_same_prior")}
    own = result.where(what="private", variant="honest", model="own")
    public = [row for row in own if row.more["features"] == "public"]
    return [
        Claim(
            "Coordinate descent with the printed trade-off has the error of Table 1",
            printed.verdict in ("holds", "better"),
        ),
        Claim(
            "Coordinate descent has a smaller error than purely local models with the printed penalty, "
            "whatever the form of Eq. (1)",
            all(printed.ours < result.find(what=what).ours for what in ("local", "local_sum")),
        ),
        Claim(
            "Purely local models with one constant penalty have a smaller error than coordinate descent with "
            "the printed trade-off, and than every cell of Table 1",
            ridges["als"] < min(printed.ours, *published.TABLE1.values()),
            about="ours",
        ),
        Claim(
            "Released models are better than every private cell of Table 1, with a guarantee that holds once "
            "features and graph are taken as public, and settings from a public rule",
            all(row.ours < row.paper for row in honest if row.paper is not None),
            about="ours",
        ),
        Claim(
            "Own models are better than well-tuned local ones at every ε and δ",
            all(row.ours < ridges["als"] for row in honest if row.model == "own"),
            about="ours",
        ),
        Claim(
            "With public features and graph, and so with ratings protected from end to end, own models are "
            "still better than local ones",
            all(row.ours < ridges[row.more["source"]] for row in public),
            about="ours",
        ),
        Claim(
            "Own models are better than local ones that have the same public start and prior, at every ε "
            "and δ",
            all(row.ours < alone[row.more["source"]] for row in own),
            about="ours",
        ),
        *goal_claims(honest),
    ]


def goal_claims(rows: Sequence[Row]) -> list[Claim]:
    """Reached or not, each goal by itself."""
    return [
        Claim(
            f"{row.model.capitalize()} models have {GOALS[row.model][row.epsilon]:.3f} or less at "
            f"ε = {row.epsilon:g}, δ = 10⁻⁶",
            row.ours <= GOALS[row.model][row.epsilon],
            about="ours",
        )
        for row in rows
        if row.delta != DELTA and row.epsilon is not None
    ]
