"""Pictures show the numbers they are about, and something can be seen on them."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from flockwise.engine.simulate import simulate
from flockwise.method import ReleaseOnce
from flockwise.privacy.budget import Budget
from flockwise.report import Comparison, Picture, pictures
from flockwise.report import plots as plots_module
from flockwise.report.plots import by_size, convergence, gain_on_graph, proven_rate
from flockwise.report.theme import draw, inline_svg, legend_above, save_picture


def painted(picture: Picture | None) -> Picture:
    assert picture is not None
    return picture


def values_of(line: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


@pytest.fixture(scope="module")
def drawn(comparison, task):
    return pictures(comparison, task.targets)


def test_a_tested_run_of_coordinate_descent_has_all_pictures(drawn):
    assert [picture.name for picture in drawn] == ["convergence", "by_size", "gain", "rate"]


def test_no_picture_is_empty(drawn):
    for picture in drawn:
        canvas = FigureCanvasAgg(picture.figure)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3]
        assert (pixels < 200).any(axis=2).mean() > 0.005, picture.name


def test_drawing_leaves_the_settings_of_matplotlib_alone(comparison, task):
    before = dict(matplotlib.rcParams)
    pictures(comparison, task.targets)
    assert dict(matplotlib.rcParams) == before


def test_convergence_shows_the_measured_gaps(comparison):
    picture = painted(convergence(comparison))
    run = comparison.runs["collaborative"]
    axes = picture.figure.axes[0]
    (line,) = axes.get_lines()
    updates, gaps = values_of(line)
    np.testing.assert_array_equal(updates, run.column("ticks")[1:] / 14)
    np.testing.assert_array_equal(gaps, comparison.gaps()["collaborative"][1:])
    assert axes.get_yscale() == "log"
    assert picture.figure.axes[-1].get_xlabel() == "models sent per agent"


def test_convergence_shows_where_own_models_end(comparison, task, problem):
    run = simulate(problem, ReleaseOnce(Budget(1.0, 1e-5)), engine="reference", test=task.test, updates=5)
    assert run.own_metrics is not None
    picture = painted(convergence(Comparison.of(problem, *comparison.runs.values(), run)))
    [line] = [line for line in picture.figure.axes[2].get_lines() if line.get_linestyle() == ":"]
    assert set(values_of(line)[1]) == {run.own_metrics.mean()}


def test_a_legend_of_long_labels_is_not_cut():
    def paint(figure):
        axes = figure.subplots()
        for method in "abcdefgh":
            axes.plot([0, 1], label=f"private, a method {method}, propagated: released, seen by others")
        legend_above(figure, axes)

    figure = draw(9.2, 6.0, paint)
    FigureCanvasAgg(figure)
    [legend] = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width


def test_few_agents_are_named_on_the_graph(comparison):
    picture = painted(gain_on_graph(comparison))
    assert [text.get_text() for text in picture.figure.axes[0].texts] == list(
        comparison.problem.population.agent_names
    )
    [legend] = picture.figure.legends
    counts = comparison.problem.population.sample_counts
    said = [text.get_text() for text in legend.get_texts()]
    assert said == [f"{counts.min()} training samples", f"{counts.max()} training samples"]


def test_the_proven_rate_starts_at_the_measured_gap(comparison):
    axes = painted(proven_rate(comparison)).figure.axes[0]
    measured, tight, published = (values_of(line)[1] for line in axes.get_lines())
    assert tight[0] == published[0] == measured[0]
    assert (published >= tight).all()


def test_baselines_alone_have_nothing_to_converge(comparison, problem):
    runs = {name: comparison.runs[name] for name in ("local", "global")}
    baselines = Comparison(problem, runs)
    assert [picture.name for picture in pictures(baselines)] == ["by_size"]


def test_size_groups_hold_every_agent(comparison):
    axes = painted(by_size(comparison)).figure.axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert sum(int(label.split("\n")[1].split()[0]) for label in labels) == 14


def test_a_large_graph_is_counted_and_not_drawn(comparison, monkeypatch):
    monkeypatch.setattr(plots_module, "MOST_DRAWN", 10)
    picture = painted(gain_on_graph(comparison))
    assert "drawn up to 10 agents" in picture.caption
    assert picture.figure.axes[0].get_ylabel() == "agents"


def test_many_marks_are_drawn_as_pixels_in_the_vector_picture(comparison, monkeypatch):
    as_vectors = inline_svg(painted(gain_on_graph(comparison)))
    monkeypatch.setattr(plots_module, "MOST_VECTOR_MARKS", 5)
    as_pixels = inline_svg(painted(gain_on_graph(comparison)))
    assert as_pixels.count("<image") > as_vectors.count("<image")
    assert "gain in points of accuracy" in as_pixels


def test_a_saved_picture_is_the_same_every_time(drawn, tmp_path):
    first = save_picture(drawn[1], tmp_path).read_bytes()
    assert save_picture(drawn[1], tmp_path).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["by_size.svg"]
