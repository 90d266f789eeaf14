"""Lines of the standard library's own source: one task per package, no files needed.

The text is that of the Python that runs, so another version of Python gives other rows.
"""

import os
import platform
import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lifelong.tasks.datasets.files import DataError, readable
from lifelong.tasks.splits import split_table
from lifelong.tasks.streams import Order, Stream, one_versus_rest

PACKAGES = (
    *("asyncio", "concurrent", "email", "http", "importlib"),
    *("logging", "multiprocessing", "unittest", "urllib", "xml"),
)
LENGTH = 16  # tokens of a line; longer lines are cut, shorter ones end in PADDING
WORDS = 1024  # numbers of tokens
PADDING = 0
FEWEST = 4  # tokens of a line that says anything
_TOKEN = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")


def source_lines(
    seed: int = 0,
    _data_dir: str | os.PathLike[str] | None = None,
    *,
    per_class: tuple[int, int, int] = (400, 100, 200),
    order: Order = "drawn",
) -> Stream:
    """Ten binary tasks: does a line of source or docstring come from this package?

    A line is `LENGTH` tokens: words, numbers and signs, each as its checksum from 1 to 1023. Of
    lines with the same tokens one is taken, and none that two packages have.
    """
    by_package = {package: lines_of(package) for package in PACKAGES}
    seen = Counter(line for lines in by_package.values() for line in lines)
    rows = [
        (tokens, number)
        for number, lines in enumerate(by_package.values())
        for tokens in lines
        if seen[tokens] == 1
    ]
    x, y = np.array([tokens for tokens, _ in rows]), np.array([number for _, number in rows])
    splits = split_table(x, y, per_class, seed=seed, classes=PACKAGES)
    version = platform.python_version()
    source = f"lines of the standard library of Python {version}"
    return one_versus_rest(splits, seed=seed, order=order, standardise=None, source=source)


def lines_of(package: str) -> list[tuple[int, ...]]:
    """The distinct lines of a package as tokens, in the order of its files."""
    home = Path(sysconfig.get_paths()["stdlib"]) / package
    files = sorted(home.rglob("*.py"))
    if not files:
        raise DataError(
            f"{home}: no source files of the package {package!r}; this data set needs a Python "
            "with the source of its standard library"
        )
    return list(dict.fromkeys(line for file in files for line in _tokenised(file)))


def _tokenised(file: Path) -> Iterator[tuple[int, ...]]:
    with readable(file):
        text = file.read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        tokens = _TOKEN.findall(line)
        if len(tokens) >= FEWEST:
            yield numbers(tokens)


def numbers(tokens: list[str]) -> tuple[int, ...]:
    """The first tokens of a line as numbers, the same in every process."""
    kept = [1 + zlib.crc32(token.encode()) % (WORDS - 1) for token in tokens[:LENGTH]]
    return (*kept, *[PADDING] * (LENGTH - len(kept)))
