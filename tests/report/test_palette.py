"""Colours of methods: seen on light and dark paper, and told apart with deuteranopia."""

from itertools import combinations

import numpy as np
import pytest

from lifelong.experiments.demo import SHOWN
from lifelong.learners.registry import METHODS
from lifelong.looks import LOOKS, Look, look
from lifelong.report.figures import palette

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
DEUTERANOPIA = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
]
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
WHITE = [0.9505, 1.0, 1.089]


def _lab(colour):
    """CIELAB of a colour as somebody with deuteranopia sees it."""
    srgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = np.array(TO_XYZ) @ np.clip(np.array(DEUTERANOPIA) @ linear, 0, 1) / WHITE
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def _apart(one, other):
    return float(np.linalg.norm(_lab(one) - _lab(other)))


def _shown(methods, dark):
    """The colour of each method on one of the papers."""
    values = palette.variables(methods)
    names = {m: palette.colour(m).removeprefix("var(").removesuffix(")") for m in methods}
    return {method: values[name][dark] for method, name in names.items()}


@pytest.mark.parametrize("dark", [False, True])
def test_methods_of_the_demo_are_told_apart_with_deuteranopia(dark):
    shown = _shown(SHOWN, dark)
    near = {pair: _apart(shown[pair[0]], shown[pair[1]]) for pair in combinations(SHOWN, 2)}
    assert min(near.values()) > 8, sorted(near.items(), key=lambda each: each[1])[:3]


def test_no_two_methods_of_a_page_have_one_shape():
    assert len(set(palette.shapes(SHOWN))) == len(SHOWN)
    every = list(METHODS)
    taken = palette.shapes(every)
    assert len(set(taken[: len(palette.SHAPES)])) == len(palette.SHAPES)


def test_shapes_are_those_of_the_figures_where_they_are_free():
    names = ["DNN-STL", "DNN-MTL", "DNN-EWC"]
    assert palette.shapes(names) == [palette.SHAPES[look(name).marker] for name in names]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_seen_on_both_papers(method):
    on_light, on_dark = _shown([method], False)[method], _shown([method], True)[method]
    assert on_light == LOOKS[method].colour  # that of the printed figures
    assert palette.contrast(on_light, "#ffffff") > 1.7
    assert palette.contrast(on_dark, palette.DARK_PAPER) >= 3


def test_a_colour_that_is_not_written_in_hexadecimal_is_grey(monkeypatch):
    monkeypatch.setitem(LOOKS, "Mine", Look("tab:blue", "?"))
    assert _shown(["Mine"], False)["Mine"] == "#7d8894"
    assert palette.shapes(["Mine"]) == ["circle"]
