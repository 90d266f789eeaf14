"""The matrix of results, against matrices worked out by hand."""

import json
import subprocess
import sys

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lifelong.evaluation import results as results_module
from lifelong.evaluation.results import ResultError, ResultMatrix
from lifelong.records import Capacity

NAN = float("nan")
HAND = [
    [0.90, NAN, NAN],
    [0.95, 0.80, NAN],
    [0.70, 0.85, 0.60],
]


def results(**changes):
    arguments = {
        "tasks": ["a", "b", "c"],
        "scores": {"auroc": HAND, "accuracy": np.array(HAND) / 2},
        "capacity": [Capacity(10, 9, 8), Capacity(20, 15, 18), Capacity(30, 21, 28)],
        "as_of": [Capacity(10, 9, 8), Capacity(19, 14, 17), Capacity(29, 20, 27)],
        "seconds": [1.5, 2.5, 3.25],
        "source": "made up",
    } | changes
    return ResultMatrix.of(**arguments)


def test_averages_by_hand():
    np.testing.assert_allclose(results().averages(), [0.9, 0.875, (0.7 + 0.85 + 0.6) / 3])
    assert results().average() == pytest.approx(2.15 / 3)
    assert results().average("accuracy") == pytest.approx(2.15 / 6)


def test_curves_by_hand():
    assert results().curve("a").tolist() == [0.90, 0.95, 0.70]
    assert results().curve("b").tolist() == [0.80, 0.85]
    assert results().curve("c").tolist() == [0.60]


def test_forgetting_by_hand():
    # a: best before the end 0.95, at the end 0.70; b: best before the end 0.80, at the end 0.85.
    assert results().forgetting() == pytest.approx(((0.95 - 0.70) + (0.80 - 0.85)) / 2)


def test_backward_transfer_by_hand():
    assert results().backward_transfer() == pytest.approx(((0.70 - 0.90) + (0.85 - 0.80)) / 2)


def test_forward_transfer_by_hand():
    alone = [0.5, 0.75, 0.65]
    assert results().forward_transfer(alone) == pytest.approx(((0.80 - 0.75) + (0.60 - 0.65)) / 2)


def test_a_single_task_has_nothing_to_forget_or_transfer():
    single = ResultMatrix.of(["a"], {"auroc": [[0.8]]})
    assert single.average() == 0.8
    assert np.isnan(single.forgetting())
    assert np.isnan(single.backward_transfer())
    assert np.isnan(single.forward_transfer([0.5]))


@st.composite
def matrices(draw):
    count = draw(st.integers(1, 6))
    lower = np.tril(np.ones((count, count), bool))
    scores = {
        name: np.where(
            lower, draw(arrays.arrays(float, (count, count), elements=st.floats(0, 1))), np.nan
        )
        for name in ("auroc", "accuracy")
    }
    sizes = st.builds(Capacity, *[st.integers(0, 2**53)] * 3)
    return ResultMatrix.of(
        [f"task {i}" for i in range(count)][:: draw(st.sampled_from([1, -1]))],
        scores,
        capacity=draw(st.lists(sizes, min_size=count, max_size=count)),
        as_of=draw(st.lists(sizes, min_size=count, max_size=count)),
        seconds=draw(arrays.arrays(float, count, elements=st.floats(0, 1e6))),
        source=draw(st.text(max_size=5)),
    )


@settings(max_examples=50, deadline=None)
@given(matrices())
def test_there_and_back_by_json_and_frame_is_exact(matrix):
    for back in (
        ResultMatrix.from_json(matrix.to_json()),
        ResultMatrix.from_frame(matrix.to_frame()),
        ResultMatrix.from_frame(matrix.to_frame().iloc[::-1]),
    ):
        assert back == matrix
        for measure in ("auroc", "accuracy"):
            np.testing.assert_array_equal(back.matrix(measure), matrix.matrix(measure))


