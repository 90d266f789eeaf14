"""Training, validation and test rows of a table.

`split_table` splits one table; `hold_out` takes validation rows from given training rows. All draws
come from a seed; the global random state is neither read nor changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lifelong.tasks.kinds import TaskError

Sizes: TypeAlias = tuple[int, int, int] | tuple[float, float, float]

CHUNK = 256  # rows converted at once, to bound temporary copies


@final
@dataclass(frozen=True, eq=False)
class Subset:
    """Some rows of a table, by index, so that several subsets can share one table."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    rows: NDArray[np.int64]

    @property
    def labels(self) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = self.y[self.rows]
        return labels

    def of_classes(self, chosen: NDArray[np.int64]) -> "Subset":
        """Only the rows of the chosen classes."""
        return Subset(self.x, self.y, self.rows[np.isin(self.labels, chosen)])

    def chunks(self) -> Iterator[NDArray[Any]]:
        for start in range(0, len(self.rows), CHUNK):
            yield self.x[self.rows[start : start + CHUNK]]


@final
@dataclass(frozen=True, eq=False)
class Splits:
    """Training, validation and test rows; labels are indices into the names in `classes`."""

    train: Subset
    valid: Subset
    test: Subset
    classes: tuple[str, ...]

    @property
    def each(self) -> tuple[Subset, Subset, Subset]:
        return self.train, self.valid, self.test


def split_table(
    x: ArrayLike,
    y: ArrayLike,
    sizes: Sizes,
    *,
    seed: int,
    test: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
) -> Splits:
    """Split one table at random, class by class, into training, validation and test rows.

    `sizes` are three numbers of rows per class, or three shares of each class's rows. `test` marks
    the rows that test rows are drawn from; training and validation rows come from the others.
    Without it, all are drawn from all rows. `classes` names the distinct labels in sorted order; by
    default a class is named by its label.
    """
    table, labels = _table(x, y)
    codes, names = _encode(labels, classes)
    _check_sizes(sizes)
    pools = _pools(len(labels), sizes, test)
    generator = generator_for("rows", seed)

    def draw(code: int, name: str) -> list[NDArray[np.int64]]:
        rows = [np.flatnonzero(mask & (codes == code)) for mask, _ in pools]
        cuts = [
            _cut(generator.permutation(pool), own, name)
            for pool, (_, own) in zip(rows, pools, strict=True)
        ]
        return [part for cut in cuts for part in cut]

    drawn = [draw(code, name) for code, name in enumerate(names)]
    train, valid, tested = (
        Subset(table, codes, generator.permutation(np.concatenate(rows)))
        for rows in zip(*drawn, strict=True)
    )
    return Splits(train, valid, tested, names)


def hold_out(
    train: tuple[ArrayLike, ArrayLike],
    test: tuple[ArrayLike, ArrayLike],
    *,
    valid: int,
    seed: int,
    classes: Sequence[str] | None = None,
) -> Splits:
    """Hold `valid` rows out of the training rows, stratified by class; keep the test rows."""
    table, labels = _table(*train)
    test_table, test_labels = _table(*test)
    if not 1 <= valid < len(labels):
        raise TaskError(
            f"valid must be between 1 and {len(labels) - 1}, since there are {len(labels)} rows to "
            f"hold validation rows out of, not {valid}"
        )
    codes, names = _encode(np.concatenate([labels, test_labels]), classes)
    train_codes, test_codes = codes[: len(labels)], codes[len(labels) :]
    generator = generator_for("rows", seed)
    held = _spread(train_codes, valid, generator)
    kept = np.setdiff1d(np.arange(len(labels)), held)
    return Splits(
        Subset(table, train_codes, generator.permutation(kept)),
        Subset(table, train_codes, generator.permutation(held)),
        Subset(test_table, test_codes, np.arange(len(test_codes))),
        names,
    )


def consecutive(table: NDArray[Any], drawn: Splits) -> Splits:
    """The same splits over a table of the drawn rows only: train, then valid, then test.

    For tables that are costly to make: draw rows by their labels, then make only those.
    """
    ends = np.cumsum([len(part.rows) for part in drawn.each])
    labels = np.concatenate([part.labels for part in drawn.each])
    train, valid, test = (
        Subset(table, labels, rows) for rows in np.split(np.arange(ends[2]), ends[:2])
    )
    return Splits(train, valid, test, drawn.classes)


