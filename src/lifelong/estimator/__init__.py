"""scikit-learn's front: a table in, a model that grows, an answer out."""

from lifelong.extras import require_extra

require_extra("sklearn", "narwhals", extra="tables")

from lifelong.estimator.classifier import LifelongClassifier  # noqa: E402
from lifelong.estimator.regressor import LifelongRegressor  # noqa: E402

__all__ = ["LifelongClassifier", "LifelongRegressor"]
