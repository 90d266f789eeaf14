"""The table of all methods, read by the command line, the experiments and the docs.

`register_method` adds a row, and so does an entry point of the group `lifelong.methods`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import msgspec
import torch
from torch import nn

from lifelong.learners.base import AnyLearner, Learner
from lifelong.learners.baselines import (
    APD,
    ER,
    EWC,
    GPM,
    HAT,
    IMM,
    L1,
    L2,
    LPF,
    SI,
    WSN,
    APDSettings,
    ERSettings,
    EWCSettings,
    Finetuning,
    GPMSettings,
    HATSettings,
    IMMSettings,
    Joint,
    L1Settings,
    L2Settings,
    LoRA,
    LoRASettings,
    LPFSettings,
    LwF,
    LwFSettings,
    PackNet,
    PackNetSettings,
    Piggyback,
    PiggybackSettings,
    Progressive,
    ProgressiveSettings,
    SequentialSettings,
    Single,
    SISettings,
    SupSup,
    SupSupSettings,
    TrainingSettings,
    WSNSettings,
)
from lifelong.learners.den import DEN, Settings, variants
from lifelong.looks import LOOKS, Look
from lifelong.networks.layout import Architecture
from lifelong.persistence.files import MOST, NOT_DECODED, read_file
from lifelong.persistence.manifest import MANIFEST, ModelFileError
from lifelong.plugins import Registry
from lifelong.training.budget import Budget, SettingError
from lifelong.training.ranks import Parallel

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
        forgets: whether a later task can change what it answers for an earlier one. If not, answers
            are the same to the bit, however many tasks follow.
        keeps_data: whether it keeps rows of earlier tasks, or needs all of them at once.
        grows: whether the network gets more units or weights with tasks, besides masks and heads.
        per_task: what one more task adds to what predictions need.
        checked: what it was checked against.
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
    forgets: bool = True
    keeps_data: bool = False
    grows: bool = False
    per_task: str = "a head"
    checked: str = ""

    @property
    def needs_task(self) -> bool:
        """Whether every prediction must name its task: a method with one head for all does not."""
        return "heads" not in self.settings_names

    @property
    def settings_names(self) -> tuple[str, ...]:
        """Names of its settings."""
        return tuple(self.settings().__dataclass_fields__)

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
        known = list(self.settings_names)
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
        parallel: Parallel | None = None,
    ) -> Learner[Any]:
        """A new learner, with these changes to the method's settings."""
        settings = self.settings_with(budget=budget, changes=changes)
        return self.learner(
            architecture, settings, seed=seed, device=device, progress=progress, parallel=parallel
        )


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
        forgets=False,
        grows=True,
        per_task="new units and a head",
        checked="the paper's figures",
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
        forgets=True,
        keeps_data=True,
        grows=True,
        per_task="new units and a head",
        checked="the paper's figures",
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
        forgets=False,
        grows=True,
        per_task="changed weights, new units and a head",
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
        forgets=False,
        grows=True,
        per_task="changed weights, new units and a head",
    ),
    Method(
        "DEN (paper)",
        "DEN to the letter, all departures undone",
        DEN,
        variants.paper_settings,
        DEN_PAPER,
        space={"mu": _MU, "head_l1": _HEAD, "gamma": _GAMMA, "sigma": Range(0.01, 10.0)},
        look=Look("#7a3e00", "o", ":"),
        grows=True,
        per_task="new units and a head",
    ),
    Method(
        "DNN-STL",
        "a network for each task",
        Single,
        TrainingSettings,
        DEN_PAPER,
        space={"mu": _MU},
        look=Look("#000000", "s", (0, (4, 2))),
        forgets=False,
        grows=True,
        per_task="a network",
    ),
    Method(
        "DNN-MTL",
        "one network, all tasks at once",
        Joint,
        TrainingSettings,
        DEN_PAPER,
        space={"mu": _MU},
        look=Look("#7f7f7f", "D", (0, (4, 2))),
        keeps_data=True,
        checked="published-split",
    ),
    Method(
        "DNN",
        "fine-tuning: one network, each task in turn",
        Finetuning,
        SequentialSettings,
        DEN_PAPER,
        space={"mu": _MU},
        look=Look("#b8a11f", "H", ":"),
        checked="published-permuted, published-split",
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
        checked="published-split",
    ),
    Method(
        "DNN-EWC",
        "weights held by Fisher's information",
        EWC,
        EWCSettings,
        "Kirkpatrick et al., PNAS 2017",
        space={"mu": _MU, "strength": Range(1.0, 1e4)},
        look=Look("#56b4e9", "P", "-"),
        checked="published-permuted, published-split",
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
        checked="published-permuted, published-split",
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
        forgets=False,
        grows=True,
        per_task="a column",
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
        grows=True,
        per_task="new units and a head",
    ),
    Method(
        "DEN-Constant-20",
        "20 units per layer for every task",
        DEN,
        lambda: variants.constant(20),
        DEN_PAPER,
        space={"mu": _MU, "head_l1": _HEAD},
        look=Look("#5f3dc4", "D", "-"),
        grows=True,
        per_task="new units and a head",
    ),
    Method(
        "DEN-Dynamic",
        "selective retraining and expansion, no split",
        DEN,
        variants.dynamic,
        DEN_PAPER,
        space={"mu": _MU, "head_l1": _HEAD, "gamma": _GAMMA},
        look=Look("#f0308a", "p", "-"),
        grows=True,
        per_task="new units and a head",
    ),
    Method(
        "DEN-No-Stamp",
        "every task served by the whole network",
        DEN,
        variants.no_stamp,
        DEN_PAPER,
        like="DEN",
        look=Look("#882255", "o", (0, (2, 1))),
        grows=True,
        per_task="new units and a head",
    ),
    Method(
        "LPF",
        "the first network, frozen, and a linear head per task",
        LPF,
        LPFSettings,
        "the usual floor; features as in Razavian et al., CVPR workshops 2014",
        in_paper=False,
        space={"mu": _MU},
        look=Look("#999999", ".", ":"),
        forgets=False,
    ),
    Method(
        "LwF",
        "old answers on new rows are kept by distillation",
        LwF,
        LwFSettings,
        "Li and Hoiem, ECCV 2016",
        in_paper=False,
        space={"mu": _MU, "strength": Range(0.1, 10.0)},
        look=Look("#44aa99", "8", "-."),
        checked="published-split",
    ),
    Method(
        "ER",
        "some rows of each task are kept and trained on again",
        ER,
        ERSettings,
        "Chaudhry et al., 2019",
        in_paper=False,
        space={"mu": _MU},
        look=Look("#117733", "H", "-."),
        keeps_data=True,
    ),
    Method(
        "GPM",
        "steps only across the directions of earlier inputs",
        GPM,
        GPMSettings,
        "Saha, Garg and Roy, ICLR 2021",
        in_paper=False,
        space={"mu": _MU, "threshold": Range(0.9, 0.999)},
        look=Look("#332288", "X", "-."),
    ),
    Method(
        "PackNet",
        "prune, freeze, reuse: each weight belongs to one task",
        PackNet,
        PackNetSettings,
        "Mallya and Lazebnik, CVPR 2018",
        in_paper=False,
        space={"share": Range(0.05, 0.75)},
        look=Look("#ddaa33", "s", "--"),
        forgets=False,
        per_task="log2 of the tasks in bits per weight, biases and head",
    ),
    Method(
        "Piggyback",
        "a mask per task over the first task's weights",
        Piggyback,
        PiggybackSettings,
        "Mallya, Davis and Lazebnik, ECCV 2018",
        in_paper=False,
        space={"initial": Range(0.005, 0.05)},
        look=Look("#aa4499", "v", "--"),
        forgets=False,
        per_task="1 bit per weight, biases and head",
    ),
    Method(
        "SupSup",
        "a mask per task over random weights",
        SupSup,
        SupSupSettings,
        "Wortsman et al., NeurIPS 2020",
        in_paper=False,
        space={"share": Range(0.05, 0.75)},
        look=Look("#88ccee", "^", "--"),
        forgets=False,
        per_task="1 bit per weight, biases and head",
    ),
    Method(
        "WSN",
        "a mask per task; used weights are frozen and reused",
        WSN,
        WSNSettings,
        "Kang et al., ICML 2022",
        in_paper=False,
        space={"share": Range(0.03, 0.75)},
        look=Look("#cc6677", "D", "--"),
        forgets=False,
        per_task="1 bit per weight, biases and head",
    ),
    Method(
        "HAT",
        "a mask of units per task, learned by hard attention",
        HAT,
        HATSettings,
        "Serrà et al., ICML 2018",
        in_paper=False,
        space={"c": Range(0.05, 5.0), "s_max": Range(50.0, 800.0)},
        look=Look("#6699cc", "P", "--"),
        forgets=False,
        per_task="1 bit per unit, biases and head",
    ),
    Method(
        "LoRA",
        "the first network plus low-rank changes per task",
        LoRA,
        LoRASettings,
        "after Hu et al., ICLR 2022",
        in_paper=False,
        space={"scale": Range(0.25, 8.0)},
        look=Look("#bb5566", "h", "--"),
        forgets=False,
        grows=True,
        per_task="low-rank factors, biases and head",
    ),
    Method(
        "APD",
        "shared weights plus sparse ones per task",
        APD,
        APDSettings,
        "Yoon, Kim, Yang and Hwang, ICLR 2020",
        in_paper=False,
        space={"lam1": Range(0.02, 2.0), "lam2": Range(10.0, 1e5)},
        look=Look("#004488", "*", "--"),
        grows=True,
        per_task="sparse weights, biases and head",
    ),
)


