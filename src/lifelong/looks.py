"""Colours and markers of methods in figures: plain data, so that drawing does not need torch."""

from dataclasses import dataclass
from typing import Any, final
from zlib import crc32


@final
@dataclass(frozen=True)
class Look:
    """Line style of one method. Markers differ too, for grey print and colour blindness."""

    colour: str
    marker: str = "o"
    line: Any = "-"
    width: float = 1.3


LOOKS: dict[str, Look] = {}  # filled by `lifelong.learners.registry`, from the rows of the methods
_COLOURS = ("#4477aa", "#aa3377", "#228833", "#997700", "#994455", "#006699", "#555555")
_MARKERS = ("X", "8", "H", "p", "h", "P", "d")  # each can be filled or hollow


def look(method: str) -> Look:
    """The look in the method's row; derived from the name if the row has none."""
    return LOOKS.get(method) or _derived(crc32(method.encode()))


def _derived(number: int) -> Look:
    colour, marker = number % len(_COLOURS), number // len(_COLOURS) % len(_MARKERS)
    return Look(_COLOURS[colour], _MARKERS[marker], ":")
