"""Every method there is, in one table: the command line, the experiments and the docs read it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
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
from lifelong.networks.layout import Architecture
from lifelong.training.budget import Budget, SettingError

DEN_PAPER = "Yoon, Yang, Lee and Hwang, ICLR 2018"


class MethodError(ValueError):
    """A name that is no method's; the message suggests the nearest."""


@final
@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes:
        name: the paper's, or the field's where the paper has none.
        about: what it does, in a few words.
        learner: the class.
        settings: its defaults for this method.
        citation: who proposed it.
        in_paper: whether the paper on DEN measures it.
        finetunes: whether all tasks are trained together at the end, on the structure found.
        like: the method whose tuned settings it takes, where it is that method in another guise.
    """

    name: str
    about: str
    learner: type[Learner[Any]]
    settings: Callable[[], Any]
    citation: str
    in_paper: bool = True
    finetunes: bool = False
    like: str = ""

    @property
    def tuned_as(self) -> str:
        """The method whose tuned settings hold for this one."""
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
        """A learner that has learned nothing yet, with these changes to the method's settings."""
        settings = self.settings_with(budget=budget, changes=changes)
        return self.learner(architecture, settings, seed=seed, device=device, progress=progress)


_TABLE = (
    Method("DEN", "one network that grows, task after task", DEN, Settings, DEN_PAPER),
    Method(
        "DEN-Finetune",
        "DEN, then all tasks together on the structure found",
        DEN,
        Settings,
        DEN_PAPER,
        finetunes=True,
        like="DEN",
    ),
    Method("DNN-STL", "a network for each task", Single, TrainingSettings, DEN_PAPER),
    Method("DNN-MTL", "one network, all tasks at once", Joint, TrainingSettings, DEN_PAPER),
    Method(
        "DNN",
        "fine-tuning: one network, each task in turn",
        Finetuning,
        SequentialSettings,
        DEN_PAPER,
    ),
    Method("DNN-L1", "fine-tuning with l1 on all weights", L1, L1Settings, DEN_PAPER),
    Method("DNN-L2", "fine-tuning anchored at the previous weights", L2, L2Settings, DEN_PAPER),
    Method(
        "DNN-EWC",
        "weights held by Fisher's information",
        EWC,
        EWCSettings,
        "Kirkpatrick et al., PNAS 2017",
    ),
    Method(
        "SI",
        "weights held by what they contributed while learning",
        SI,
        SISettings,
        "Zenke, Poole and Ganguli, ICML 2017",
        in_paper=False,
    ),
    Method(
        "IMM-mean",
        "the tasks' weights merged by their mean",
        IMM,
        lambda: IMMSettings(merge="mean"),
        "Lee et al., NeurIPS 2017",
        in_paper=False,
    ),
    Method(
        "IMM-mode",
        "the tasks' weights merged by Fisher's information",
        IMM,
        lambda: IMMSettings(merge="mode"),
        "Lee et al., NeurIPS 2017",
        in_paper=False,
    ),
    Method(
        "DNN-Progressive",
        "a column for each task, reading all earlier ones",
        Progressive,
        ProgressiveSettings,
        "Rusu et al., 2016",
    ),
    Method(
        "L2-Selective",
        "selective retraining with the anchor, no growth",
        DEN,
        variants.selective_only,
        DEN_PAPER,
    ),
    Method(
        "DEN-Constant-13",
        "13 units a layer for every task",
        DEN,
        lambda: variants.constant(13),
        DEN_PAPER,
    ),
    Method(
        "DEN-Constant-20",
        "20 units a layer for every task",
        DEN,
        lambda: variants.constant(20),
        DEN_PAPER,
    ),
    Method(
        "DEN-Dynamic",
        "selective retraining and expansion, no split",
        DEN,
        variants.dynamic,
        DEN_PAPER,
    ),
    Method(
        "DEN-No-Stamp",
        "every task served by the whole network",
        DEN,
        variants.no_stamp,
        DEN_PAPER,
        like="DEN",
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _TABLE})


def method(name: str) -> Method:
    """The method of this name, in whatever case."""
    by_lower = {known.lower(): row for known, row in METHODS.items()}
    found = by_lower.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), by_lower, n=1)
        hint = f"did you mean {by_lower[near[0]].name}? " if near else ""
        raise MethodError(f"no method {name!r}; {hint}there are {', '.join(METHODS)}")
    return found


def markdown() -> str:
    """The table as docs/baselines.md shows it."""
    head = "| method | what it is | code | from | in the paper |\n|---|---|---|---|---|\n"
    return head + "\n".join(
        f"| {row.name} | {row.about} | `{row.learner.__module__}.{row.learner.__name__}` "
        f"| {row.citation} | {'yes' if row.in_paper else 'no'} |"
        for row in METHODS.values()
    )
