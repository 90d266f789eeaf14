"""The budget of a training, and the checks that all settings classes share."""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import wraps
from math import ceil
from typing import Any, Literal, TypeVar, final

import numpy as np
from msgspec import UNSET, UnsetType

T = TypeVar("T")
MOST = 1e15  # of a setting: the product of two of them is a number in float32


class SettingError(ValueError):
    """A setting out of its range; the message names it, what came and what is allowed."""


def require(name: str, value: float, allowed: str, holds: Callable[[float], bool]) -> None:
    """Refuse a setting that is not a finite number for which `holds` is true."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Compared and not converted: a whole number may be larger than any float.
    if not number or not abs(value) <= sys.float_info.max or not holds(value):
        raise SettingError(f"{name} must be {allowed} and finite, not {value!r}")
    if abs(value) > MOST:
        raise SettingError(f"{name} must be {allowed} and at most {MOST:g}, not {value!r}")


def plain_numbers(settings: object) -> None:
    """Make Python's own numbers of NumPy's, which a model file could not hold; called by each
    settings class before it checks its settings.
    """
    for name, value in vars(settings).items():
        if isinstance(value, np.generic):
            object.__setattr__(settings, name, value.item())
        elif isinstance(value, list | tuple | np.ndarray):
            plain = [item.item() if isinstance(item, np.generic) else item for item in value]
            object.__setattr__(settings, name, plain if isinstance(value, list) else tuple(plain))


def _whole(value: float) -> bool:
    return isinstance(value, int)


def renamed(**names: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: names that settings had in earlier versions, as `old="new"`.

    An old name in code raises an error that states the new one; files with old names still load.
    """

    def decorate(cls: type[T]) -> type[T]:
        initialise = cls.__init__

        @wraps(initialise)
        def checked(self: T, *args: Any, **given: Any) -> None:
            for old in sorted(names.keys() & given.keys() - set(_fields(cls))):
                raise SettingError(
                    f"{cls.__name__} has no setting {old!r} any more: it is called {names[old]!r}"
                )
            initialise(self, *args, **given)

        cls.__init__ = checked  # type: ignore[method-assign, assignment]
        cls.renamed = names  # type: ignore[attr-defined]
        return cls

    return decorate


def _fields(cls: type[Any]) -> Collection[str]:
    return getattr(cls, "__dataclass_fields__", {})


def with_new_names(settings: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Settings from a file, with old names replaced by the current ones.

    Where the new name is there as well, the old one has a new meaning.
    """
    old, kinds = getattr(kind, "renamed", {}), {"budget": Budget}
    names = {name: new for name, new in old.items() if new not in settings}
    return {
        names.get(name, name): with_new_names(value, kinds[name])
        if name in kinds and isinstance(value, dict)
        else value
        for name, value in settings.items()
    }


def complete(settings: T) -> T:
    """Settings that were converted from plain data, with the defaults of what was missing.

    msgspec leaves these out of a dataclass, so that they would be missing when it is stored again.
    """
    made: Any = settings
    nested = {name: v for name, v in vars(made).items() if is_dataclass(v)}
    return replace(made, **{n: replace(v) for n, v in nested.items()})  # type: ignore


@renamed(batch="batch_size", cuts="lr_decays", cut="lr_decay")
@final
@dataclass(frozen=True)
class Budget:
    """Length and learning-rate schedule of one training.

    Attributes:
        steps: maximum number of steps.
        batch_size: rows per step; all rows if there are fewer.
        learning_rate: of the optimiser, and the step size of the proximal maps.
        check_every: steps between two validations.
        patience: validations without improvement before the learning rate decays.
        lr_decays: number of decays; training ends when patience runs out after the last one.
        lr_decay: factor by which the learning rate is multiplied.
        epochs: passes over the rows in place of `steps`; if it is None, `steps` holds. Of several
            tasks together, passes over the largest.
        optimizer: "adam", or "sgd" with this `momentum`.
        momentum: of SGD.
        weight_decay: times each entry that may move, added to its gradient.
        precision: "bfloat16" for training steps that multiply matrices in 16 bits, by autocast;
            weights, losses and validation stay in float32. Left out, all is float32.
    """

    steps: int = 6000
    batch_size: int = 256
    learning_rate: float = 1e-3
    check_every: int = 40
    patience: int = 5
    lr_decays: int = 1
    lr_decay: float = 0.3
    epochs: int | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.0
    weight_decay: float = 0.0
    # Not stored if it is left out, so that the keys of runs without it stay what they were.
    precision: Literal["bfloat16"] | UnsetType = UNSET

    def __post_init__(self) -> None:
        plain_numbers(self)
        for name in ("steps", "batch_size", "check_every", "patience"):
            require(
                name, getattr(self, name), "a whole number above 0", lambda v: _whole(v) and v > 0
            )
        require(
            "lr_decays", self.lr_decays, "a whole number, 0 or more", lambda v: _whole(v) and v >= 0
        )
        require("learning_rate", self.learning_rate, "above 0", lambda v: v > 0)
        require("lr_decay", self.lr_decay, "above 0 and below 1", lambda v: 0 < v < 1)
        if self.epochs is not None:
            whole = "a whole number above 0, or None"
            require("epochs", self.epochs, whole, lambda v: _whole(v) and v > 0)
        require_one_of("optimizer", self.optimizer, ("adam", "sgd"))
        require("momentum", self.momentum, "0 or more and below 1", lambda v: 0 <= v < 1)
        require("weight_decay", self.weight_decay, "0 or more", lambda v: v >= 0)
        if self.precision is not UNSET:
            require_one_of("precision", self.precision, ("bfloat16",))
        if self.momentum and self.optimizer == "adam":
            raise SettingError(
                f"momentum is SGD's, not {self.momentum!r} with Adam, which has its own; use "
                "optimizer='sgd', or momentum=0"
            )

    def in_steps(self, rows: int) -> "Budget":
        """The same budget for a training on so many rows, with its epochs as steps."""
        if self.epochs is None:
            return self
        return replace(self, steps=self.epochs * ceil(rows / self.batch_size), epochs=None)


def require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a setting that is not one of the allowed words."""
    if value not in allowed:
        raise SettingError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
