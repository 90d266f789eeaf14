"""The table of all methods, read by the command line, the experiments and the docs.

`register_method` adds a row, and so does an entry point of the group `lifelong.methods`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, final

import torch

from lifelong.learners.base import Learner
from lifelong.learners.baselines import (
    EWC,
    IMM,
    L1,
    L2,
    SI,
    EWCSettings,
    Finetuning,
    IMMSettings,
    Joint,
    L1Settings,
    L2Settings,
    Progressive,
    ProgressiveSettings,
    SequentialSettings,
    Single,
    SISettings,
    TrainingSettings,
)
from lifelong.learners.den import DEN, Settings, variants
from lifelong.looks import LOOKS, Look
from lifelong.networks.layout import Architecture
from lifelong.plugins import Registry
from lifelong.training.budget import Budget, SettingError

DEN_PAPER = "Yoon, Yang, Lee and Hwang, ICLR 2018"


class MethodError(ValueError):
    """An unknown method; the message suggests the nearest name."""


@final
@dataclass(frozen=True)
class Range:
    """Search range on a logarithmic scale, including both ends."""

    low: float
    high: float


@final
@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes:
        name: as in the paper, or in the literature if the paper does not have the method.
        about: a short description.
        learner: the class.
        settings: makes its default settings for this method.
        citation: the paper that proposed it.
        in_paper: whether the paper on DEN measures it.
        finetunes: whether all tasks are trained together at the end (DEN-Finetune).
        like: the method whose tuned settings it uses, for a variant that is not tuned itself.
        space: the settings that tuning searches, with their ranges. The learning rate and the
            budget are never searched: they are the same for all methods.
        look: colour and marker in the figures; if None, derived from the name.
    """

    name: str
    about: str
    learner: type[Learner[Any]]
    settings: Callable[[], Any]
    citation: str
    in_paper: bool = True
    finetunes: bool = False
    like: str = ""
    space: Mapping[str, Range] = field(default_factory=dict)
    look: Look | None = None

    @property
    def tuned_as(self) -> str:
        """The method whose tuned settings this one uses."""
        return self.like or self.name

    def settings_with(
        self, *, budget: Budget | None = None, changes: Mapping[str, Any] = MappingProxyType({})
    ) -> Any:
        """The method's settings with these changes."""
        settings = self.settings()
        given = {**({} if budget is None else {"budget": budget}), **changes}
        known = list(settings.__dataclass_fields__)
        for name in given:
            if name not in known:
                raise SettingError(f"{self.name} has no setting {name!r}; it has {known}")
        return replace(settings, **given)

    def make(
        self,
        architecture: Architecture,
        *,
        budget: Budget | None = None,
        changes: Mapping[str, Any] = MappingProxyType({}),
        seed: int = 0,
        device: str | torch.device = "cpu",
        progress: bool = False,
    ) -> Learner[Any]:
        """A new learner, with these changes to the method's settings."""
        settings = self.settings_with(budget=budget, changes=changes)
        return self.learner(architecture, settings, seed=seed, device=device, progress=progress)


_MU = Range(0.005, 0.5)
_HEAD = Range(0.002, 0.2)
_GAMMA = Range(0.1, 3.0)

