"""What plans are worth: on generated kinds of population and on real groups, against tuned local models."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.grouped import DATA_SETS
from experiments.populations import KINDS_BY_GROUP, Instance
from experiments.result import Claim, Result, Row
from experiments.scale import Scale
from experiments.workbook import Workbook
from flockwise.engine import simulate
from flockwise.method import Candidate, LearnedPrior, Local, PublicFacts
from flockwise.objective import Problem
from flockwise.planner import Recommendation, plan_run
from flockwise.privacy.budget import Budget
from flockwise.report.theme import draw
from flockwise.results.metrics import agent_metrics, mean_metric
from flockwise.solve import choose_l2

NAME = "planner"
TITLE = "Plans: what is recommended, and what comes of it"
CAPTION = (
    "Gain of the best private method over tuned local models, by kind of population, as expected beforehand "
    "and as it came out; filled where the plan says run. Accuracy, or a share of the RMSE."
)
DELTA = 1e-5
REAL_EPSILONS = (1.0, 0.3, 0.1)
# A method that was refused is missed if it would have gained as much as a plan asks for.
MISSED = 0.005
TUNING_SPLITS = 2
ALL_KINDS = tuple((group, kind) for group, kinds in KINDS_BY_GROUP.items() for kind in kinds)


def run(scale: Scale, book: Workbook) -> Result:
    places = range(len(ALL_KINDS))
    kinds = scale.pick(quick=places[::16], full=places)
    names = scale.pick(quick=("Exam",), full=tuple(DATA_SETS))
    seeds = scale.pick(quick=(0,), full=(0, 1, 2, 3))
    book.expect(len(kinds) + len(names) * len(REAL_EPSILONS))
    rows = [book.compute(f"kind{place}", generated, place, seeds) for place in kinds]
    pairs = [(name, epsilon) for name in names for epsilon in REAL_EPSILONS]
    rows += [book.compute(f"{name}-{epsilon:g}", real, name, epsilon, seeds) for name, epsilon in pairs]
    found = [_row(row, len(seeds)) for row in rows]
    return Result(NAME, seeds, found, settings={"delta": DELTA}, claims=_claims(found))


def generated(place: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    group, kind = ALL_KINDS[place]
    judged = _judged([kind.instance(seed) for seed in seeds], kind.epsilon, kind.words)
    sizes = {"agents": kind.agents, "dimension": kind.features + 1, "epsilon": kind.epsilon}
    return {
        "kind": kind.words,
        "group": group,
        **sizes,
        **judged,
    }


def real(name: str, epsilon: float, seeds: tuple[int, ...]) -> dict[str, Any]:
    data = DATA_SETS[name]
    splits = [data.split(seed) for seed in seeds]
    words = f"{name}, ε = {epsilon:g}"
    judged = _judged([Instance(split.problem, split.test) for split in splits], epsilon, words)
    sizes = {"agents": splits[0].problem.n_agents, "dimension": data.dimension, "epsilon": epsilon}
    group = "real groups" if data.standing == "known" else f"real groups, {data.standing}"
    return {"kind": words, "group": group, **sizes, **judged}


def _judged(instances: list[Instance], epsilon: float, words: str) -> dict[str, Any]:
    """The plan, and the gain of its best candidate on each instance, whether it was recommended or not.

    words: of the kind. No two kinds get the same noise.
    """
    plan = planned(instances[0].problem, epsilon)
    best = plan.best
    forced = Candidate("learned prior", _Forced(Budget(epsilon, DELTA)))
    candidate = forced if best is None else best.candidate
    seed = zlib.crc32(words.encode())
    gains = [_gain(one, candidate, seed + number) for number, one in enumerate(instances)]
    return {
        "metric": instances[0].problem.loss.metric,
        "best": candidate.words,
        "run": plan.chosen is not None,
        "expected": None if best is None else best.gain,
        "worst_twin": None if best is None else best.worst.gain,
        "gains": gains,
    }


class _Forced(LearnedPrior):
    """The learned prior where it was refused beforehand: run all the same, to see whether that was right."""

    def refusal(self, facts: PublicFacts) -> None:
        return None


def planned(problem: Problem, epsilon: float) -> Recommendation:
    return _planned(_Facts(PublicFacts.of(problem, Budget(epsilon, DELTA), chooses_tradeoff=True)))


class _Facts:
    """Public facts as a key: kinds that differ in what is private alone share one plan."""

    def __init__(self, facts: PublicFacts) -> None:
        self.facts = facts
        graph = None if facts.graph is None else facts.graph.to_scipy().toarray().tobytes()
        counts = facts.sample_counts.tobytes()
        self.key = counts, facts.n_features, graph, facts.objective, facts.budgets, facts.has_intercept

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Facts) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=8)
def _planned(facts: _Facts) -> Recommendation:
    return plan_run(facts.facts)


def _gain(instance: Instance, candidate: Candidate, seed: int) -> float:
    """Of the models that agents end with, over local ones whose penalty is tuned on the samples.

    Tuning needs everybody's samples, so it is more than a private agent can do.
    """
    tuned = choose_l2(instance.problem, splits=TUNING_SPLITS)
    alone = _metric(instance, simulate(tuned, Local()).models)
    problem = candidate.problem(instance.problem)
    made = simulate(problem, candidate.method, seed=seed, **candidate.stops)
    own = _metric(instance, made.own_models)
    return own - alone if problem.loss.metric == "accuracy" else 1 - own / alone


def _metric(instance: Instance, models: Any) -> float:
    return mean_metric(agent_metrics(instance.problem.loss, instance.test, np.asarray(models)))


def _row(found: dict[str, Any], runs: int) -> Row:
    gains = found.pop("gains")
    sd = float(np.std(gains, ddof=1)) if len(gains) > 1 else None
    return Row(
        found["best"],
        found.pop("agents"),
        found.pop("dimension"),
        "honest",
        "own",
        "gain",
        float(np.mean(gains)),
        sd,
        runs,
        found.pop("epsilon"),
        DELTA,
        more={**found, "judged_by": found.pop("metric"), "gains": gains},
    )


def _claims(rows: list[Row]) -> list[Claim]:
    chosen = [row for row in rows if row.more["run"]]
    gains = [gain for row in chosen for gain in row.more["gains"]]
    no_worse = sum(gain >= 0 for gain in gains)
    return [
        Claim(
            "The mean gain of what plans recommend is positive", bool(gains and np.mean(gains) > 0), "ours"
        ),
        Claim(
            "At least nine tenths of the recommended runs end no worse than tuned local models",
            bool(gains) and no_worse >= 0.9 * len(gains),
            "ours",
        ),
    ]


def picture(result: Result) -> Figure:
    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for row in result.rows:
            if row.more.get("expected") is None:
                continue
            shown = 100 * row.more["expected"], 100 * row.ours
            axes.plot(
                *shown, "o", color="C0" if row.more["run"] else "C1", mfc=None if row.more["run"] else "none"
            )
        axes.axhline(0, color="0.7", lw=0.8, zorder=0)
        axes.set_xlabel("expected gain, %")
        axes.set_ylabel("gain, %")
        names = (("recommended", "C0", "C0"), ("refused", "C1", "none"))
        handles = [Line2D([], [], ls="", marker="o", color=c, mfc=f, label=w) for w, c, f in names]
        axes.legend(handles=handles)

    return draw(5.5, 4.0, paint)


def story(result: Result) -> str:
    return "; ".join(f"{name}: {value}" for name, value in _counts(list(result.rows))) + "."


def _counts(rows: list[Row]) -> list[tuple[str, str]]:
    """Over some kinds: how many are recommended, what they gain, which lost, which were missed."""
    chosen = [row for row in rows if row.more["run"]]
    gains = [gain for row in chosen for gain in row.more["gains"]]
    lost = [row for row in chosen if row.ours < 0]
    missed = [row for row in rows if not row.more["run"] and row.ours >= MISSED]
    no_worse = sum(gain >= 0 for gain in gains)
    return [
        ("kinds", str(len(rows))),
        ("recommended", str(len(chosen))),
        ("mean gain", f"{np.mean(gains):+.2%}" if gains else "–"),
        ("worst run", f"{min(gains):+.2%}" if gains else "–"),
        ("runs no worse than local", f"{no_worse} of {len(gains)}"),
        ("kinds that lost", str(len(lost))),
        ("wrongly refused", str(len(missed))),
    ]


def table(result: Result) -> str:
    """As it stands in docs/planner.md."""
    groups = dict.fromkeys(row.more["group"] for row in result.rows)
    named = [(name, [row for row in result.rows if row.more["group"] == name]) for name in groups]
    heads = [head for head, _ in _counts(list(result.rows))]
    lines = [_line("populations", *heads), _line(*("---",) * (1 + len(heads)))]
    lines += [_line(name, *(value for _, value in _counts(rows))) for name, rows in named]
    lines += ["", _line("kind", "best candidate", "advice", "expected", "gain", ""), _line(*("---",) * 6)]
    return "\n".join([*lines, *(_kind_line(row) for row in result.rows)])


def _kind_line(row: Row) -> str:
    is_run = row.more["run"]
    verdict = "lost" if is_run and row.ours < 0 else "missed" if not is_run and row.ours >= MISSED else ""
    advice = "run" if is_run else "keep local"
    expected = row.more.get("expected")
    shown = "refused beforehand" if expected is None else f"{expected:+.2%}"
    return _line(row.more["kind"], row.what, advice, shown, f"{row.ours:+.2%}", verdict)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
