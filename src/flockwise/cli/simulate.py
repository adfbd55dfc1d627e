"""`flockwise simulate`: a configured run on the user's own data."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

import flockwise
from flockwise.cli.console import (
    INTERRUPTED,
    Report,
    folder_for_results,
    progress_bar,
    say,
    say_error,
    step,
    stop_on_interrupt,
)
from flockwise.cli.output import show_report
from flockwise.cli.planning import plan_lines, planned
from flockwise.config import Config, Experiment, build
from flockwise.data import Population
from flockwise.engine import ENGINES, Checkpoint, RayEngine
from flockwise.engine import simulate as run_method
from flockwise.engine.checkpoint import MANIFEST, remove_checkpoint
from flockwise.engine.ray.progress import traffic_in_words
from flockwise.errors import ConfigError, ResumeError
from flockwise.files import write_whole
from flockwise.method.base import baselines_beside
from flockwise.report import Comparison, Page
from flockwise.results.trajectory import RECORD_FIELDS, Trajectory

SAVED_RUN = "run.npz"
# In it lies the rest of a run on a cluster whose driver was lost.
CHECKPOINTS = "checkpoints"
# Where shards write their agents' models, and the records of such a run.
MODELS, RECORDS = "models", "records.parquet"
# Of larger data (samples × features) the choice of a penalty would take longer than most runs.
MOST_TUNED = 5_000_000


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
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster to run on, host:port or auto; with engine ray.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="How many parts to cut the agents into; with engine ray.")
    ] = None,
) -> None:
    """Run a method on your data. Ctrl-C saves the run at the next barrier; --resume goes on from there."""
    settings = Config.read(config)
    with folder_for_results(out) as folder:
        saved = _saved_run(folder / SAVED_RUN, resume)
        shown = _ShardsShown()
        leaves_models = not getattr(settings.engine, "gather", True)
        if leaves_models and (folder / MODELS).exists() and not isinstance(saved, Checkpoint):
            raise ConfigError(f"{folder / MODELS}: holds the models of an earlier run; name another folder")
        engine = _ray_engine(settings.engine, folder, address, shards, shown)
        # Before the data are read.
        missing = (engine or ENGINES[settings.engine.name]).missing()
        if missing is not None:
            raise missing
        if settings.is_planned:
            experiment = planned(settings, folder)
        else:
            with step("preparing data, graph and objective"):
                experiment = build(settings)
        if leaves_models and (folder / MODELS).exists():
            # Of the run that goes on, which was killed before it was done with them: they are written anew.
            shutil.rmtree(folder / MODELS)
        words = f"running {experiment.method.name}"
        with stop_on_interrupt() as stop_wanted, progress_bar(words, "ticks") as progress:
            report = partial(shown.report, progress)
            run = experiment.simulate(engine=engine, resume=saved, progress=report, should_stop=stop_wanted)
    if "shards" in run.settings:
        say(traffic_in_words(run.settings["shards"]))
    if leaves_models:
        _finish_there(run, folder)
    else:
        run.save(folder / SAVED_RUN)
        remove_checkpoint(folder / CHECKPOINTS)  # from now on one there is of a later driver
    if run.stopped == "interrupted":
        say(f"Saved after {run.final.ticks:,} ticks. Go on with:")
        say(f"    flockwise simulate {config} --out {out} --resume")
        raise typer.Exit(INTERRUPTED)
    if leaves_models:
        say(f"The models stay in {folder / MODELS}. There is no report, which would gather them.")
        return
    run.to_parquet(folder / "models.parquet", which=None if run.own_models is None else "released")
    if run.own_models is not None:
        run.to_parquet(folder / "own_models.parquet", which="own")
    if settings.stays_in_files:
        say("The samples stay in their files, so there is no report, which would read them all.")
    else:
        _report(config.stem, experiment, [*_baselines(experiment, wanted=baselines), run], folder)


def _report(name: str, experiment: Experiment, runs: list[Trajectory], folder: Path) -> None:
    comparison = Comparison.of(experiment.problem, *runs)
    page = Page(
        title=f"{name}: {experiment.problem.n_agents:,} agents learn a model each",
        comparison=comparison,
        data_description=experiment.samples.description,
        settings={name: part for name, part in experiment.config.dump().items() if name != "network"},
        version=flockwise.__version__,
        choice=experiment.choice,
        choice_description=experiment.choice_description,
        plan_lines=() if experiment.plan is None else plan_lines(experiment.plan),
    )
    show_report(folder, page, experiment.config.seed, experiment.samples.targets)


def _finish_there(run: Trajectory, folder: Path) -> None:
    """Of a run whose models stay with the shards, save the records; one to go on with is its checkpoint."""
    if run.stopped == "interrupted":
        shutil.rmtree(folder / MODELS)
        return
    records = pa.table({name: run.column(name) for name in RECORD_FIELDS})
    write_whole(folder / RECORDS, lambda part: pq.write_table(records, part))
    (folder / SAVED_RUN).unlink(missing_ok=True)  # of a run whose place this one takes
    remove_checkpoint(folder / CHECKPOINTS)


class _ShardsShown:
    """How far the shards are, beside the ticks of all of them."""

    def __init__(self) -> None:
        self._words = ""

    def __call__(self, progress: Any) -> None:
        self._words = progress.words

    def report(self, progress: Report, done: int, total: int | None) -> None:
        progress(done, total, self._words)


def _ray_engine(
    section: Any, folder: Path, address: str | None, shards: int | None, shown: _ShardsShown
) -> RayEngine | None:
    """With checkpoints beside the results; None for another engine, which has no use for the options."""
    if section.name == RayEngine.name:
        return RayEngine(
            shards=shards or section.shards,
            address=address or section.address,
            folder=folder / CHECKPOINTS,
            models=None if section.gather else folder / MODELS,
            on_progress=shown,
        )
    for option, value in (("--address", address), ("--shards", shards)):
        if value is not None:
            raise ConfigError(
                f'{option} is for engine.name = "ray", and the configuration names "{section.name}"'
            )
    return None


def _saved_run(file: Path, resume: bool) -> Trajectory | Checkpoint | None:
    """The run to resume, if one is asked for. Otherwise a run that waits to be resumed is not overwritten."""
    if resume:
        saved = _latest(file)
        if saved is None:
            raise ResumeError(f"{file}: there is no saved run to resume; start one without --resume")
        return saved
    try:
        saved = _latest(file)
    except ResumeError:  # nothing that could be resumed
        return None
    if saved is not None and saved.stopped == "interrupted":
        holder = file if isinstance(saved, Trajectory) else file.parent / CHECKPOINTS
        raise ConfigError(
            f"{holder}: holds an interrupted run; go on with it by --resume, or name another folder"
        )
    if saved is not None:
        say(f"{file.parent}: holds an earlier run; this one takes its place when it is done.")
    return None


def _latest(file: Path) -> Trajectory | Checkpoint | None:
    """The checkpoint of a driver that was lost after the run was saved, or the saved run."""
    checkpoints = file.parent / CHECKPOINTS
    if (checkpoints / MANIFEST).is_file():
        try:
            return Checkpoint.read(checkpoints)
        except ResumeError as error:
            if not file.is_file():
                raise
            say_error(f"{error}; {file.name} is older and whole")
    return Trajectory.load(file) if file.is_file() else None


def _baselines(experiment: Experiment, *, wanted: bool) -> list[Trajectory]:
    if not wanted:
        return []
    others = baselines_beside(experiment.method)
    if not _can_be_tuned(experiment.problem.population):
        others = [method for method in others if not getattr(method, "tunes_l2", False)]
    graph = experiment.problem.graph
    if graph is None or not graph.n_edges:
        say("There are no edges, so no agent has a say in one model for all: global is left out.")
        others = [method for method in others if not method.needs_graph]
    if not others:
        return []
    with step("solving the baselines: " + ", ".join(method.name for method in others)):
        return [run_method(experiment.problem, method, test=experiment.test) for method in others]


def _can_be_tuned(population: Population) -> bool:
    """Whether a penalty can be chosen for local models, and before the run seems long."""
    if population.sample_counts.max(initial=0) < 2:
        return False
    if population.n_samples * population.n_features > MOST_TUNED:
        say("The data are large: local models keep their penalty, and are not tuned for comparison.")
        return False
    return True