# The colour-blind-safe palette of Okabe and Ito, extended.
_TABLE = (
    Method(
        "DEN",
        "one network that grows, task after task",
        DEN,
        Settings,
        DEN_PAPER,
        space={"mu": _MU, "head_l1": _HEAD, "gamma": _GAMMA, "sigma": Range(0.01, 0.3)},
        look=Look("#d55e00", "o", "-", 2.0),
    ),
    Method(
        "DEN-Finetune",
        "DEN, then all tasks together on the structure found",
        DEN,
        Settings,
        DEN_PAPER,
        finetunes=True,
        like="DEN",
        look=Look("#cc79a7", "*", "-"),
    ),
    Method(
        "DEN-W",
        "DEN whose tasks overwrite single weights instead of copying units",
        DEN,
        variants.by_weights,
        DEN_PAPER,
        in_paper=False,
        space={"mu": _MU, "head_l1": _HEAD, "keep": Range(0.01, 0.2)},
        look=Look("#b2182b", "X", "-"),
    ),
    Method(
        "DEN-auto",
        "DEN whose tasks store what validation says is worth its bytes",
        DEN,
        variants.by_need,
        DEN_PAPER,
        in_paper=False,
        space={"mu": _MU, "head_l1": _HEAD},
        look=Look("#d6201f", "o", "-", 2.4),
    ),
    Method(
        "DEN (paper)",
        "DEN to the letter, all departures undone",
        DEN,
        variants.paper_settings,
        DEN_PAPER,
        space={"mu": _MU, "head_l1": _HEAD, "gamma": _GAMMA, "sigma": Range(0.01, 10.0)},
        look=Look("#7a3e00", "o", ":"),
    ),
    Method(
        "DNN-STL",
        "a network for each task",
        Single,
        TrainingSettings,
        DEN_PAPER,
        space={"mu": _MU},
        look=Look("#000000", "s", (0, (4, 2))),
    ),
    Method(
        "DNN-MTL",
        "one network, all tasks at once",
        Joint,
        TrainingSettings,
        DEN_PAPER,
        space={"mu": _MU},
        look=Look("#7f7f7f", "D", (0, (4, 2))),
    ),
    Method(
        "DNN",
        "fine-tuning: one network, each task in turn",
        Finetuning,
        SequentialSettings,
        DEN_PAPER,
        space={"mu": _MU},
        look=Look("#b8a11f", "x", ":"),
    ),
    Method(
        "DNN-L1",
        "fine-tuning with l1 on all weights",
        L1,
        L1Settings,
        DEN_PAPER,
        space={"mu": _MU},
        look=Look("#8c5a3c", "v", "-."),
    ),
    Method(
        "DNN-L2",
        "fine-tuning anchored at the previous weights",
        L2,
        L2Settings,
        DEN_PAPER,
        space={"mu": _MU, "strength": Range(1e-4, 1.0)},
        look=Look("#e69f00", "^", "-"),
    ),
    Method(
        "DNN-EWC",
        "weights held by Fisher's information",
        EWC,
        EWCSettings,
        "Kirkpatrick et al., PNAS 2017",
        space={"mu": _MU, "strength": Range(1.0, 1e4)},
        look=Look("#56b4e9", "P", "-"),
    ),
    Method(
        "SI",
        "weights held by what they contributed while learning",
        SI,
        SISettings,
        "Zenke, Poole and Ganguli, ICML 2017",
        in_paper=False,
        space={"mu": _MU, "strength": Range(1e-3, 10.0)},
        look=Look("#4c6a92", "h", "-."),
    ),
    Method(
        "IMM-mean",
        "the tasks' weights merged by their mean",
        IMM,
        lambda: IMMSettings(merge="mean"),
        "Lee et al., NeurIPS 2017",
        in_paper=False,
        space={"mu": _MU, "transfer": Range(1e-4, 1.0)},
        look=Look("#a6761d", "<", "-."),
    ),
    Method(
        "IMM-mode",
        "the tasks' weights merged by Fisher's information",
        IMM,
        lambda: IMMSettings(merge="mode"),
        "Lee et al., NeurIPS 2017",
        in_paper=False,
        space={"mu": _MU, "transfer": Range(1e-4, 1.0)},
        look=Look("#66a61e", ">", "-."),
    ),
    Method(
        "DNN-Progressive",
        "a column for each task, reading all earlier ones",
        Progressive,
        ProgressiveSettings,
        "Rusu et al., 2016",
        space={"mu": _MU},
        look=Look("#009e73", "d", "-"),
    ),
    Method(
        "L2-Selective",
        "selective retraining with the anchor, no growth",
        DEN,
        variants.selective_only,
        DEN_PAPER,
        space={"mu": _MU, "head_l1": _HEAD, "lam": Range(1e-5, 0.1)},
        look=Look("#0072b2", "o", "-"),
    ),
    Method(
        "DEN-Constant-13",
        "13 units per layer for every task",
        DEN,
        lambda: variants.constant(13),
        DEN_PAPER,
        space={"mu": _MU, "head_l1": _HEAD},
        look=Look("#9b7fd4", "s", "-"),
    ),
    Method(
        "DEN-Constant-20",
        "20 units per layer for every task",
        DEN,
        lambda: variants.constant(20),
        DEN_PAPER,
        space={"mu": _MU, "head_l1": _HEAD},
        look=Look("#5f3dc4", "D", "-"),
    ),
    Method(
        "DEN-Dynamic",
        "selective retraining and expansion, no split",
        DEN,
        variants.dynamic,
        DEN_PAPER,
        space={"mu": _MU, "head_l1": _HEAD, "gamma": _GAMMA},
        look=Look("#f0308a", "p", "-"),
    ),
    Method(
        "DEN-No-Stamp",
        "every task served by the whole network",
        DEN,
        variants.no_stamp,
        DEN_PAPER,
        like="DEN",
        look=Look("#882255", "o", (0, (2, 1))),
    ),
)


def _show(row: Method) -> None:
    if row.look is not None:
        LOOKS[row.name] = row.look


METHODS = Registry("method", Method, MethodError, _TABLE, added=_show)
register_method = METHODS.add
method = METHODS.named


def markdown() -> str:
    """The table as docs/baselines.md shows it."""
    head = "| method | what it is | code | from | in the paper |\n|---|---|---|---|---|\n"
    return head + "\n".join(
        f"| {row.name} | {row.about} | `{row.learner.__module__}.{row.learner.__name__}` "
        f"| {row.citation} | {'yes' if row.in_paper else 'no'} |"
        for row in METHODS.values()
    )
