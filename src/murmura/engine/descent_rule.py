"""Eq. (4) for the compiled sweeps: an agent may fire before all its neighbors do."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.extending import overload
from numpy.typing import NDArray

from murmura.engine.links import Direct, exchange, gather, has_room
from murmura.engine.mail import Mail
from murmura.engine.sweeps import Network, comes_first_around, fire, may_fire
from murmura.objective.kernels import REORDER, AnchorTerm, DataTerm, add_local_gradient


class DescentRule(NamedTuple):
    """Local terms, network, α_i and μ·c_i of Eq. (4), and everyone's model."""

    term: DataTerm | AnchorTerm
    network: Network
    link: Direct | Mail
    step_sizes: NDArray[Any]
    pulls: NDArray[Any]
    models: NDArray[Any]


@overload(may_fire)
def _descent_may_fire(rule, agent, clocks):
    if rule.instance_class is not DescentRule:
        return None

    def comes_first(rule, agent, clocks):
        network = rule.network
        return comes_first_around(agent, agent, network, clocks.next_ticks) and has_room(
            rule.link, network, agent
        )

    return comes_first


@overload(fire, jit_options={"fastmath": REORDER})
def _descent_fire(rule, agent, following, clocks, vectors):
    if rule.instance_class is not DescentRule:
        return None

    def descend(rule, agent, following, clocks, vectors):
        network, link, models = rule.network, rule.link, rule.models
        model, new_model, gradient = models[agent], vectors[0], vectors[1]
        gather(link, network, agent, following, clocks, models, new_model)
        add_local_gradient(rule.term, agent, model, gradient, following)
        step, pull = rule.step_sizes[agent], rule.pulls[agent]
        for d in range(model.shape[0]):
            # The old model stays until exchange() has handed it to those who still need it.
            new_model[d] = model[d] + step * (new_model[d] - model[d] - pull * gradient[d])
        exchange(link, network, agent, clocks, models, new_model)

    return descend
