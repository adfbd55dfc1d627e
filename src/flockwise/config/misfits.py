"""Checks across sections: values that are right one by one and do not fit each other, in one line each.

Methods, losses and mechanisms say themselves what they need; here their words are put in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flockwise.config.parts import method_of, objective_of, spending_of
from flockwise.config.sections import CLOCKED, FolderData, MovieLensData, SyntheticData, TableData
from flockwise.errors import ConfigError, PrivacyError
from flockwise.method import METHODS
from flockwise.method.rules import Descent
from flockwise.objective import LOSSES
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import MECHANISMS, USUAL_MECHANISM

if TYPE_CHECKING:
    from flockwise.config.schema import Config

# Stands for budgets that are in a file, or need the data's size: no check here depends on it.
ANY_BUDGET = Budget(1.0, 1e-6)


def misfits(config: Config) -> list[str]:
    """What does not fit, in the order of the file."""
    lines = [
        *_in_data(config.data),
        *_in_graph(config.graph, config.data),
        *_in_objective(config),
        *_in_method(config),
        *_in_privacy(config),
        *_in_engine(config),
    ]
    return list(dict.fromkeys(lines))


def _in_data(data: Any) -> Iterator[str]:
    if not isinstance(data, SyntheticData):
        return
    if data.min_samples > data.max_samples:
        yield f"data.min_samples: got {data.min_samples}; allowed: at most max_samples, {data.max_samples}"
    if data.informative > data.dimension:
        yield f"data.informative: got {data.informative}; allowed: at most dimension, {data.dimension}"


def _in_graph(graph: Any, data: Any) -> Iterator[str]:
    origin = getattr(graph, "origin", None)
    if origin is None:
        return
    if origin == "targets" and not isinstance(data, SyntheticData):
        yield 'graph.from: got "targets"; true targets are known for data.source = "synthetic" only'
    if origin == "ratings" and not isinstance(data, MovieLensData):
        yield 'graph.from: got "ratings"; there are ratings for data.source = "movielens" only'
    if origin == "profiles" and isinstance(data, TableData | FolderData) and graph.file is None:
        yield "graph.file: missing; name the table of public profiles, one row per agent"
    for key in ("file", "columns", "agent"):
        if getattr(graph, key) is not None and not (origin == "profiles" and graph.file is not None):
            yield f'graph.{key}: only for from = "profiles" with a file; leave it out'


def _in_objective(config: Config) -> Iterator[str]:
    objective = config.objective
    if objective.validation_share is not None and objective.tradeoff != "auto":
        yield 'objective.validation_share: only for tradeoff = "auto"; leave it out'
    if config.is_private:
        yield from _in_private_objective(config)
    elif config.stays_in_files:
        if objective.feature_bound is None:
            yield "objective.feature_bound: missing; where shards read the samples, step sizes follow from it"
        if objective.tradeoff == "auto":
            yield 'objective.tradeoff: got "auto"; its choice takes all samples at once: write a number'
    elif objective.feature_bound is not None:
        yield 'objective.feature_bound: only for privacy.kind = "dp"; leave it out'


def _in_private_objective(config: Config) -> Iterator[str]:
    objective = config.objective
    if config.is_planned:
        if objective.validation_share is not None:
            yield "objective.validation_share: a plan chooses tradeoff on generated twins; leave it out"
    elif objective.tradeoff == "auto" and config.graph is not None:
        if not isinstance(config.data, SyntheticData):
            yield (
                'objective.tradeoff: got "auto"; a private run would tune it on private data: '
                "write a number, and choose it on public or generated data"
            )
        elif objective.validation_share is not None:
            yield (
                "objective.validation_share: a private run chooses tradeoff on other generated instances; "
                "leave it out"
            )


def _in_method(config: Config) -> Iterator[str]:
    variant, method = config.variant, config.method
    if variant is None:
        if not config.is_private:
            yield (
                'method.name: missing or "auto"; plans are made for private runs: write privacy.kind = "dp", '
                'or name a method, for instance "cd"'
            )
        return
    if getattr(variant.kind, "needs_graph", True) and config.graph is None:
        yield f'[graph]: missing; name = "{method.name}" needs neighbors'
    if not config.is_private and variant.needs_privacy:
        yield (
            f'method.name: got "{method.name}"; it releases within a budget: write privacy.kind = "dp", '
            'or use name = "propagation"'
        )
        return
    if config.is_private and variant.privacy is None and not _sends_nothing(variant):
        private = ", ".join(f'"{other.name}"' for other in METHODS if other.privacy is not None)
        quiet = " or ".join(f'"{other.name}"' for other in METHODS if _sends_nothing(other))
        yield (
            f'method.name: got "{method.name}"; it has no private form: use {private}, '
            f"or {quiet}, which sends nothing"
        )
        return
    yield from _in_stops(config)
    # Without updates there is no plan, and that has a line of its own.
    if not (config.is_private and spending_of(variant) is not None and method.updates is None):
        yield from _of_the_parts(config)


def _sends_nothing(variant: Any) -> bool:
    return getattr(variant.kind, "sends_nothing", False)


def _in_stops(config: Config) -> Iterator[str]:
    variant, method = config.variant, config.method
    if variant is None or variant.rule not in CLOCKED:
        return
    others = (method.ticks, method.time, method.tolerance)
    if method.updates is None and all(limit is None for limit in others):
        yield "method.updates: missing; say when to stop by updates, ticks, time or tolerance"
    if not config.is_private or spending_of(variant) is None:
        return
    if method.updates is None and any(limit is not None for limit in others):
        yield "method.updates: missing; say for how many updates of each agent the budget is planned"
    if method.tolerance is not None:
        yield (
            f"method.tolerance: got {method.tolerance}; when a private run stops would leak the data: "
            "stop by updates, ticks or time"
        )


def _of_the_parts(config: Config) -> Iterator[str]:
    """What method, statistic and noise have to say themselves."""
    try:
        objective = objective_of(config, tradeoff=1.0)
        method = method_of(config, ANY_BUDGET if config.is_private else None)
    except (ConfigError, PrivacyError, ValueError) as error:
        yield str(error)
        return
    yield from map(str, method.misfits(objective))


def _in_privacy(config: Config) -> Iterator[str]:
    if not config.is_private:
        return
    privacy = config.privacy
    if privacy.budgets is None and privacy.epsilon is None:
        yield "privacy.epsilon: missing; give one for all agents, or budgets, a table with one for each"
    if privacy.budgets is not None:
        if privacy.epsilon is not None:
            yield f"privacy.epsilon: got {privacy.epsilon} beside a table of budgets; leave one of them out"
        if privacy.delta is not None:
            yield (
                f"privacy.delta: got {privacy.delta} beside a table of budgets, which has one for each "
                "agent; leave it out"
            )
    if config.is_planned and privacy.clip_norm is not None and not _bounds_residuals(config):
        yield 'privacy.clip_norm: only for method.name = "cd"; leave it out'
    if privacy.delta == 0 and (why := needs_delta(privacy)):
        yield f"privacy.delta: got {privacy.delta}; {why}"


def _bounds_residuals(config: Config) -> bool:
    """Whether a clip says how large residuals are, as a plan needs to know for losses without a bound."""
    loss = LOSSES[config.objective.loss]
    return hasattr(loss, "bounded") and config.objective.feature_bound is not None


def needs_delta(privacy: Any) -> str | None:
    """Why δ = 0 cannot be had, in words; None if it can."""
    mechanism = getattr(privacy, "mechanism", USUAL_MECHANISM)
    if not MECHANISMS[mechanism].is_pure:
        chooses = hasattr(privacy, "mechanism")
        way = 'use mechanism = "laplace"' if chooses else "leave delta out for its default"
        return f"{mechanism} noise needs a delta above 0: {way}"
    name = getattr(privacy, "accountant", None)
    accountant = None if name is None else ACCOUNTANTS[name]
    if accountant is not None and accountant.least_delta > 0 and not accountant.takes_zero:
        return f'accountant = "{name}" needs a delta above 0: use "basic"'
    return None


def _in_engine(config: Config) -> Iterator[str]:
    variant = config.variant
    if variant is not None and variant.rule is Descent:
        return
    for key in ("delay", "loss", "offline_share"):
        if value := getattr(config.engine, key):
            name = config.method.name
            yield f'engine.{key}: got {value}; name = "{name}" needs an ideal network, leave it out'
    if not getattr(config.engine, "gather", True):
        yield f'engine.gather: got false; name = "{config.method.name}" has no shards, leave it out'
