"""Data, graph and objective → the problem, and the choice of its trade-off μ."""

from __future__ import annotations

from flockwise.config.graphs import build_graph
from flockwise.config.parts import objective_of
from flockwise.config.samples import TaskSamples, load_samples, validation_samples
from flockwise.config.schema import Config
from flockwise.config.sections import SyntheticData
from flockwise.data import Population
from flockwise.objective import Problem
from flockwise.results.tuning import TradeoffChoice, choose_tradeoff

# tradeoff = "auto" tries these; the optimum is flat, so factors of 2 are fine enough.
TRADEOFFS = tuple(2.0**power for power in range(-4, 7))
VALIDATION_SHARE = 0.2
TWINS = 5
# Far from the seeds that anyone compares, so no instance is ever chosen by and judged on.
TWIN_SEEDS = 1_000_000
TWIN_TEST_SAMPLES = 100


def build_problem(config: Config, samples: TaskSamples, tradeoff: float) -> Problem:
    """Population, graph and objective."""
    return Problem(samples.train, build_graph(config, samples), objective_of(config, tradeoff))


def tuned_tradeoff(config: Config, samples: TaskSamples) -> tuple[TradeoffChoice, str]:
    """The best μ, and in words what it was judged by: never the test samples."""
    if config.is_private:
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
    samples = load_samples(data, seed)
    assert samples.test is not None
    return build_problem(config.with_(seed=seed, data=data), samples, TRADEOFFS[0]), samples.test


def _held_out(config: Config, samples: TaskSamples) -> tuple[Problem, Population]:
    """A part of the training samples; features and graphs are made without that part."""
    share = config.objective.validation_share or VALIDATION_SHARE
    inner = validation_samples(config.data, samples, share, config.seed)
    assert inner.test is not None
    return build_problem(config, inner, TRADEOFFS[0]), inner.test
