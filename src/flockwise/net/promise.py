"""What real agents guarantee, in full: from their own settings, and from what the authority signed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flockwise.net.folder import NoPrivacy, OwnBudget
from flockwise.net.releases import GROWTH_IS_PUBLIC
from flockwise.net.settings import NetworkSettings
from flockwise.privacy.guarantee import NOT_PRIVATE, USUALLY_PUBLIC, Guarantee
from flockwise.privacy.mechanisms import MECHANISMS

# What whoever watches a network sees in any case.
SEEN: Final = ("when an agent runs, and when it sends",)
BY_BATCHES: Final = (
    "Samples that arrived together have a budget of their own: no release uses those of two arrivals."
)


def promise(
    settings: NetworkSettings, privacies: Sequence[NoPrivacy | OwnBudget], *, secure: bool = True
) -> str:
    """Plain words, for agents of one network with these settings. secure: whether their noise is."""
    if settings.privacy == "none":
        return f"{NOT_PRIVATE.capitalize()}: models are sent as they are, and every message says so."
    budgets = [privacy for privacy in privacies if isinstance(privacy, OwnBudget)]
    if not budgets:
        return "No agent folder found here; each agent's guarantee is stated in its own folder."
    words = guarantee_of(settings, budgets, secure=secure).explain()
    return f"{words}\n{BY_BATCHES}" if any(own.growth == "batches" for own in budgets) else words


def guarantee_of(
    settings: NetworkSettings, budgets: Sequence[OwnBudget], *, secure: bool = True
) -> Guarantee:
    """Whatever an agent's samples grow to, its (ε, δ) holds for each of them."""
    kind = "secure discrete" if secure else "simulated"
    plans = [own.plan(on_grid=secure) for own in dict.fromkeys(budgets)]
    noises = sorted({f"{kind} {MECHANISMS[plan.mechanism].words}" for plan in plans})
    return Guarantee.of(
        (own.budget for own in budgets),
        mechanism=" and ".join(noises),
        accountant=" and ".join(sorted({plan.accountant for plan in plans})),
        plan=min(plans, key=lambda plan: plan.budget.epsilon),
        origins=settings.origins,
        public=(*USUALLY_PUBLIC, *GROWTH_IS_PUBLIC, *SEEN),
        simulated=not secure,
    )
