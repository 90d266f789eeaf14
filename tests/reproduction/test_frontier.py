"""AUROC over bytes: who is on the frontier, and what is counted."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from known_runs import measured

from lifelong.reproduction.figures import write_family, write_figure
from lifelong.reproduction.frontier import bytes_of, draw, frontier, places
from lifelong.reproduction.measured import Measured

sizes = st.lists(
    st.tuples(st.integers(1, 10**9), st.integers(0, 1000)), min_size=1, max_size=8, unique=True
)


def sized(name, score, size, kept=0):
    (one,) = measured(name, (score,))
    summary = msgspec.structs.replace(one.run.summary, bytes=size, learning_bytes=kept)
    run = msgspec.structs.replace(one.run, summary=summary)
    return Measured(name, name, "tasks", True, run)


@given(sizes)
def test_nothing_smaller_is_better_than_what_is_on_the_frontier(made):
    runs = [sized(f"m{n}", score / 1000, size) for n, (size, score) in enumerate(made)]
    best = {place.row.method for place in frontier(runs)}
    for number, (size, score) in enumerate(made):
        beaten = any(
            (s <= size and a > score) or (s < size and a >= score)
            for other, (s, a) in enumerate(made)
            if other != number
        )
        assert (f"m{number}" in best) == (not beaten)


def test_what_is_kept_to_learn_counts_too():
    assert bytes_of(sized("ER", 0.9, 1000, kept=500).run) == 1500
    (old,) = measured("DEN", (0.9,))
    assert bytes_of(old.run) == 4 * old.run.summary.parameters


def test_the_figure_has_a_panel_for_each_data_set_and_the_points_beside_it(tmp_path):
    runs = [sized("DEN", 0.9, 10**6), sized("WSN", 0.95, 10**5), sized("DNN", 0.8, 10**4)]
    by_recipe = {"family-split": runs, "family-permuted": runs, "family-cifar100": []}
    picture, points = write_family("family", "paper", by_recipe, tmp_path, ("png", "csv"))
    assert picture.stat().st_size > 1000
    lines = points.read_text().splitlines()
    assert len(lines) == 1 + 2 * 3
    assert lines[1].startswith("Split MNIST,DNN,DNN,10000,0.8,")
    assert [place.row.method for place in places(runs)] == ["DNN", "WSN", "DEN"]
    files = write_figure("family-split", "small", runs, tmp_path, ("png",))
    assert files[0].name == "family-split-small.png"


def test_a_method_with_one_seed_is_hollow_and_one_with_several_is_filled():
    runs = [sized("DEN", 0.9, 10**6), *measured("WSN", (0.94, 0.96))]
    (axes,) = draw({"MNIST": runs}).axes
    marks = {bars.get_label(): bars.lines[0] for bars in axes.containers}
    assert marks["DEN"].get_markerfacecolor() == "white"
    assert marks["WSN"].get_markerfacecolor() == marks["WSN"].get_markeredgecolor() != "white"