def _show(row: Method) -> None:
    if row.look is not None:
        LOOKS[row.name] = row.look


METHODS = Registry("method", Method, MethodError, _TABLE, added=_show)
register_method = METHODS.add
method = METHODS.named


@final
class _Named(msgspec.Struct):
    """The member of a manifest that names the method."""

    method: str


def load_model(
    path: str | Path,
    *,
    device: str | torch.device = "cpu",
    progress: bool = False,
    module: nn.Module | None = None,
    parallel: Parallel | None = None,
) -> AnyLearner:
    """Load a saved model of any method; one that `adapt` made needs its `module`."""
    place = Path(path)
    try:
        method = msgspec.json.decode(read_file(place / MANIFEST, most=MOST), type=_Named).method
    except (OSError, *NOT_DECODED):
        method = DEN.method  # raises the right error
    known = {row.learner.method: row.learner for row in METHODS.values()}
    if method not in known:
        raise ModelFileError(
            f"{path}: holds a {method}, which this release does not know; it knows "
            + ", ".join(known)
        )
    return known[method].load(
        place, device=device, progress=progress, module=module, parallel=parallel
    )


def markdown() -> str:
    """The table as docs/baselines.md shows it."""
    head = "| method | what it is | code | from | in the paper |\n|---|---|---|---|---|\n"
    return head + "\n".join(
        f"| {row.name} | {row.about} | `{row.learner.__module__}.{row.learner.__name__}` "
        f"| {row.citation} | {'yes' if row.in_paper else 'no'} |"
        for row in METHODS.values()
    )


TRAITS = (
    "method",
    "forgets",
    "needs the task's name",
    "keeps data",
    "grows",
    "stored per task",
    "from",
    "checked against",
)


def traits() -> list[tuple[str, ...]]:
    """What a user chooses a method by: one row per method, with the columns of `TRAITS`."""

    def say(holds: bool) -> str:
        return "yes" if holds else "no"

    return [
        (
            row.name,
            say(row.forgets),
            say(row.needs_task),
            say(row.keeps_data),
            say(row.grows),
            row.per_task,
            row.citation,
            row.checked,
        )
        for row in METHODS.values()
    ]


def traits_markdown() -> str:
    """The traits as docs/choosing.md shows them."""
    rule = ["---"] * len(TRAITS)
    return "\n".join("| " + " | ".join(line) + " |" for line in (TRAITS, rule, *traits()))
