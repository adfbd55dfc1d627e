"""Plans of configured runs: when one is made, what it is told, and what is run."""

import json

import pytest
from typer.testing import CliRunner

from flockwise.cli.app import app
from flockwise.cli.planning import planned
from flockwise.config import Config, build
from flockwise.config.experiment import facts_of, plan_of
from flockwise.errors import ConfigError, PrivacyError

RUN = {
    "data": {"source": "synthetic", "agents": 30, "dimension": 16, "min_samples": 20, "max_samples": 20},
    "graph": {"kind": "angular", "from": "targets"},
    "privacy": {"kind": "dp", "epsilon": 20.0, "delta": 0.001},
}
TOML = """
[data]
source = "synthetic"
agents = 12
dimension = 3
[graph]
kind = "random"
degree = 4
[privacy]
kind = "dp"
epsilon = 1.0
"""


def configured(**sections):
    return Config.parse(RUN | sections)


def refusal(**sections):
    with pytest.raises(ConfigError) as caught:
        configured(**sections)
    return str(caught.value)


def test_a_private_run_without_a_method_is_planned():
    assert configured().method.name == configured(method={"name": "auto"}).method.name == "auto"


def test_a_run_without_privacy_is_not_planned():
    assert refusal(privacy={"kind": "none"}) == (
        'method.name: missing or "auto"; plans are made for private runs: write privacy.kind = "dp", '
        'or name a method, for instance "cd"'
    )
    named = Config.parse(RUN | {"privacy": {"kind": "none"}, "method": {"name": "local"}})
    with pytest.raises(ConfigError, match=r"privacy\.kind: got \"none\"; a plan is for private runs"):
        plan_of(named)


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        (
            {"objective": {"validation_share": 0.3}},
            "objective.validation_share: a plan chooses tradeoff on generated twins; leave it out",
        ),
        (
            {"privacy": RUN["privacy"] | {"clip_norm": 1.0}},
            'privacy.clip_norm: only for method.name = "cd"; leave it out',
        ),
        (
            {"engine": {"delay": 1.0}},
            'engine.delay: got 1.0; name = "auto" needs an ideal network, leave it out',
        ),
    ],
)
def test_keys_that_a_plan_would_not_use_are_refused(sections, line):
    assert refusal(**sections) == line


def test_a_clip_says_how_large_residuals_are():
    config = Config.parse(
        RUN
        | {
            "objective": {"loss": "quadratic", "feature_bound": 2.0},
            "privacy": RUN["privacy"] | {"clip_norm": 6.0},
        }
    )
    problem = build(Config.parse(RUN | {"method": {"name": "local"}, "objective": {"tradeoff": 1.0}})).problem
    assert facts_of(config, problem).residual_scale == 1.5


@pytest.mark.paper
def test_a_good_plan_is_run():
    experiment = build(configured())
    assert experiment.plan is not None
    assert experiment.plan.chosen is not None
    assert experiment.method.name == experiment.plan.chosen.method.name
    run = experiment.simulate()
    assert run.guarantee is not None
    assert run.guarantee.epsilon == (20.0, 20.0)


@pytest.mark.paper
def test_without_hope_local_models_are_kept(tmp_path, capsys):
    file = tmp_path / "run.toml"
    file.write_text(TOML)
    experiment = planned(Config.read(file), tmp_path)
    assert experiment.method.name == "local"
    assert experiment.simulate().final.vectors == 0
    assert json.loads((tmp_path / "plan.json").read_text())["chosen"] is None
    assert "Keep your local models" in capsys.readouterr().err


@pytest.mark.paper
def test_the_command_shows_the_plan_and_writes_it(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(TOML)
    result = CliRunner().invoke(app, ["plan", "--problem", str(file), "--json", str(tmp_path / "plan.json")])
    assert result.exit_code == 0
    made = json.loads((tmp_path / "plan.json").read_text())
    assert all(row["candidate"] in result.stdout for group in made["groups"] for row in group["candidates"])
    assert made["advice"].startswith("Keep your local models: a run is worth it from")
    assert "The graph does not say who resembles whom: it links up to" in result.stderr
    assert made["advice"] in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --epsilon, --updates, --samples and --dimension, or --problem CONFIG.toml"),
        (("--problem", "run.toml", "--epsilon", "1"), "--epsilon: --problem takes it from run.toml"),
    ],
)
def test_the_two_kinds_of_plan_are_not_mixed(options, words):
    with pytest.raises(PrivacyError, match=words):
        CliRunner().invoke(app, ["plan", *options], catch_exceptions=False)
