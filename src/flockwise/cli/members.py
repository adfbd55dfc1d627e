"""From a configured experiment to the agents of a real network."""

from __future__ import annotations

from dataclasses import replace

from flockwise.config import Experiment
from flockwise.method.base import Deployment, deployment_of
from flockwise.net.folder import OwnBudget
from flockwise.net.settings import NetworkSettings
from flockwise.net.setup import Member, free_addresses
from flockwise.privacy.schedule import distinct_budgets


def members_of(experiment: Experiment) -> tuple[list[Member], NetworkSettings]:
    """Every agent's samples, budget and address, and the settings that they share."""
    config, problem = experiment.config, experiment.problem
    deployment = deployment_of(experiment.method, problem, experiment.stops.get("updates"))
    is_private = deployment.budgets is not None
    settings = NetworkSettings(
        replace(problem.objective, max_samples=problem.sample_cap),
        privacy="dp" if is_private else "none",
        updates=deployment.updates,
        statistic=deployment.statistic,
        protocol=deployment.protocol,
        round_timeout=config.network.round_timeout,
        not_covered=tuple(one.words for one in problem.origins if is_private and not one.is_covered),
    )
    listen, port = config.network.listen, config.network.port
    if port is None:
        addresses = free_addresses(listen, problem.n_agents)
    else:
        addresses = [f"{listen}:{port + agent}" for agent in range(problem.n_agents)]
    budgets = _budgets(deployment, problem.n_agents)
    # Numbers get a word before them, so a folder says what it is.
    names = [f"agent{name}" if str(name).isdigit() else str(name) for name in experiment.train.agent_names]
    members = [
        Member(name, problem.population.samples(agent), budgets[agent], addresses[agent])
        for agent, name in enumerate(names)
    ]
    return members, settings


def _budgets(deployment: Deployment, n_agents: int) -> list[OwnBudget | None]:
    if deployment.budgets is None:
        return [None] * n_agents
    distinct, rows = distinct_budgets(deployment.budgets, n_agents)
    assert deployment.updates is not None
    shared = {"clip": deployment.clip, "mechanism": deployment.mechanism, "updates": deployment.updates}
    own = [OwnBudget(epsilon=budget.epsilon, delta=budget.delta, **shared) for budget in distinct]
    return [own[row] for row in rows]
