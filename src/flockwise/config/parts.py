"""Sections → the parts that they describe: the objective and the method."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from flockwise.config.generate import arguments, settings_of_tuple
from flockwise.config.sections import privacy_class
from flockwise.objective import LOSSES, Loss, Objective
from flockwise.privacy.budget import Budgets

if TYPE_CHECKING:
    from flockwise.config.schema import Config


def loss_of(config: Config) -> Loss:
    kind = LOSSES[config.objective.loss]
    given = {s.key: getattr(config.objective, s.key) for s in settings_of_tuple(kind)}
    return kind(**{key: value for key, value in given.items() if value is not None})


def objective_of(config: Config, tradeoff: float) -> Objective:
    section = config.objective
    return Objective(
        loss_of(config),
        tradeoff=tradeoff,
        l2=section.l2,
        max_samples=section.max_samples,
        feature_bound=section.feature_bound,
        target_range=None if section.target_range is None else tuple(section.target_range),
    )


def method_of(config: Config, budgets: Budgets | None) -> Any:
    """The method as configured, with everyone's budget where it is private."""
    variant = config.variant
    assert variant is not None
    taken = frozenset({"privacy", *variant.preset})
    values = dict(variant.preset) | arguments(variant.kind, dict(config.method), taken)
    if budgets is not None and variant.privacy is not None:
        values["privacy"] = _privacy_of(config, privacy_class(variant), budgets)
    return variant.kind(**values)


def _privacy_of(config: Config, kind: type[Any] | None, budgets: Budgets) -> Any:
    """Just the budgets, or with them how they are spread; what is also a stop stands in [method]."""
    if kind is None:
        return budgets
    stops = {
        field.name: getattr(config.method, field.name)
        for field in fields(kind)
        if field.name in type(config.method).model_fields
    }
    return kind(budgets=budgets, **stops, **arguments(kind, dict(config.privacy)))
