"""How methods look in the figures of the paper: plain data, so that drawing does not need torch."""

from dataclasses import dataclass
from typing import Any, final
from zlib import crc32


@final
@dataclass(frozen=True)
class Look:
    """Of one method. Lines and markers differ too, for print in grey and for eyes without red."""

    colour: str
    marker: str = "o"
    line: Any = "-"
    width: float = 1.3


LOOKS: dict[str, Look] = {}  # filled by `lifelong.learners.registry`, from the rows of the methods
_COLOURS = ("#4477aa", "#aa3377", "#228833", "#997700", "#994455", "#006699", "#555555")
_MARKERS = ("X", "8", "H", "1", "2", "3", "4")


def look(method: str) -> Look:
    """The look that the method's row has; one drawn from its name where that says nothing."""
    return LOOKS.get(method) or _drawn(crc32(method.encode()))


def _drawn(number: int) -> Look:
    colour, marker = number % len(_COLOURS), number // len(_COLOURS) % len(_MARKERS)
    return Look(_COLOURS[colour], _MARKERS[marker], ":")
