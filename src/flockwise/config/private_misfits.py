"""What a private run refuses, and what only a private run has: one line each, like other misfits."""

from __future__ import annotations

from collections.abc import Iterator

from flockwise.config.sections import (
    BaselineMethod,
    Data,
    DescentMethod,
    DifferentialPrivacy,
    LowPassMethod,
    Method,
    NoPrivacy,
    Objective,
    PlannedMethod,
    Privacy,
    ReleaseOnceMethod,
    SyntheticData,
)

# Which accountants are proven for which noise.
ACCOUNTANTS_OF = {
    "gaussian": ("gdp", "zcdp", "pld", "remark"),
    "laplace": ("basic", "theorem1", "kov", "pld", "zcdp"),
    "knorm": ("basic", "theorem1", "kov", "zcdp"),
}


def private_misfits(data: Data, objective: Objective, method: Method, privacy: Privacy) -> Iterator[str]:
    """What does not fit the kind of privacy, in the order of the file."""
    if isinstance(privacy, NoPrivacy):
        yield from _without_privacy(objective, method)
        return
    if not isinstance(method, PlannedMethod):
        yield from _in_objective(objective, data)
    match method:
        case PlannedMethod():
            yield from _in_planned(objective)
        case DescentMethod():
            yield from _in_descent(method, objective, privacy)
        case ReleaseOnceMethod():
            yield from _in_release_once(method, objective)
        case LowPassMethod():
            yield from _in_lowpass(method, objective)
        case BaselineMethod(name="local"):
            pass
        case _:
            yield (
                f'method.name: got "{method.name}"; it has no private form: use "cd", "release_once" or '
                '"lowpass", or "local", which sends nothing'
            )
    yield from _in_budget(privacy)
    if isinstance(method, DescentMethod):
        yield from _in_updates(privacy)
    else:
        # A plan takes it as the public word on how large residuals are.
        is_scale = isinstance(method, PlannedMethod) and objective.loss == "quadratic"
        yield from _only_for_updates(privacy, () if is_scale else ("clip_norm",))


def needs_delta(mechanism: str, accountant: str | None) -> str | None:
    """Why δ = 0 cannot be had, in words; None if it can."""
    if mechanism == "gaussian":
        return 'gaussian noise needs a delta above 0: use mechanism = "laplace"'
    if accountant == "zcdp":
        return 'accountant = "zcdp" needs a delta above 0: use "basic"'
    return None


def _without_privacy(objective: Objective, method: Method) -> Iterator[str]:
    if objective.feature_bound is not None:
        yield 'objective.feature_bound: only for privacy.kind = "dp"; leave it out'
    if isinstance(method, ReleaseOnceMethod | LowPassMethod):
        yield (
            f'method.name: got "{method.name}"; it releases within a budget: write privacy.kind = "dp", '
            'or use name = "propagation"'
        )
    if isinstance(method, PlannedMethod):
        yield (
            'method.name: missing or "auto"; plans are made for private runs: write privacy.kind = "dp", '
            'or name a method, for instance "cd"'
        )


def _in_objective(objective: Objective, data: Data) -> Iterator[str]:
    if objective.tradeoff != "auto":
        return
    if not isinstance(data, SyntheticData):
        yield (
            'objective.tradeoff: got "auto"; a private run would tune it on private data: '
            "write a number, and choose it on public or generated data"
        )
    elif objective.validation_share is not None:
        yield (
            "objective.validation_share: a private run chooses tradeoff on other generated instances; "
            "leave it out"
        )


def _in_planned(objective: Objective) -> Iterator[str]:
    if objective.validation_share is not None:
        yield "objective.validation_share: a plan chooses tradeoff on generated twins; leave it out"


def _in_descent(method: DescentMethod, objective: Objective, privacy: DifferentialPrivacy) -> Iterator[str]:
    if objective.feature_bound is None:
        yield (
            'objective.feature_bound: missing; private "cd" takes its step sizes from a public bound on the '
            "length of every sample"
        )
    # With no stop at all, the line on missing stops says it already.
    if method.updates is None and (method.ticks or method.time or method.tolerance):
        yield "method.updates: missing; say for how many updates of each agent the budget is planned"
    if method.tolerance is not None:
        yield (
            f"method.tolerance: got {method.tolerance}; when a private run stops would tell of the data: "
            "stop by updates, ticks or time"
        )
    if method.start == "local":
        yield (
            'method.start: got "local"; a private run would give the local models away without noise: '
            'use "zeros"'
        )
    if objective.loss == "quadratic" and privacy.clip_norm is None:
        yield (
            'privacy.clip_norm: missing; loss = "quadratic" does not bound the gradient of a sample: '
            'give a bound to clip it to, or use loss = "huber"'
        )


