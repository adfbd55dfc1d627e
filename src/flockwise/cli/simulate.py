"""`flockwise simulate`: a configured run on the user's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import flockwise
from flockwise.cli.console import INTERRUPTED, output_folder, progress_bar, say, step, stop_on_interrupt
from flockwise.cli.output import show_report
from flockwise.cli.planning import planned
from flockwise.config import Config, Experiment, build
from flockwise.engine import simulate as run_method
from flockwise.errors import ConfigError, ResumeError
from flockwise.method import Global, Local
from flockwise.report import Comparison, Page
from flockwise.results.trajectory import Trajectory

SAVED_RUN = "run.npz"


def simulate(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="What to run; see docs/configuration.md.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="The folder for run.npz, models.parquet, metrics.json, report.html and the pictures."
        ),
    ],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run saved in --out.")] = False,
    baselines: Annotated[
        bool, typer.Option(help="Also solve the local and the global models, to compare with.")
    ] = True,
) -> None:
    """Run a method on your data. Ctrl-C saves the run at the next barrier; --resume goes on from there."""
    settings = Config.read(config)
    folder = output_folder(out)
    saved = _saved_run(folder / SAVED_RUN, resume)
    if settings.is_planned:
        experiment = planned(settings, folder)
    else:
        with step("preparing data, graph and objective"):
            experiment = build(settings)
    words = f"running {experiment.method.name}"
    with stop_on_interrupt() as stop_wanted, progress_bar(words, "ticks") as progress:
        run = experiment.simulate(resume=saved, progress=progress, should_stop=stop_wanted)
    run.save(folder / SAVED_RUN)
    if run.stopped == "interrupted":
        say(f"Saved after {run.final.ticks:,} ticks. Go on with:")
        say(f"    flockwise simulate {config} --out {out} --resume")
        raise typer.Exit(INTERRUPTED)
    run.to_parquet(folder / "models.parquet", which=None if run.own_models is None else "released")
    if run.own_models is not None:
        run.to_parquet(folder / "own_models.parquet", which="own")
    comparison = Comparison.of(experiment.problem, *_baselines(experiment, wanted=baselines), run)
    page = Page(
        title=f"{config.stem}: {experiment.problem.n_agents:,} agents learn a model each",
        comparison=comparison,
        data_description=experiment.samples.description,
        settings=experiment.config.dump(),
        version=flockwise.__version__,
        choice=experiment.choice,
        choice_description=experiment.choice_description,
    )
    show_report(folder, page, settings.seed, experiment.samples.targets)


def _saved_run(file: Path, resume: bool) -> Trajectory | None:
    """The run to resume, if one is asked for. Otherwise a run that waits to be resumed is not overwritten."""
    if resume and not file.is_file():
        raise ResumeError(f"{file}: there is no saved run to resume; start one without --resume")
    if resume:
        return Trajectory.load(file)
    try:
        is_waiting = file.is_file() and Trajectory.load(file).stopped == "interrupted"
    except ResumeError:  # nothing that could be resumed
        return None
    if is_waiting:
        raise ConfigError(
            f"{file}: holds an interrupted run; go on with it by --resume, or name another folder"
        )
    return None


def _baselines(experiment: Experiment, *, wanted: bool) -> list[Trajectory]:
    others = [method for method in (Local(), Global()) if type(method) is not type(experiment.method)]
    if not wanted:
        return []
    graph = experiment.problem.graph
    if graph is None or not graph.n_edges:
        say("There are no edges, so no agent has a say in one model for all: global is left out.")
        others = [method for method in others if not method.needs_graph]
    if not others:
        return []
    with step("solving the baselines: " + ", ".join(method.name for method in others)):
        return [run_method(experiment.problem, method, test=experiment.test) for method in others]
