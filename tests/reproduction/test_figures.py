"""What figures show is what runs say; and every method looks the same in all of them."""

import csv
import io
import re
from itertools import pairwise

import pytest
from known_runs import measured
from matplotlib.markers import MarkerStyle

from lifelong.learners.registry import METHODS
from lifelong.looks import LOOKS, look
from lifelong.reproduction import dots, figure3, figure4, figure5, style
from lifelong.reproduction.claims import Evidence
from lifelong.reproduction.figures import TITLES, write_combined, write_figure
from lifelong.reproduction.measured import CAPACITY, mean, rows
from lifelong.reproduction.series import as_csv

RECIPES = ("figure3-variation", "figure4", "figure5", "methods-variation", "ablation-variation")


def _figure3():
    return [
        *measured("DEN", (0.90, 0.92), lost=0.0, capacity=1.3),
        *measured(
            "DEN", (0.86,), part=CAPACITY, label="DEN, limit = 0.03", plain=False, capacity=0.5
        ),
        *measured("DNN-L2", (0.80, 0.82), lost=0.1),
        *measured("DNN-MTL", (0.93, 0.95), together=True),
        *measured(
            "DNN-MTL", (0.97,), together=True, tasks=2, label="DNN-MTL, 2 tasks", plain=False
        ),
        *measured("DEN-Finetune", (0.94,), together=True, capacity=1.3),
    ]


def _of(series, panel, method):
    return next(each for each in series if (each.panel, each.method) == (panel, method))


