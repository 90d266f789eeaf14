"""The parameters of both estimators: what they may be, and what to do about one that may not."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lifelong.training.budget import Budget, SettingError

MOST_RAMPS = 100


def require_parameters(given: Mapping[str, Any]) -> None:
    """Refuse what an estimator cannot learn with. scikit-learn wants that when it learns, not when
    it is made.
    """
    method, settings, budget = (given[name] for name in ("method", "settings", "budget"))
    if not isinstance(method, str):
        raise SettingError(f"method must be the name of a method, such as 'DEN', not {method!r}")
    if not isinstance(settings, Mapping | None):
        raise SettingError(f"settings must be a mapping of names to values, not {settings!r}")
    if not isinstance(budget, Budget | None):
        raise SettingError(f"budget must be a Budget, not {budget!r}")
    _require_numbers(given)
    seed_of(given["random_state"])
    _require_columns(given["categorical"])


def seed_of(random_state: Any) -> int:
    """The seed of all that is drawn."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.get_state()[1][0])  # type: ignore[index]
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if not whole or random_state < 0:
        raise SettingError(f"random_state must be a whole number, 0 or more, not {random_state!r}")
    return int(random_state)


def _require_numbers(given: Mapping[str, Any]) -> None:
    share, unnamed = given["validation_share"], given["unnamed"]
    most, ramps = given["max_categories"], given["ramps"]
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise SettingError(f"validation_share must be above 0 and below 1, not {share!r}")
    if unnamed not in ("find", "last"):
        raise SettingError(f"unnamed must be 'find' or 'last', not {unnamed!r}")
    if not isinstance(most, int | np.integer) or most < 1:
        raise SettingError(f"max_categories must be a whole number above 0, not {most!r}")
    if not isinstance(ramps, int | np.integer) or not 0 <= ramps <= MOST_RAMPS:
        raise SettingError(f"ramps must be a whole number from 0 to {MOST_RAMPS}, not {ramps!r}")


def _require_columns(categorical: Any) -> None:
    if isinstance(categorical, str):
        raise SettingError(
            f"categorical must be a list of columns, such as [{categorical!r}], not a name"
        )
    if any(isinstance(column, list | dict) for column in categorical):
        raise SettingError(f"categorical must be a list of columns, not {categorical!r}")
