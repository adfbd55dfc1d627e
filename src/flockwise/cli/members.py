"""From a configured experiment to the agents of a real network."""

from __future__ import annotations

from dataclasses import replace

from flockwise.config import Experiment
from flockwise.deploy.folder import OwnBudget
from flockwise.deploy.settings import MAGNITUDE_BOUND, NetworkSettings, magnitude_bound
from flockwise.deploy.setup import Member, free_addresses
from flockwise.errors import ConfigError
from flockwise.method.base import Deployment, deployment_of
from flockwise.net.wire import PrivacyLabel
from flockwise.privacy.schedule import distinct_budgets


def members_of(experiment: Experiment) -> tuple[list[Member], NetworkSettings]:
    """Every agent's samples, budget and address, and the settings that they share."""
    config, problem = experiment.config, experiment.problem
    if config.is_planned and not hasattr(experiment.method, "deployment"):
        raise ConfigError(
            f'[method]: missing, and the plan chose "{experiment.method.name}", which real agents do '
            'not run; name one that they run: "cd", "release_once" or "lowpass"'
        )
    deployment = deployment_of(experiment.method, problem, experiment.stops.get("updates"))
    is_private = deployment.budgets is not None
    objective = replace(problem.objective, max_samples=problem.sample_cap)
    label: PrivacyLabel = "dp" if is_private else "none"
    converses = deployment.protocol is not None
    settings = NetworkSettings(
        objective,
        label,
        updates=deployment.updates,
        neighbors=deployment.neighbors,
        statistic=deployment.statistic,
        protocol=deployment.protocol,
        magnitude_bound=MAGNITUDE_BOUND if converses else magnitude_bound(objective, label),
        round_timeout=config.network.round_timeout,
        origins=tuple(one for one in problem.origins if is_private and one.status != "public"),
        feature_names=tuple(problem.population.feature_names),
        has_intercept=problem.population.has_intercept,
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
