"""scikit-learn's own checks. What is expected to fail, and why, is in docs/tables.md too."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from lifelong import Budget, LifelongClassifier, LifelongRegressor

QUICK = Budget(steps=200, learning_rate=0.02, check_every=20, batch_size=32, patience=3)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "batches and validation rows are drawn: a row of weight 2 and the same row twice are drawn "
        "differently"
    ),
    "check_methods_subset_invariance": (
        "the network computes in float32, whose rounding depends on the size of a batch"
    ),
}


@parametrize_with_checks(
    [
        LifelongClassifier(network=(16,), budget=QUICK),
        LifelongRegressor(network=(16,), budget=QUICK),
    ],
    expected_failed_checks=lambda _estimator: EXPECTED,
)
@pytest.mark.filterwarnings("ignore")
def test_the_conventions_hold(estimator, check):
    check(estimator)
