"""scikit-learn's handwritten digits: 1,797 images of 8 × 8, no files needed."""

import os

from lifelong.extras import require_extra
from lifelong.tasks.kinds import Kind
from lifelong.tasks.splits import split_table
from lifelong.tasks.streams import Order, Stream, class_groups, one_versus_rest


def digits(
    seed: int = 0,
    _data_dir: str | os.PathLike[str] | None = None,
    *,
    group: int | None = None,
    kind: Kind | str = Kind.BINARY,
    order: Order = "drawn",
) -> Stream:
    """Ten one-versus-rest tasks; or one task per `group` digits.

    Each digit is split 60 / 20 / 20 % into training, validation and test rows. Pixels are
    standardised by the mean and standard deviation of all pixels of the training rows.
    """
    require_extra("sklearn", extra="data")
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    splits = split_table(x, y, (0.6, 0.2, 0.2), seed=seed)
    source = "scikit-learn's digits"
    if group is None:
        return one_versus_rest(
            splits, seed=seed, order=order, standardise="whole", source=source, prefix="digit "
        )
    return class_groups(
        splits, group, seed=seed, kind=kind, order=order, standardise="whole", source=source
    )
