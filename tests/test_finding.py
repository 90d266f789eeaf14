"""The density of a task's inputs, and finding the task of a row."""

import numpy as np
from hypothesis import example, given
from hypothesis import settings as runs
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from lifelong.finding import Density, TaskFinder


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(8, 60))
@runs(max_examples=25)
@example(seed=11041, inputs=7, rows=19)
def test_the_density_is_that_of_its_normal_distribution(seed, inputs, rows):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, inputs)) @ generator.normal(size=(inputs, inputs))
    density = Density.fit(x)
    directions = density.directions.astype(np.float64)
    covariance = np.diag(density.noise.astype(np.float64)) + directions.T @ directions
    expected = multivariate_normal(density.mean.astype(np.float64), covariance).logpdf(x)
    np.testing.assert_allclose(density.log(x), np.atleast_1d(expected), rtol=1e-3, atol=1e-2)
    # What is kept has 32 bits.
    varies = np.diag(covariance)
    np.testing.assert_allclose(varies, np.maximum(x.var(0), varies), rtol=1e-5)


def test_an_input_that_never_varies_has_a_density_all_the_same():
    x = np.zeros((20, 3))
    assert np.isfinite(Density.fit(x).log(x + 5)).all()


def test_rows_are_given_to_their_task_and_certainty_is_a_share():
    generator = np.random.default_rng(0)
    finder, parts = TaskFinder(), []
    for shift in (0.0, 0.5, 3.0):
        rows = generator.normal(size=(300, 4)) + shift
        parts.append(rows[200:])
        finder = finder.with_task(rows[:200], [parts[-1]] * (len(parts)))
    far = finder.find([parts[2]] * 3)
    assert (far.places == 2).mean() > 0.97
    near = finder.find([parts[1]] * 3)
    assert ((near.sure > 0) & (near.sure <= 1)).all()
    assert near.sure.mean() < far.sure.mean()


def test_it_is_about_as_sure_as_it_is_right():
    generator = np.random.default_rng(1)
    finder, parts = TaskFinder(), []
    for shift in (0.0, 0.6, 1.2, 1.8):
        rows = generator.normal(size=(1500, 3)) + shift
        parts.append(rows[1000:])
        finder = finder.with_task(rows[:1000], [rows[500:1000]] * len(parts))
    found = [finder.find([rows] * 4) for rows in parts]
    right = np.mean([(each.places == place).mean() for place, each in enumerate(found)])
    sure = np.mean([each.sure.mean() for each in found])
    assert abs(sure - right) < 0.15


def test_the_same_rows_make_the_same_density_whatever_the_global_random_state():
    x = np.random.default_rng(2).normal(size=(3000, 5))
    first = Density.fit(x)
    np.random.seed(3)  # noqa: NPY002 (the state that must not matter)
    assert np.array_equal(Density.fit(x).mean, first.mean)
