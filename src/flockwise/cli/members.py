"""From a configured experiment to the agents of a real network."""

from __future__ import annotations

from flockwise.config import Config, Experiment
from flockwise.config.sections import DescentMethod
from flockwise.errors import ConfigError
from flockwise.method import CoordinateDescent, LowPass, ReleaseOnce
from flockwise.method.point_mean import PointMean
from flockwise.method.private_updates import PrivateUpdates
from flockwise.method.release_once import PROPAGATION_TRADEOFF
from flockwise.method.released import budget_of_each
from flockwise.net.folder import OwnBudget
from flockwise.net.one_release import CLIP
from flockwise.net.setup import Member, free_addresses
from flockwise.net.task import Task
from flockwise.privacy.budget import Budget


def members_of(experiment: Experiment) -> tuple[list[Member], Task]:
    """Everyone's points, budget and address, and what they learn together."""
    config, problem = experiment.config, experiment.problem
    budgets, updates = _budgets(experiment)
    task = Task(
        loss=config.objective.loss,
        tradeoff=problem.tradeoff,
        max_samples=problem.sample_cap,
        privacy="none" if budgets is None else "dp",
        feature_bound=problem.feature_bound,
        l2=config.objective.l2,
        classes=config.objective.classes or 2,
        width=config.objective.width or 1.0,
        updates=updates,
        method=experiment.method.name,  # pyright: ignore[reportArgumentType]
        round_timeout=config.network.round_timeout,
        smoothing=_smoothing_of(experiment),
        leaks="" if budgets is None else "\n".join(problem.leaks),
    )
    addresses = _addresses(config, problem.n_agents)
    members = []
    for agent, name in enumerate(_names(experiment)):
        features, targets = problem.population.samples(agent)
        privacy = None if budgets is None else budgets[agent]
        members.append(Member(name, features, targets, privacy, addresses[agent]))
    return members, task


def _budgets(experiment: Experiment) -> tuple[list[OwnBudget] | None, int | None]:
    """What everyone may spend, None without privacy; and after how many updates they stop."""
    section, method = experiment.config.method, experiment.method
    if isinstance(method, ReleaseOnce | LowPass):
        return _of_one_release(experiment, method), 1
    if not isinstance(method, CoordinateDescent) or not isinstance(section, DescentMethod):
        raise ConfigError(
            "method.name: real agents run coordinate descent, release once or the low-pass protocol, got "
            f'{method.name!r}; write name = "cd", "release_once" or "lowpass"'
        )
    if section.start != "zeros":
        raise ConfigError(f'method.start: real agents start from "zeros", got {section.start!r}')
    if method.privacy is None:
        return None, section.updates
    return _of_updates(experiment, method.privacy), section.updates


def _of_one_release(experiment: Experiment, method: ReleaseOnce | LowPass) -> list[OwnBudget]:
    if not isinstance(method.kind, PointMean):
        raise ConfigError(
            f"method.kind: real agents release means of two classes, got {method.kind.name!r}; write "
            'kind = "mean"'
        )
    return [
        OwnBudget(epsilon=budget.epsilon, delta=budget.delta, updates=1, clip=CLIP)
        for budget in budget_of_each(experiment.problem, method.budgets)
    ]


def _of_updates(experiment: Experiment, privacy: PrivateUpdates) -> list[OwnBudget]:
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


def _smoothing_of(experiment: Experiment) -> float:
    """μ of the propagation after one release; other methods have no use for it."""
    method = experiment.method
    return method.tradeoff if isinstance(method, ReleaseOnce) else PROPAGATION_TRADEOFF
