"""What real agents guarantee, in full: from their own settings, and from what the authority signed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from flockwise.net.folder import NoPrivacy, OwnBudget
from flockwise.net.growth import PUBLIC
from flockwise.net.task import Task
from flockwise.privacy.guarantee import NOT_PRIVATE, USUALLY_PUBLIC, Guarantee, spans

# What whoever watches a network sees in any case.
SEEN: Final = ("when an agent runs, and when it sends",)
SECURE_NOISE: Final = {
    "gaussian": "secure discrete Gaussian noise",
    "laplace": "secure discrete Laplace noise",
}
BY_BATCHES: Final = (
    "Points that arrived together have a budget of their own: no release uses those of two arrivals."
)


def promise(task: Task, privacies: Sequence[NoPrivacy | OwnBudget]) -> str:
    """Plain words, for agents of one network with these settings."""
    if task.privacy == "none":
        return f"{NOT_PRIVATE.capitalize()}: models are sent as they are, and every message says so."
    budgets = [privacy for privacy in privacies if isinstance(privacy, OwnBudget)]
    if not budgets:
        return "Each agent's guarantee stands in its own settings, and none of them is here."
    words = guarantee_of(task, budgets).explain()
    return f"{words}\n{BY_BATCHES}" if any(own.growth == "batches" for own in budgets) else words


def guarantee_of(task: Task, budgets: Sequence[OwnBudget]) -> Guarantee:
    """Whatever an agent's points grow to, its (ε, δ) holds for each of them."""
    epsilon, delta = spans(own.budget for own in budgets)
    return Guarantee(
        mechanism=_listed(SECURE_NOISE[own.mechanism] for own in budgets),
        accountant=_listed(own.meter.accountant for own in budgets),
        epsilon=epsilon,
        delta=delta,
        public=(*USUALLY_PUBLIC, *PUBLIC, *SEEN),
        leaks=task.known_leaks,
        simulated=False,
    )


def _listed(names: Iterable[str]) -> str:
    return " and ".join(sorted(set(names)))
