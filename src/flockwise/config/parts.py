"""Sections and the parts that they describe: the fields of a dataclass are the keys of its section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin

from flockwise.checks import Choice, Configured, Key, Part, field_types
from flockwise.objective import LOSSES, Objective
from flockwise.privacy.budget import Budgets

if TYPE_CHECKING:
    from flockwise.config.schema import Config

LOSS = Part(LOSSES, "loss")


class Setting(NamedTuple):
    """One key: the field that it sets, what it may be, its default (... for none), and the part it names."""

    key: str
    field: str
    annotation: Any
    default: Any
    part: Part | None = None

    def chosen(self, values: Mapping[str, Any]) -> Any:
        """The registered part that these values name; None if there is none of that name."""
        name = values.get(self.key, self.default)
        known = self.part is not None and isinstance(name, str) and name in self.part.registry
        return self.part.registry[name] if self.part is not None and known else None


def settings_of(kind: type[Any], leave_out: frozenset[str] = frozenset()) -> Iterator[Setting]:
    """The keys of a dataclass, or of a NamedTuple such as a loss."""
    defaults = getattr(kind, "_field_defaults", None)
    if defaults is not None:
        for name, annotation in field_types(kind).items():
            yield Setting(name, name, annotation, defaults.get(name, ...))
        return
    for field in fields(kind):
        annotation = field_types(kind)[field.name]
        notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        note: dict[type, Any] = {type(one): one for one in notes}
        if Configured in note:
            annotation = note[Configured].annotation
        if field.name in leave_out or annotation is None:
            continue
        default: Any = ... if field.default is MISSING else field.default
        if Part in note and Configured in note:
            words = (*get_args(annotation), *note[Part].registry.names)
            yield Setting(note[Part].key, field.name, Literal[words], default, note[Part])  # type: ignore[valid-type]
            continue
        if Part in note:
            yield part_setting(note[Part], field.name, field.default_factory().name)  # type: ignore[misc]
            continue
        if Choice in note:
            names: Any = Literal[note[Choice].registry.names]  # type: ignore[valid-type]
            annotation = names | None if default is None else names
        yield Setting(note[Key].name if Key in note else field.name, field.name, annotation, default)


def part_setting(part: Part, field: str, default: str) -> Setting:
    """The key that names a registered part."""
    return Setting(part.key, field, Literal[part.registry.names], default, part)  # type: ignore[valid-type]


def with_parts(settings: Iterator[Setting], values: Mapping[str, Any]) -> Iterator[Setting]:
    """These keys, and those of the parts that the values name."""
    for setting in settings:
        yield setting
        part = setting.chosen(values)
        if part is not None:
            yield from settings_of(part)


def keys_elsewhere(settings: Iterator[Setting]) -> dict[str, str]:
    """The keys of all parts that could be named, and how they are named."""
    named = [(one.key, part) for one in settings if one.part is not None for part in one.part.registry]
    found: dict[str, str] = {}
    for key, part in named:
        for setting in settings_of(part):
            found.setdefault(setting.key, f'{key} = "{part.name}"')
    return found


def arguments(
    kind: type[Any], values: Mapping[str, Any], leave_out: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The values of a section as arguments of its dataclass; registered parts are made."""
    found: dict[str, Any] = {}
    for setting in settings_of(kind, leave_out):
        part = setting.chosen(values)
        if part is not None:
            found[setting.field] = part(**arguments(part, values))
        elif setting.key in values:
            found[setting.field] = values[setting.key]
    return found


def objective_of(config: Config, tradeoff: float) -> Objective:
    """The objective as configured, with this μ."""
    values = dict(config.objective)
    loss = LOSSES[values["loss"]]
    target_range = values["target_range"]
    return Objective(
        loss(**arguments(loss, values)),
        tradeoff=tradeoff,
        l2=values["l2"],
        max_samples=values["max_samples"],
        feature_bound=values["feature_bound"],
        target_range=None if target_range is None else tuple(target_range),
    )


def method_of(config: Config, budgets: Budgets | None) -> Any:
    """The method as configured, with everyone's budget where it is private."""
    variant, section = config.variant, dict(config.method)
    assert variant is not None
    values = dict(variant.preset) | arguments(variant.kind, section, frozenset({"privacy", *variant.preset}))
    if budgets is not None and variant.privacy is not None:
        spending = spending_of(variant)
        if spending is None:
            values["privacy"] = budgets
        else:
            # Fields that are also stops stand in [method].
            stops = {field.name: section[field.name] for field in fields(spending) if field.name in section}
            values["privacy"] = spending(
                budgets=budgets, **stops, **arguments(spending, dict(config.privacy))
            )
    return variant.kind(**values)


def spending_of(variant: Any) -> Any:
    """The dataclass of a method's privacy field; None if it takes just budgets, or has no private form."""
    options = (variant.privacy, *get_args(variant.privacy))
    return next((one for one in options if "budgets" in getattr(one, "__dataclass_fields__", ())), None)
