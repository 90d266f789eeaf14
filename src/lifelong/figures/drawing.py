"""What all charts share: their style, and how they become SVG that stands in a page.

Ink is drawn in a colour that stands for the page's own (`currentColor`), so that a chart is
readable on light and on dark; all other colours must be readable on both.
"""

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from typing import Any

import matplotlib
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

COLORS = {"DEN": "#3b82d6", "DNN-STL": "#d9822b", "DNN-MTL": "#2a9d76"}

_INK = "#010203"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lifelong",  # the same chart, the same text
    "text.parse_math": False,  # a task may be called $x$
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlesize": 9,
    "axes.linewidth": 0.6,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
}


def chart(name: str, alt: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """SVG of what `draw` draws on a figure of this size in inches. `name` is unique in the page."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The browser draws the text; that matplotlib's own font lacks a letter is no matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return _inline(text.getvalue(), name, alt)


def shades(count: int) -> list[str]:
    """So many colours for things in an order, from the first to the last."""
    ramp = colormaps["viridis"]
    return [to_hex(ramp(0.2 + 0.75 * i / max(1, count - 1))) for i in range(count)]


def short(name: str, most: int = 12) -> str:
    """A name that fits at an axis."""
    return name if len(name) <= most else name[: most - 1] + "…"


def _inline(svg: str, name: str, alt: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    opening, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None  # matplotlib always writes one
    rest = re.sub(r'(\sid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", rest)
    label = escape(alt, quote=True)
    return f'<svg {box[0]} role="img" aria-label="{label}">{rest}'.replace(_INK, "currentColor")