@settings(max_examples=50, deadline=None)
@given(matrices())
def test_forgetting_is_at_least_minus_backward_transfer(matrix):
    if len(matrix.tasks) > 1:
        assert matrix.forgetting() >= -matrix.backward_transfer() - 1e-12


def test_the_meaning_is_said_in_every_place_that_shows_the_matrix():
    meaning = "R[i, j] is the score of task j after learning task i"
    assert json.loads(results().to_json())["meaning"] == meaning
    assert results().to_frame().attrs["meaning"] == meaning
    assert str(results()).startswith(meaning)
    assert str(results()).split("\n\n")[1].splitlines() == [
        "auroc     j=0     j=1     j=2",
        "i=0    0.9000                  a",
        "i=1    0.9500  0.8000          b",
        "i=2    0.7000  0.8500  0.6000  c",
    ]


def test_the_frame_is_long_and_in_plain_words():
    frame = results().to_frame()
    row = frame[(frame["after"] == "c") & (frame["task"] == "b")].iloc[0]
    assert (row["auroc"], row["accuracy"], row["seconds"]) == (0.85, 0.425, 3.25)
    assert (row["parameters"], row["nonzero"], row["multiply_adds"]) == (30, 21, 28)
    assert (row["as_of_parameters"], row["as_of_multiply_adds"]) == (29, 27)
    assert len(frame) == 6


def test_results_differ_where_anything_differs():
    assert results() == results()
    assert results() != results(seconds=[1.5, 2.5, 3.0])
    assert results() != results(source="other")
    assert results() != results(capacity=None)
    assert results() != "results"


def test_results_are_read_without_torch():
    code = f"import sys, {results_module.__name__}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "numpy" in done.stdout.split()
    assert "torch" not in done.stdout.split()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ["a", "a", "c"]}, "names, none twice"),
        ({"tasks": []}, "one or more names"),
        ({"scores": {}}, "at least one measure"),
        ({"scores": {"auroc": [[1.0]]}}, r"3 tasks need a matrix of 3 × 3, not \(1, 1\)"),
        ({"scores": {"auroc": np.full((3, 3), NAN)}}, "on and below the diagonal must be a finite"),
        ({"seconds": [1.0]}, "seconds must have one entry for each of the 3 tasks, not 1"),
        ({"capacity": []}, "capacity must have one entry for each of the 3 tasks, not 0"),
    ],
)
def test_numbers_that_make_no_results_are_refused(changes, message):
    with pytest.raises(ResultError, match=message):
        results(**changes)


def test_questions_without_an_answer_are_refused():
    with pytest.raises(ResultError, match="no measure 'f1' in these results; there are 'auroc'"):
        results().average("f1")
    with pytest.raises(ResultError, match="no task 'z' in these results; there are 'a', 'b', 'c'"):
        results().curve("z")
    with pytest.raises(ResultError, match=r"alone must be 3 scores, .* shape \(2,\)"):
        results().forward_transfer([0.5, 0.5])


def test_other_documents_are_refused():
    with pytest.raises(ResultError, match="not the JSON of a result matrix"):
        ResultMatrix.from_json("{}")
    with pytest.raises(ResultError, match="not the JSON of a result matrix"):
        ResultMatrix.from_json(results().to_json()[:-5])
    ragged = json.loads(results().to_json())
    ragged["scores"]["auroc"][0] = [0.5]
    with pytest.raises(ResultError, match="rows of the matrix differ in length"):
        ResultMatrix.from_json(json.dumps(ragged))
    with pytest.raises(ResultError, match=r"but parameters, nonzero, .* are not there"):
        ResultMatrix.from_frame(pandas.DataFrame({"after": ["a"], "task": ["a"], "auroc": [1.0]}))
    with pytest.raises(ResultError, match="one row for it and one for each task before"):
        ResultMatrix.from_frame(results().to_frame().iloc[1:])
    doubled = results().to_frame()
    doubled.loc[2, "task"] = "a"  # after b: a twice, b not at all
    with pytest.raises(ResultError, match="on and below the diagonal must be a finite"):
        ResultMatrix.from_frame(doubled)
