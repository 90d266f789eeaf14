"""Tables of any library become the same inputs, and what an earlier task sees never changes."""

import datetime

import msgspec
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from lifelong.tables.frames import TableError, read_labels, read_table
from lifelong.tables.preparation import Preparation

DATA = {
    "size": [1.0, None, 3.0, 4.5],
    "count": [1, 2, 3, None],
    "open": [True, False, None, True],
    "town": ["x", "y", None, "x"],
    "day": [datetime.date(2026, 1, day) for day in (1, 2, 3, 5)],
}
FRAMES = {
    "pandas": pandas.DataFrame(DATA),
    "pandas, nullable": pandas.DataFrame(DATA).convert_dtypes(),
    "pandas, category": pandas.DataFrame(DATA).astype({"town": "category"}),
    "pandas, another index": pandas.DataFrame(DATA, index=[7, 5, 9, 1]),
    "polars": polars.DataFrame(DATA),
    "polars, category": polars.DataFrame(DATA).with_columns(
        polars.col("town").cast(polars.Categorical)
    ),
    "Arrow": pyarrow.table(DATA),
    "Arrow, dictionary": pyarrow.table(
        {**DATA, "town": pyarrow.array(DATA["town"]).dictionary_encode()}
    ),
}


def fitted(table, **options):
    return Preparation.fit(table, **{"max_categories": 9, "spare": 3, "ramps": 0, **options})


@pytest.mark.parametrize("kind", FRAMES)
def test_every_library_gives_the_same_inputs(kind):
    table, plain = read_table(FRAMES[kind]), read_table(FRAMES["pandas"])
    prepared = fitted(plain)
    assert fitted(table) == prepared
    inputs = prepared.transform(table, 1)
    np.testing.assert_array_equal(inputs, prepared.transform(plain, 1))
    assert inputs.shape == (4, prepared.inputs) == (4, 4 + 3 + 2 + 2 + 3)
    np.testing.assert_allclose(inputs[:, 3].mean(), 0, atol=1e-6)
    assert inputs[:, 4:7].tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert inputs[:, 7:].argmax(axis=1).tolist() == [2, 3, 0, 2]


def test_a_frame_is_read_by_the_names_of_its_columns():
    frame = FRAMES["pandas"]
    prepared = fitted(read_table(frame))
    turned = read_table(frame[frame.columns[::-1]]).of(prepared.names, "X")
    np.testing.assert_array_equal(
        prepared.transform(turned, 1), prepared.transform(read_table(frame), 1)
    )
    other = read_table(frame.drop(columns=["size", "town"]).assign(price=1, tax=2))
    with pytest.raises(
        TableError,
        match=r"X: columns are missing: 'size', 'town'; columns are new: 'price', 'tax'; give the",
    ):
        other.of(prepared.names, "X")
    with pytest.raises(TableError, match="columns are new: 'tax'; leave the new ones out"):
        read_table(frame.assign(tax=2)).of(prepared.names, "X")


values = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "dd", "e", "f"]))
numbers = st.one_of(st.none(), st.floats(-1e6, 1e6))


def frames(draw, rows):
    return read_table(
        polars.DataFrame(
            {
                "t": draw(st.lists(values, min_size=rows, max_size=rows)),
                "n": draw(st.lists(numbers, min_size=rows, max_size=rows)),
            },
            schema={"t": polars.String, "n": polars.Float64},
        )
    )


@given(st.data())
@runs(max_examples=60)
def test_what_an_earlier_task_sees_never_changes_and_survives_json(data):
    tables = [frames(data.draw, data.draw(st.integers(1, 6))) for _ in range(4)]
    spare = data.draw(st.integers(0, 3))
    prepared = fitted(
        tables[0],
        max_categories=data.draw(st.integers(1, 4)),
        spare=spare,
        ramps=data.draw(st.integers(0, 3)),
    )
    seen = {1: [prepared.transform(table, 1) for table in tables]}
    width = prepared.inputs
    for task, table in enumerate(tables[1:], 2):
        prepared = prepared.extended(table, task)
        seen[task] = [prepared.transform(each, task) for each in tables]
    assert prepared.inputs == width
    prepared.check(4)
    loaded = msgspec.convert(msgspec.json.decode(msgspec.json.encode(prepared)), Preparation)
    assert loaded == prepared
    for task, before in seen.items():
        for table, inputs in zip(tables, before, strict=True):
            np.testing.assert_array_equal(loaded.transform(table, task), inputs)
            assert np.isfinite(inputs).all()