def generator_for(purpose: str, seed: int) -> np.random.Generator:
    """A separate generator per purpose, so that their draws do not affect each other."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise TaskError(f"a seed must be a whole number from 0, not {seed!r}")
    return np.random.default_rng([int(seed), *purpose.encode()])


def _table(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    table, labels = np.asarray(x), np.asarray(y)
    if table.ndim < 2 or table.dtype.kind not in "biuf":
        raise TaskError(
            "inputs must be a numeric array with rows first and at least one feature axis, not "
            f"{table.dtype} of shape {table.shape}"
        )
    if labels.shape != table.shape[:1]:
        raise TaskError(
            f"{len(table)} rows of inputs but labels of shape {labels.shape}; give one per row"
        )
    require_finite("inputs", table)
    return table, labels


def require_finite(what: str, table: NDArray[Any]) -> None:
    """Refuse NaN and infinity before a mean or a PCA spreads them over all rows."""
    if table.dtype.kind != "f" or np.isfinite(table).all():
        return
    place = tuple(int(i) for i in np.argwhere(~np.isfinite(table))[0])
    raise TaskError(
        f"{what} must be finite numbers, but the value at {place} is {table[place]}; leave out or "
        "fill in such rows first"
    )


def _encode(
    labels: NDArray[Any], classes: Sequence[str] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    distinct, codes = np.unique(labels, return_inverse=True)
    names = tuple(str(label) for label in distinct) if classes is None else tuple(classes)
    if len(names) != len(distinct) or len(set(names)) != len(names):
        raise TaskError(
            f"{len(names)} class names for {len(distinct)} distinct labels; give one name for each "
            "label, in sorted order of the labels, and no name twice"
        )
    return codes.astype(np.int64), names


def _pools(
    count: int, sizes: Sizes, test: ArrayLike | None
) -> list[tuple[NDArray[np.bool_], tuple[float, ...]]]:
    """Masks of the rows to draw from, each with the sizes of the subsets drawn from them."""
    if test is None:
        return [(np.ones(count, bool), sizes)]
    marks = np.asarray(test)
    if marks.shape != (count,) or marks.dtype != bool:
        raise TaskError(
            f"test must mark each of the {count} rows with True or False, not be an array of "
            f"{marks.dtype} of shape {marks.shape}"
        )
    return [(~marks, sizes[:2]), (marks, sizes[2:])]


def _check_sizes(sizes: Sizes) -> None:
    counts = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
    shares = all(0 < size < 1 for size in sizes) and sum(sizes) <= 1 + 1e-9
    if len(sizes) != 3 or not (counts or shares):
        raise TaskError(
            "sizes must be three whole numbers of rows per class, such as (30, 30, 30), or three "
            f"shares that sum to at most 1, such as (0.6, 0.2, 0.2), not {sizes!r}"
        )


def _cut(rows: NDArray[np.int64], sizes: tuple[float, ...], name: str) -> list[NDArray[np.int64]]:
    """Rows of one class, split into the requested sizes."""
    if isinstance(sizes[0], int | np.integer):
        ends = np.cumsum(sizes)
    else:
        ends = np.floor(np.cumsum(sizes) * len(rows) + 1e-9).astype(np.int64)
    wanted = " + ".join(str(size) for size in sizes)
    if ends[-1] > len(rows) or ends[0] == 0 or (np.diff(ends) == 0).any():
        raise TaskError(
            f"class {name!r} has {len(rows)} rows, too few for parts of {wanted}; "
            "ask for fewer rows per class, or leave the class out"
        )
    return np.split(rows, ends)[:-1]


def _spread(
    codes: NDArray[np.int64], wanted: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """`wanted` rows, stratified: at even steps through the shuffled rows sorted by class."""
    shuffled = generator.permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    steps: NDArray[np.int64] = np.arange(wanted) * len(codes) // wanted
    return np.asarray(by_class[steps])