def test_means_have_the_standard_error_of_the_mean():
    found = mean([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.error == pytest.approx(1 / 3**0.5)
    assert str(mean([0.5])) == "0.5000"
    assert mean([0.5]).error is None


def test_figure_3_over_tasks():
    series = figure3.series(_figure3())
    den = _of(series, figure3.OVER_TASKS, "DEN")
    assert den.x == list(range(1, 11))
    assert den.y == pytest.approx([0.91] * 10)
    assert [point.error for point in den.points] == pytest.approx([0.01] * 10)
    falls = _of(series, figure3.OVER_TASKS, "DNN-L2")
    assert falls.y[0] == pytest.approx(0.91)
    assert falls.y[-1] == pytest.approx(0.81)
    together = _of(series, figure3.OVER_TASKS, "DNN-MTL")
    assert (together.x, together.y) == ([2, 10], pytest.approx([0.97, 0.94]))
    assert _of(series, figure3.OVER_TASKS, "DEN-Finetune").x == [10]


def test_a_legend_of_every_method_fits_into_the_figure():
    runs = [run for name in METHODS for run in measured(name, (0.8, 0.9))]
    figure = figure3.draw({"every method": runs})
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    told = [text.get_text() for text in legend.get_texts()]
    assert set(told) == {f"{name} 0.8500" for name in METHODS}
    assert (box.x0, box.x1) == (max(box.x0, 0), min(box.x1, figure.bbox.width))


def test_figure_3_over_capacity_leaves_out_shorter_streams():
    series = figure3.series(_figure3())
    den = _of(series, figure3.OVER_CAPACITY, "DEN")
    assert (den.x, den.y) == ([0.5, 1.3], pytest.approx([0.86, 0.91]))
    assert _of(series, figure3.OVER_CAPACITY, "DNN-MTL").x == [1.0]


@pytest.mark.parametrize("largest", [9.0, 48.0, 300.0])
def test_sizes_can_be_read_off_figure_3(largest):
    """Three labels or more, none over another, in the narrow panels of all data sets together."""
    runs = [*measured("DNN-MTL", (0.9,)), *measured("DNN-STL", (0.9,), capacity=largest)]
    figure = figure3.draw(dict.fromkeys("abc", runs))
    figure.draw_without_rendering()
    axes = figure.axes[3]
    low, high = axes.get_xlim()
    labels = [
        label.get_window_extent()
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= place <= high
    ]
    assert len(labels) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(labels))


def test_figure_4_time_and_selection():
    runs = [
        *measured("DNN-L2", (0.8, 0.8), seconds=20.0),
        *measured("L2-Selective", (0.82, 0.84), seconds=10.0, selected=(156, 32)),
    ]
    series = figure4.series(runs)
    selective = _of(series, figure4.OVER_TIME, "L2-Selective")
    assert (selective.x[0], selective.x[-1]) == (pytest.approx(1.0), pytest.approx(10.0))
    assert selective.y[-1] == pytest.approx(0.83)
    chosen = _of(series, figure4.SELECTED, "L2-Selective")
    assert (chosen.x, chosen.y) == ([1, 2], [156.0, 32.0])


def test_figure_5_starts_each_task_where_it_is_learned():
    series = figure5.series(measured("DNN-L2", (0.7, 0.7), lost=0.2))
    for task in figure5.TASKS:
        drift = _of(series, f"task {task}", "DNN-L2")
        assert drift.x == list(range(task, 11))
        assert drift.y[0] == pytest.approx(0.9)
        assert drift.y[-1] == pytest.approx(0.7)


def test_the_csv_has_every_point_that_is_drawn():
    series = figure3.series(_figure3())
    lines = list(csv.DictReader(io.StringIO(as_csv(series))))
    assert len(lines) == sum(len(each.points) for each in series)
    den = [line for line in lines if (line["panel"], line["method"]) == ("over capacity", "DEN")]
    assert [(line["x"], line["seeds"]) for line in den] == [("0.5", "1"), ("1.3", "2")]


def test_every_method_has_a_look_of_its_own():
    assert {look(name) for name in METHODS} == set(LOOKS.values())
    assert len({look(name).colour for name in METHODS}) == len(METHODS)
    assert look("unheard of") == look("unheard of") != look("unheard of too")


def test_figure_3_names_the_best_first_with_its_auroc_at_the_end():
    runs = [*measured("DNN-L2", (0.8, 0.8), lost=0.1), *measured("DEN", (0.91, 0.92))]
    (legend,) = figure3.draw({"data": runs}).legends
    assert [text.get_text() for text in legend.get_texts()] == ["DEN 0.9150", "DNN-L2 0.8000"]
    figure = figure3.draw({"data": runs, "other": runs[:2]})
    columns = [axes.get_legend() for axes in figure.axes[2:]]
    told = [[text.get_text() for text in legend.get_texts()] for legend in columns]
    assert told == [["DEN 0.9150", "DNN-L2 0.8000"], ["DNN-L2 0.8000"]]


def test_figure_3_of_other_sizes_alone_has_a_legend_without_an_end():
    other = {"part": CAPACITY, "label": "DEN, limit = 0.03", "plain": False, "capacity": 0.5}
    (legend,) = figure3.draw({"data": measured("DEN", (0.9, 0.91), **other)}).legends
    assert [text.get_text() for text in legend.get_texts()] == ["DEN"]


def _faces(axes, hollow):
    return [
        list(line.get_xdata())
        for line in axes.lines
        if len(line.get_xdata()) and line.get_linestyle() == "None"
        if (line.get_markerfacecolor() == "white") == hollow
    ]


def test_points_of_one_seed_are_hollow_and_the_figure_says_so():
    figure = figure3.draw({"data": [run for run in _figure3() if run.method == "DEN"]})
    sizes = figure.axes[1]
    assert (_faces(sizes, hollow=True), _faces(sizes, hollow=False)) == ([[0.5]], [[1.3]])
    assert figure.legends[0].get_title().get_text() == (
        "filled mark: mean of 2 seeds, band: ± one standard error; hollow mark: one seed"
    )


@pytest.mark.parametrize(
    ("seeds", "key"),
    [
        ([5, 5], "filled mark: mean of 5 seeds, spread"),
        ([3, 5], "filled mark: mean of 3 to 5 seeds, spread"),
        ([1, 1], "hollow mark: one seed"),
    ],
)
def test_the_key_tells_only_what_is_drawn(seeds, key):
    runs = [run for n, count in enumerate(seeds) for run in measured(f"m{n}", [0.5] * count)]
    assert style.key_of(dots.series(runs), "spread") == key


def test_every_look_can_be_hollow():
    every = [look(name).marker for name in (*METHODS, *map(str, range(200)))]
    assert set(every) <= set(MarkerStyle.filled_markers)


def test_where_methods_come_near_to_1_the_rest_is_on_a_log_scale():
    near = [*measured("DEN", (0.9995, 0.9996)), *measured("DNN", (0.95, 0.96), lost=0.03)]
    figure = figure3.draw({"data": near})
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert "log scale of 1 - AUROC" in axes.get_ylabel()
        places = [axes.transData.transform((1, y))[1] for y in (0.9, 0.99, 0.999)]
        assert places[1] - places[0] == pytest.approx(places[2] - places[1])
        low, high = axes.get_ylim()
        assert low < 0.95 < 0.9996 < high < 1
        assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 3
    far = figure3.draw({"data": measured("DEN", (0.98, 0.98))})
    assert all("log" not in axes.get_ylabel() for axes in far.axes)


def test_methods_stand_one_above_the_other_the_best_on_top():
    runs = [
        *measured("DNN-L2", (0.80, 0.82)),
        *measured("DEN", (0.90, 0.92), capacity=1.3, label="DEN, width = 0.2"),
        *measured("DEN", (0.85,), label="DEN without this", plain=False),
    ]
    drawn = dots.series(runs)
    assert [each.label for each in drawn] == ["DEN", "DEN without this", "DNN-L2"]
    assert (drawn[0].x, drawn[0].y) == ([1.3], pytest.approx([0.91]))
    left, right = dots.draw(runs, "a title").axes
    assert [text.get_text() for text in left.get_yticklabels()] == [each.label for each in drawn]
    bottom, top = left.get_ylim()
    assert bottom > top
    (bar,) = left.containers[0].lines[2]
    assert bar.get_segments()[0][:, 0] == pytest.approx([0.89, 0.93])  # two standard errors of 0.01
    assert right.get_xscale() == "linear"
    several = [*runs, *measured("DNN-STL", (0.9,), capacity=10.0)]
    right = dots.draw(several).axes[1]
    assert right.get_xscale() == "log"
    low, high = right.get_xlim()
    assert sum(low <= tick <= high for tick in right.get_xticks()) >= 3


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("look_alike", [True, False])
def test_a_figure_of_a_look_alike_says_so(tmp_path, recipe, look_alike):
    runs = measured("DNN-L2", (0.8, 0.9), look_alike=look_alike)
    (file,) = write_figure(recipe, "small", runs, tmp_path, ("svg",))
    title = f"{TITLES[recipe]}, small" + (", look-alike" if look_alike else "")
    assert re.search(rf">{re.escape(title)}<", file.read_text())


@pytest.mark.parametrize("recipe", RECIPES)
def test_figures_are_written_and_the_same_each_time(tmp_path, recipe):
    runs = [
        *_figure3(),
        *measured("DNN-L1", (0.7, 0.75)),
        *measured("L2-Selective", (0.82, 0.84)),
        *measured("DEN-No-Stamp", (0.88, 0.89), lost=0.02),
    ]
    formats = ("svg", "csv")
    files = write_figure(recipe, "paper", runs, tmp_path / "a", formats)
    assert {file.suffix for file in files} == {".svg", ".csv"}
    again = write_figure(recipe, "paper", runs, tmp_path / "b", formats)
    for first, second in zip(files, again, strict=True):
        assert first.read_bytes() == second.read_bytes()
        assert first.stat().st_size > 100


def test_figure_3_has_a_column_for_each_data_set_which_tells_a_small_one(tmp_path):
    runs = _figure3()
    found = [
        Evidence("figure3-variation", "paper", "", "", runs),
        Evidence("figure3-cifar100", "small", "", "", runs),
        Evidence("figure3-awa", "paper", "", "", []),
        Evidence("figure4", "paper", "", "", runs),
    ]
    (file,) = write_combined(found, tmp_path, ("svg", "csv"))
    assert file.name == "figure3.svg"
    drawn = file.read_text()
    assert "CIFAR-100, small" in drawn
    assert "AWA" not in drawn
    assert write_combined(found[:1], tmp_path, ("png",)) == []


def test_a_method_that_was_not_run_is_left_out_not_made_up(tmp_path):
    only = measured("DNN-L2", (0.8,))
    for recipe in ("figure3-variation", "figure4", "figure5"):
        assert write_figure(recipe, "small", only, tmp_path, ("png",))
    assert [row.method for row in rows(only)] == ["DNN-L2"]