def test_new_categories_take_spare_places_and_then_share_one():
    def of(*towns):
        return read_table(polars.DataFrame({"town": list(towns)}))

    prepared = fitted(of("a", "b"), spare=1).extended(of("c", "c", "d"), 2)
    first, second = (prepared.transform(of("a", "c", "d", "z"), task) for task in (1, 2))
    assert first.tolist() == [[0, 0, 1, 0, 0], [0] * 5, [0] * 5, [0] * 5]
    assert second.argmax(axis=1).tolist() == [2, 4, 1, 1]


def test_a_column_without_a_scale_gets_that_of_the_first_task_in_which_it_varies():
    flat, varies = (read_table({"array": a}["array"]) for a in (np.ones((3, 1)), np.eye(3)[:, :1]))
    prepared = fitted(flat).extended(varies, 2)
    assert prepared.transform(varies, 1).ravel().tolist() == [0, -1, -1]
    np.testing.assert_allclose(prepared.transform(varies, 2).std(), 1, rtol=1e-6)
    assert prepared.extended(read_table(np.eye(3)[:, :1] * 9), 3) == prepared


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=9), st.floats(-1e12, 1e12))
def test_far_numbers_are_squeezed_in_their_order(column, far):
    prepared = fitted(read_table(np.array(column)[:, None]))
    told = prepared.transform(read_table(np.array(sorted([*column, far]))[:, None]), 1).ravel()
    assert (np.diff(told) >= 0).all()
    assert np.abs(told).max() < 800  # the logarithm of the largest number is 710


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=40), st.integers(1, 9))
def test_ramps_rise_one_after_another_and_tell_where_a_number_lies(column, ramps):
    column = np.array(column)
    prepared = fitted(read_table(column[:, None]), ramps=ramps)
    inputs = prepared.transform(read_table(np.sort(column)[:, None]), 1)
    assert inputs.shape[1] == prepared.inputs
    rising = inputs[:, 1:]
    assert ((rising >= 0) & (rising <= 1)).all()
    assert (np.diff(rising, axis=0) >= 0).all()
    used = len(prepared.columns[0].scales[0].edges) - 1
    assert not rising[:, max(used, 0) :].any()
    if used > 0:
        assert (rising[-1, :used] == 1).all()
        assert not rising[0].any()
    # A ramp begins to rise only when the one before has risen.
    assert ((rising[:, 1:] == 0) | (rising[:, :-1] > 1 - 1e-6)).all()


