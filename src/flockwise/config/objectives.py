"""The [objective] section → the problem, and the choice of its trade-off μ."""

from __future__ import annotations

from flockwise.config.graphs import build_graph
from flockwise.config.samples import Samples, load_samples, validation_samples
from flockwise.config.schema import Config
from flockwise.config.sections import DifferentialPrivacy, SyntheticData
from flockwise.data import Population
from flockwise.objective import Problem, loss_by_name
from flockwise.results.tuning import TradeoffChoice, choose_tradeoff

# tradeoff = "auto" tries these; the optimum is flat, so that factors of 2 are fine enough.
TRADEOFFS = tuple(2.0**power for power in range(-4, 7))
VALIDATION_SHARE = 0.2
TWINS = 5
# Far from the seeds that anyone compares, so that no instance is ever chosen by and judged on.
TWIN_SEEDS = 1_000_000
TWIN_TEST_SAMPLES = 100


def build_problem(config: Config, samples: Samples, tradeoff: float) -> Problem:
    """Population, graph and objective."""
    section = config.objective
    loss = loss_by_name(section.loss, classes=section.classes or 2, width=section.width or 1.0)
    return Problem(
        samples.train,
        build_graph(config, samples, loss),
        loss,
        tradeoff=tradeoff,
        l2=section.l2,
        max_samples=section.max_samples,
        # A private step must not tell of the data by its size.
        smoothness="public" if section.feature_bound is not None else "exact",
        feature_bound=section.feature_bound,
        derived=samples.derived,
    )


def tuned_tradeoff(config: Config, samples: Samples) -> tuple[TradeoffChoice, str]:
    """The best μ, and in words what it was judged by: never the test samples."""
    if isinstance(config.privacy, DifferentialPrivacy):
        trials = [_twin(config, number) for number in range(TWINS)]
        words = (
            f"Mean over agents and {TWINS} other instances of the task, generated with other seeds: nothing "
            "was chosen on the data of this run."
        )
    else:
        trials = [_held_out(config, samples)]
        words = (
            "Mean over agents on a part of the training samples that was held out for this choice; the test "
            "samples have no part in it."
        )
    return choose_tradeoff(trials, TRADEOFFS), words


def _twin(config: Config, number: int) -> tuple[Problem, Population]:
    """Another instance of the generated task; a private run may be tuned on it as on any public data."""
    assert isinstance(config.data, SyntheticData)
    data = config.data.model_copy(update={"test_samples": max(config.data.test_samples, TWIN_TEST_SAMPLES)})
    seed = (config.seed + TWIN_SEEDS * (number + 1)) % 2**64
    twin = config.model_copy(update={"seed": seed, "data": data})
    samples = load_samples(data, seed, config.objective.feature_bound)
    assert samples.test is not None
    return build_problem(twin, samples, TRADEOFFS[0]), samples.test


def _held_out(config: Config, samples: Samples) -> tuple[Problem, Population]:
    """A part of the training samples; features and graphs are made without that part."""
    share = config.objective.validation_share or VALIDATION_SHARE
    inner = validation_samples(config.data, samples, share, config.seed)
    assert inner.test is not None
    return build_problem(config, inner, TRADEOFFS[0]), inner.test
