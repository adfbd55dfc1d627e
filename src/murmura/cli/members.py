"""From a configured experiment to the agents of a real network."""

from __future__ import annotations

from murmura.config import Config, Experiment
from murmura.config.sections import DescentMethod
from murmura.errors import ConfigError
from murmura.method import CoordinateDescent
from murmura.method.private_updates import PrivateUpdates
from murmura.method.released import budget_of_each
from murmura.net.folder import OwnBudget
from murmura.net.setup import Member, free_addresses
from murmura.net.task import Task
from murmura.privacy.budget import Budget


def members_of(experiment: Experiment) -> tuple[list[Member], Task]:
    """Everyone's points, budget and address, and what they learn together."""
    config, problem = experiment.config, experiment.problem
    method = experiment.method
    if not isinstance(method, CoordinateDescent) or not isinstance(config.method, DescentMethod):
        raise ConfigError(
            f'method.name: real agents run coordinate descent, got {method.name!r}; write name = "cd"'
        )
    if config.method.start != "zeros":
        raise ConfigError(f'method.start: real agents start from "zeros", got {config.method.start!r}')
    task = Task(
        loss=config.objective.loss,
        tradeoff=problem.tradeoff,
        max_samples=problem.sample_cap,
        privacy="none" if method.privacy is None else "dp",
        feature_bound=problem.feature_bound,
        l2=config.objective.l2,
        classes=config.objective.classes or 2,
        width=config.objective.width or 1.0,
        updates=config.method.updates,
        leaks="" if method.privacy is None else "\n".join(problem.leaks),
    )
    budgets = [None] * problem.n_agents if method.privacy is None else _budgets(experiment, method.privacy)
    addresses = _addresses(config, problem.n_agents)
    members = []
    for agent, name in enumerate(_names(experiment)):
        features, targets = problem.population.samples(agent)
        members.append(Member(name, features, targets, budgets[agent], addresses[agent]))
    return members, task


def _budgets(experiment: Experiment, privacy: PrivateUpdates) -> list[OwnBudget | None]:
    if privacy.mechanism == "knorm":
        raise ConfigError(
            'privacy.mechanism: there is no integer K-norm noise; real agents take "gaussian" or "laplace"'
        )
    if privacy.costs is not None:
        raise ConfigError('privacy.allocation: real agents spend evenly; write allocation = "uniform"')

    def own(budget: Budget) -> OwnBudget:
        return OwnBudget(
            epsilon=budget.epsilon,
            delta=budget.delta,
            updates=privacy.updates,
            clip=privacy.clip,
            mechanism=privacy.mechanism,  # pyright: ignore[reportArgumentType]
        )

    return [own(budget) for budget in budget_of_each(experiment.problem, privacy.budgets)]


def _addresses(config: Config, count: int) -> list[str]:
    section = config.network
    if section.port is None:
        return free_addresses(section.listen, count)
    return [f"{section.listen}:{section.port + agent}" for agent in range(count)]


def _names(experiment: Experiment) -> list[str]:
    """Numbers get a word before them, so that a folder tells what it is."""
    names = [str(name) for name in experiment.train.agent_names]
    return [f"agent{name}" if name.isdigit() else name for name in names]