@given(st.lists(numbers, min_size=3, max_size=20), st.integers(0, 4))
def test_a_row_is_prepared_the_same_alone_and_among_others(column, ramps):
    rows = np.array([[np.nan if n is None else n, 1.0] for n in column])
    prepared = fitted(read_table(rows[: len(rows) // 2 + 1]), ramps=ramps)
    together = prepared.transform(read_table(rows), 1)
    for row, inputs in zip(rows, together, strict=True):
        np.testing.assert_array_equal(prepared.of_matrix(row[None], 1)[0], inputs)


def test_wide_tables_and_columns_of_two_values_have_no_ramps():
    generator = np.random.default_rng(0)
    assert fitted(read_table(generator.normal(size=(9, 101))), ramps=8).inputs == 101
    assert fitted(read_table(generator.normal(size=(9, 100))), ramps=8).inputs == 900
    assert fitted(read_table(np.array([[0.0], [1.0], [1.0]])), ramps=8).inputs == 1


def test_numbers_can_be_categories():
    table = read_table(polars.DataFrame({"zip": [8001, 8002, None, 8001], "n": [1.5, 2, 3, 4]}))
    prepared = fitted(table, categorical=["zip"])
    assert prepared.columns[0].values == (8001, 8002)
    assert prepared.transform(table, 1)[:, 1:].argmax(axis=1).tolist() == [2, 3, 0, 2]
    text = read_table(polars.DataFrame({"zip": ["8001"], "n": [1.0]}))
    assert prepared.transform(text, 1)[:, 1:].argmax(axis=1).tolist() == [
        2
    ]  # as a file may have it


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (polars.LazyFrame(DATA), r"a lazy frame holds no rows yet; give X\.collect\(\)"),
        (polars.DataFrame({"a": [[1], [2]]}), "column 'a': has values of type List"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "columns must have names that differ"),
        (np.ones(3), r"one row is X\[None\] or X\.reshape\(1, -1\)"),
        (np.ones((3, 0)), r"0 feature\(s\)"),
        (np.ones((2, 2)) * 1j, "Complex data not supported"),
    ],
    ids=["lazy", "lists", "twice", "one row", "no columns", "complex"],
)
def test_tables_that_cannot_be_used_are_refused(given, message):
    with pytest.raises(TableError, match=message):
        read_table(given)


def test_text_in_a_column_of_numbers_is_refused_by_name():
    prepared = fitted(read_table(polars.DataFrame({"age": [1, 2]})))
    with pytest.raises(
        TableError, match=r"column 'age': holds text \('n/a'\), but it was learned a"
    ):
        prepared.transform(
            read_table(
                polars.DataFrame({"age": ["3", "n/a"]}).select(
                    polars.col("age").replace("3", "n/a")
                )
            ),
            1,
        )
    with pytest.raises(TableError, match="column 'age': holds infinity"):
        fitted(read_table(polars.DataFrame({"age": [1.0, np.inf]})))
    with pytest.raises(TableError, match="column 'age': holds infinity, or a number too large"):
        prepared.transform(read_table(polars.DataFrame({"age": [1.0, np.inf]})), 1)
    with pytest.raises(TableError, match="categorical names the column 'x', but the table has age"):
        fitted(read_table(polars.DataFrame({"age": [1, 2]})), categorical=["x"])


@pytest.mark.parametrize("make", [list, np.array, pandas.Series, polars.Series, pyarrow.array])
@pytest.mark.parametrize("labels", [["no", "yes"], [True, False], [3, 9], [0.5, 2.0]])
def test_labels_keep_their_values(make, labels):
    assert read_labels(make(labels)).tolist() == labels


def test_labels_that_are_missing_are_counted():
    with pytest.raises(TableError, match="y: contains NaN or None in 1 of 3 rows; leave out rows"):
        read_labels(pandas.Series(["a", None, "b"]))
    with pytest.raises(
        TableError, match=r"y: must be one label per row \(1d\), not an array of \(2"
    ):
        read_labels(np.ones((2, 2)))


def test_what_is_damaged_is_refused():
    prepared = fitted(read_table(FRAMES["polars"]))
    plain = msgspec.to_builtins(prepared)
    for place, change in [
        (0, {"scales": []}),
        (0, {"name": "town"}),
        (1, {"scales": [{"since": 2, "median": 0.0, "mean": 0.0, "deviation": 1.0}]}),
        (1, {"scales": [{"since": 1, "median": 0.0, "mean": 0.0, "deviation": -1.0}]}),
        (0, {"ramps": 1, "scales": [{**plain["columns"][0]["scales"][0], "edges": [2.0, 1.0]}]}),
        (0, {"scales": [{**plain["columns"][0]["scales"][0], "edges": [1.0, 2.0]}]}),
        (3, {"since": [1]}),
        (3, {"slots": 1}),
        (3, {"slots": 10**9}),
        (3, {"other": 7}),
    ]:
        columns = [dict(column) for column in plain["columns"]]
        columns[place].update(change)
        damaged = msgspec.convert({**plain, "columns": columns}, Preparation)
        with pytest.raises(ValueError, match=r"damaged|differ"):
            damaged.check(1)
