"""What is searched when a method is tuned. The learning rate and the budget are never: they are the
same for all methods.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final


@final
@dataclass(frozen=True)
class Range:
    """Searched on a logarithmic scale, both ends included."""

    low: float
    high: float


Space = Mapping[str, Range]
_MU = Range(0.005, 0.5)
_HEAD = Range(0.002, 0.2)

SPACES: Mapping[str, Space] = MappingProxyType(
    {
        "DNN-STL": {"mu": _MU},
        "DNN-MTL": {"mu": _MU},
        "DNN": {"mu": _MU},
        "DNN-L1": {"mu": _MU},
        "DNN-L2": {"mu": _MU, "strength": Range(1e-4, 1.0)},
        "DNN-EWC": {"mu": _MU, "strength": Range(1.0, 1e4)},
        "SI": {"mu": _MU, "strength": Range(1e-3, 10.0)},
        "IMM-mean": {"mu": _MU, "transfer": Range(1e-4, 1.0)},
        "IMM-mode": {"mu": _MU, "transfer": Range(1e-4, 1.0)},
        "DNN-Progressive": {"mu": _MU},
        "DEN": {
            "mu": _MU,
            "head_l1": _HEAD,
            "gamma": Range(0.1, 3.0),
            "sigma": Range(0.01, 0.3),
        },
        "L2-Selective": {"mu": _MU, "head_l1": _HEAD, "lam": Range(1e-5, 0.1)},
        "DEN-Constant-13": {"mu": _MU, "head_l1": _HEAD},
        "DEN-Constant-20": {"mu": _MU, "head_l1": _HEAD},
        "DEN-Dynamic": {"mu": _MU, "head_l1": _HEAD, "gamma": Range(0.1, 3.0)},
    }
)
