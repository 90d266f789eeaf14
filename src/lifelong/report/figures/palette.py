"""Colours and shapes of methods on the page: those of the figures, readable on light and dark.

A chart names a colour by a variable of the page's style sheet, which has a value for light paper
and one for dark.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import cos, pi, sin

from lifelong.looks import look

DARK_PAPER = "#171c22"
_LEAST_CONTRAST = 3.0  # of a mark on dark paper, as WCAG 1.4.11 asks
_BLACK, _GREY = "#000000", "#7d8894"


def colour(method: str) -> str:
    """The colour of a method as charts name it."""
    return f"var({_variable(_of(method))})"


def variables(methods: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Of each variable that these methods' colours need, the value on light and on dark paper."""
    colours = dict.fromkeys(map(_of, methods))
    return {_variable(each): (each, on_dark(each)) for each in colours}


def on_dark(colour: str) -> str:
    """The colour, mixed with as much white as it needs to be seen on dark paper."""
    if colour == _BLACK:
        return "#ffffff"  # the ink: what is darkest on light paper is lightest on dark
    for share in range(0, 101, 5):
        mixed = _mixed(colour, share / 100)
        if contrast(mixed, DARK_PAPER) >= _LEAST_CONTRAST:
            return mixed
    raise AssertionError("white can be seen on dark paper")


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def shapes(methods: Sequence[str]) -> list[str]:
    """A shape for each method: that of the figures, or the next that nobody has."""
    taken: list[str] = []
    for method in methods:
        own = SHAPES.get(look(method).marker, SHAPES["o"])
        free = (own, *SHAPES.values())
        taken.append(next((each for each in free if each not in taken), own))
    return taken


def _of(method: str) -> str:
    """A colour as a method's row gives it; grey if that is not written as #rrggbb."""
    given = look(method).colour.lower()
    return given if re.fullmatch("#[0-9a-f]{6}", given) else _GREY


def _variable(colour: str) -> str:
    return f"--method-{colour.removeprefix('#')}"


def _channels(colour: str) -> list[float]:
    return [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]


def _mixed(colour: str, white: float) -> str:
    mixed = (round(255 * (part + white * (1 - part))) for part in _channels(colour))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour)
    ]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _path(corners: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.3g},{y:.3g}" for x, y in corners) + "Z"


def _around(corners: int, *, turned: float = 0.0, inner: float = 1.0, size: float = 1.0) -> str:
    """A regular polygon, first corner up; with an inner radius, a star."""
    steps = corners if inner == 1 else 2 * corners
    angles = [2 * pi * (step + turned) / steps - pi / 2 for step in range(steps)]
    radii = [size * (1.0 if step % 2 == 0 else inner) for step in range(steps)]
    return _path((r * cos(a), r * sin(a)) for r, a in zip(radii, angles, strict=True))


# The markers of matplotlib, by which a `Look` names them, as paths about a unit.
SHAPES: Mapping[str, str] = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "P": "cross",
    "v": "triangle-down",
    "*": _around(5, inner=0.45, size=1.25),
    "X": _path(
        (x * across, y * down)
        for x, y, corners in ((1, 1, 1), (-1, 1, -1), (-1, -1, 1), (1, -1, -1))
        for across, down in ((0.5, 0), (1, 0.5), (0.5, 1))[::corners]
    ),
    "d": _path([(0, -1.2), (0.6, 0), (0, 1.2), (-0.6, 0)]),
    "p": _around(5),
    "<": "triangle-left",
    ">": "triangle-right",
    "h": _around(6),
    "H": _around(6, turned=0.5),
    "8": _around(8, turned=0.5),
    ".": _around(4, inner=0.4, size=1.1),
}