def _in_release_once(method: ReleaseOnceMethod, objective: Objective) -> Iterator[str]:
    if method.kind == "mean":
        yield from _in_mean(objective)
        return
    if objective.loss == "quadratic":
        yield (
            f'objective.loss: got "quadratic"; kind = "{method.kind}" needs a bounded gradient: use "huber"'
        )
    if objective.loss == "softmax" and method.kind == "objective":
        yield 'method.kind: got "objective"; it is for losses of one score: use kind = "output"'
    yield from _in_released_model(method, objective)


def _in_lowpass(method: LowPassMethod, objective: Objective) -> Iterator[str]:
    needs_width = method.kind == "output" and objective.loss == "quadratic"
    if method.width is not None and not needs_width:
        yield 'method.width: only for kind = "output" with objective.loss = "quadratic"; leave it out'
    if method.kind == "mean":
        yield from _in_mean(objective)
        return
    if objective.loss not in ("quadratic", "huber"):
        yield (
            'method.kind: got "output"; it is for losses of a residual, and '
            f'loss = "{objective.loss}" is not: use kind = "mean", or name = "release_once"'
        )
    if needs_width and method.width is None:
        yield (
            'method.width: missing; loss = "quadratic" does not bound the gradient of a sample: say from '
            "which residual on the released model takes it as absolute (Huber)"
        )
    yield from _in_released_model(method, objective)


def _in_mean(objective: Objective) -> Iterator[str]:
    if objective.loss not in ("logistic", "capped_logistic"):
        yield (
            f'method.kind: got "mean"; it is for two classes, and loss = "{objective.loss}" is not: '
            'use kind = "output"'
        )


def _in_released_model(method: ReleaseOnceMethod | LowPassMethod, objective: Objective) -> Iterator[str]:
    if not objective.l2:
        found = "missing" if objective.l2 is None else f"got {objective.l2}"
        yield (
            f'objective.l2: {found}; kind = "{method.kind}" needs one number above 0, the same for all agents'
        )
    if objective.feature_bound is None:
        yield (
            f'objective.feature_bound: missing; kind = "{method.kind}" needs a public bound on the length of '
            "every sample"
        )


def _in_budget(privacy: DifferentialPrivacy) -> Iterator[str]:
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
    if privacy.delta == 0 and (why := needs_delta(privacy.mechanism, privacy.accountant)):
        yield f"privacy.delta: got {privacy.delta}; {why}"


def _in_updates(privacy: DifferentialPrivacy) -> Iterator[str]:
    proven = ACCOUNTANTS_OF[privacy.mechanism]
    if privacy.accountant is not None and privacy.accountant not in proven:
        allowed = ", ".join(f'"{name}"' for name in proven)
        yield (
            f'privacy.accountant: got "{privacy.accountant}"; allowed for mechanism = "{privacy.mechanism}": '
            f"{allowed}"
        )
    if privacy.allocation == "late":
        if privacy.accountant == "kov":
            yield (
                'privacy.accountant: got "kov"; it composes equal updates only: use allocation = "uniform", '
                'or "theorem1"'
            )
        if privacy.contraction is None:
            yield (
                'privacy.contraction: missing; allocation = "late" needs what is left of the error after one '
                "update of each agent, a number above 0 and at most 1"
            )
    elif privacy.contraction is not None:
        yield 'privacy.contraction: only for allocation = "late"; leave it out'


def _only_for_updates(privacy: DifferentialPrivacy, others: tuple[str, ...]) -> Iterator[str]:
    """Keys that say how a budget is spread over noisy gradients, beside a method that sends none."""
    if privacy.mechanism != "gaussian":
        yield f'privacy.mechanism: got "{privacy.mechanism}"; only method.name = "cd" has it, leave it out'
    for key in ("accountant", "contraction", *others):
        if getattr(privacy, key) is not None:
            yield f'privacy.{key}: only for method.name = "cd"; leave it out'
    if privacy.allocation != "uniform":
        yield f'privacy.allocation: got "{privacy.allocation}"; only for method.name = "cd", leave it out'
