"""What the classifier and the regressor share: learning a table, finding tasks, saving."""

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lifelong.estimator.parameters import require_parameters, seed_of
from lifelong.estimator.rows import Rows, part, read_rows, repeated, weights_of
from lifelong.estimator.saved import Front, Saved, TaskFacts, attached, plain, read
from lifelong.evaluation.measure import LearnsTogether
from lifelong.finding import FoundTasks, TaskFinder
from lifelong.learners.base import Learner
from lifelong.learners.registry import load_model
from lifelong.learners.registry import method as method_named
from lifelong.networks.layout import Architecture
from lifelong.networks.sequential import Sequential, mlp
from lifelong.persistence.manifest import ModelFileError
from lifelong.tables.frames import Column, Table, TableError, read_table
from lifelong.tables.preparation import MOST_CATEGORIES, RAMPS, Preparation
from lifelong.tasks.kinds import Kind, TaskError
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, SettingError

Answers: TypeAlias = NDArray[Any]
_FITTED = (
    *("learner_", "preparation_", "finder_", "tasks_", "classes_", "task_classes_"),
    *("n_features_in_", "feature_names_in_", "chosen_"),
)
# Parameters that the first task settles, and those that each task may change.
_SETTLED = ("method", "network", "categorical", "max_categories", "ramps", "random_state")
_CHANGING = ("settings", "budget")


class LifelongEstimator(BaseEstimator):  # type: ignore[misc]
    """A learner of tables, by scikit-learn's conventions. A task is one call of `partial_fit`."""

    front: ClassVar[Front]

    def __init__(
        self,
        method: str = "DEN",
        *,
        network: Sequence[int] | Architecture = (64, 32),
        settings: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        validation_share: float = 0.2,
        categorical: Sequence[str] = (),
        max_categories: int = MOST_CATEGORIES,
        ramps: int = RAMPS,
        unnamed: Literal["find", "last"] = "find",
        random_state: int | None = 0,
        device: str = "cpu",
        progress: bool = False,
    ) -> None:
        self.method = method
        self.network = network
        self.settings = settings
        self.budget = budget
        self.validation_share = validation_share
        self.categorical = categorical
        self.max_categories = max_categories
        self.ramps = ramps
        self.unnamed = unnamed
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return bool(getattr(self, "tasks_", ()))

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks learned, in order."""
        return tuple(getattr(self, "tasks_", {}))

    # Learning

    def _fit(self, X: Any, y: Any, weights: Any, **given: Any) -> Self:
        """Learn one task, as the only one; if that fails, what was there stays."""
        anew = self._as_now()
        for name in _FITTED:
            anew.__dict__.pop(name, None)
        anew._learn(X, y, weights, **given)
        gone = [name for name in _FITTED if name not in anew.__dict__]
        self.__dict__.update(anew.__dict__)
        for name in gone:
            self.__dict__.pop(name, None)
        return self

    def _as_now(self) -> Self:
        """What it knows now: another thread may learn meanwhile, and changes all at once."""
        now = object.__new__(type(self))
        now.__dict__ = self.__dict__.copy()
        return now

    def __copy__(self) -> Self:
        """A copy that learns for itself."""
        other = self._as_now()
        if self.tasks:
            other.learner_ = self.learner_.with_settings(self.learner_.settings)
        return other

    def _learn(
        self,
        X: Any,
        y: Any,
        weights: Any,
        *,
        task: str | None,
        validation: tuple[Any, Any] | None,
        checkpoint: str | Path | None,
        classes: Any = None,
    ) -> Self:
        self._check_parameters()
        known: dict[str, TaskFacts] = getattr(self, "tasks_", {})
        number = len(known) + 1
        name = f"task {number}" if task is None else task
        where = f"task {name!r}"
        rows = self._read_rows(X, y, weights, where)
        held = None if validation is None else self._held_rows(validation, rows, where)
        facts = self._facts(
            rows.labels if held is None else np.concatenate([rows.labels, held.labels]), classes
        )
        generator = np.random.default_rng([seed_of(self.random_state), number])
        train, valid = (rows, held) if held is not None else self._parted(rows, generator)
        prepared = self._prepared(train.table, number)
        examples = [self._examples(each, prepared, facts, generator) for each in (train, valid)]
        learner = self._going_on() if known else self._learner(prepared)
        finder = getattr(self, "finder_", TaskFinder()).with_task(
            examples[0][0],
            [prepared.transform(valid.table, earlier) for earlier in range(1, number + 1)],
            seed_of(self.random_state),
        )
        chosen = self._choices()  # refuses before the learning what could not be saved after it
        learner.learn(self._task(name, examples, facts, learner), checkpoint=checkpoint)
        after = self._as_now()
        after._know(learner, prepared, finder, {**known, name: facts}, chosen)
        self.__dict__.update(after.__dict__)
        return self

    def _know(
        self,
        learner: Learner[Any],
        prepared: Preparation,
        finder: TaskFinder,
        tasks: dict[str, TaskFacts],
        chosen: dict[str, Any],
    ) -> None:
        """Set all that learning sets."""
        self.learner_, self.preparation_, self.finder_ = learner, prepared, finder
        self.tasks_ = tasks
        self.chosen_ = chosen
        self._tell_classes()
        self._note_columns()

    def _choices(self) -> dict[str, Any]:
        """The parameters that a learner depends on."""
        given = self._parameters()
        return {name: given[name] for name in (*_SETTLED, *_CHANGING)}

    def _going_on(self) -> Learner[Any]:
        """The learner of earlier tasks, by the parameters as they are now."""
        learner: Learner[Any] = self.learner_
        now = self._choices()
        before: dict[str, Any] = getattr(self, "chosen_", now)
        changed = next((name for name in _SETTLED if now[name] != before[name]), None)
        if changed is not None:
            raise SettingError(
                f"{changed} was {before[changed]!r} when the first task was learned, and cannot "
                f"become {now[changed]!r}; use `fit`, or another estimator"
            )
        if all(now[name] == before[name] for name in _CHANGING):
            return learner
        row = method_named(self.method)
        settings = row.settings_with(budget=self.budget, changes=dict(self.settings or {}))
        return learner.going_on_with(settings)

    def _read_rows(self, X: Any, y: Any, weights: Any, where: str) -> Rows:
        """The rows that weigh something, with the columns that are known."""
        if y is None:
            raise TableError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        rows = read_rows(X, y, where)
        weighed = self._weights(rows.labels, weights, where)
        if weighed is not None:
            rows = Rows(rows.table, rows.labels, weighed).take(np.flatnonzero(weighed))
        if not self.tasks:
            return rows
        return replace(rows, table=self._with_known_columns(rows.table, where))

    def _held_rows(self, validation: tuple[Any, Any], rows: Rows, where: str) -> Rows:
        held = read_rows(*validation, f"{where}, validation")
        return replace(held, table=held.table.of(rows.table.names, f"{where}, validation"))

    def _parted(self, rows: Rows, generator: np.random.Generator) -> tuple[Rows, Rows]:
        train, valid = part(self._strata(rows.labels), self.validation_share, generator)
        return rows.take(train), rows.take(valid)

    def _examples(
        self,
        rows: Rows,
        prepared: Preparation,
        facts: TaskFacts,
        generator: np.random.Generator,
    ) -> tuple[NDArray[np.float32], Answers]:
        """Inputs and coded labels, repeated by their weights."""
        if rows.weights is not None:
            rows = rows.take(repeated(rows.weights, self._strata(rows.labels), generator))
        number = len(self.tasks) + 1
        return prepared.transform(rows.table, number), self._coded(rows.labels, facts)

    def _task(
        self,
        name: str,
        examples: Sequence[tuple[NDArray[np.float32], Answers]],
        facts: TaskFacts,
        learner: Learner[Any],
    ) -> Task:
        shape, kind = learner.network.architecture.layout.inputs, self._kind(facts)
        train, valid = ((x.reshape(len(x), *shape), coded) for x, coded in examples)
        outputs = len(facts.classes or ()) if kind is Kind.CLASSES else 1
        return Task(name, train, valid, kind=kind, outputs=outputs)

    def _prepared(self, table: Table, number: int) -> Preparation:
        if number > 1:
            return self.preparation_.extended(table, number)
        return Preparation.fit(
            table,
            categorical=self.categorical,
            max_categories=int(self.max_categories),
            ramps=0 if hasattr(self.network, "layout") else int(self.ramps),
        )

    def _learner(self, prepared: Preparation) -> Learner[Any]:
        row = method_named(self.method)
        if row.finetunes or issubclass(row.learner, LearnsTogether):
            raise SettingError(
                f"{row.name} needs the rows of all tasks at once, and an estimator keeps none; "
                "use another method, such as 'DEN'"
            )
        given: Any = self.network
        network: Architecture = given if hasattr(given, "layout") else mlp(prepared.inputs, given)
        if math.prod(network.layout.inputs) != prepared.inputs:
            raise SettingError(
                f"the network takes inputs of shape {network.layout.inputs}, but the columns make "
                f"{prepared.inputs} inputs; give its widths only, such as network=(64, 32)"
            )
        return row.make(
            network,
            budget=self.budget,
            changes=dict(self.settings or {}),
            seed=seed_of(self.random_state),
            device=self.device,
            progress=self.progress,
        )

    def _check_parameters(self) -> None:
        require_parameters(self.get_params(deep=False))

    def _weights(self, labels: Column, given: Any, where: str) -> NDArray[np.float64] | None:
        return weights_of(given, len(labels), where)

    @abstractmethod
    def _facts(self, labels: Column, classes: Any) -> TaskFacts:
        """What is kept of the labels of a task."""

    def _tell_classes(self) -> None:
        """Set the attributes of a classifier."""

    @abstractmethod
    def _strata(self, labels: Column) -> Answers: ...

    @abstractmethod
    def _kind(self, facts: TaskFacts) -> Kind: ...

    @abstractmethod
    def _coded(self, labels: Column, facts: TaskFacts) -> Answers:
        """Labels as a task has them."""

    # Columns

    def _note_columns(self) -> None:
        prepared: Preparation = self.preparation_
        self.n_features_in_ = len(prepared.columns)
        if prepared.named:
            self.feature_names_in_ = np.array(prepared.names, dtype=object)

    def _with_known_columns(self, table: Table, where: str) -> Table:
        prepared: Preparation = self.preparation_
        if table.named and prepared.named:
            return table.of(prepared.names, where)
        if len(table.columns) != len(prepared.columns):
            raise TableError(
                f"{where}: X has {len(table.columns)} features, but {type(self).__name__} is "
                f"expecting {len(prepared.columns)} features as input"
            )
        if table.named != prepared.named:
            does, was = ("has", "without") if table.named else ("does not have valid", "with")
            warnings.warn(
                f"X {does} feature names, but {type(self).__name__} was fitted {was} feature "
                "names; its columns are taken in their order",
                UserWarning,
                stacklevel=4,
            )
        return replace(table, named=False).of(prepared.names, where)

    def _views(self, X: Any, numbers: Sequence[int]) -> list[NDArray[np.float32]]:
        """The inputs of the rows, as each of these tasks sees them."""
        prepared: Preparation = self.preparation_
        if (
            isinstance(X, np.ndarray)
            and X.ndim == 2
            and X.shape[1] == prepared.plain_numbers
            and X.dtype.kind in "fiub"
            and not prepared.named
        ):
            return [prepared.of_matrix(X, number) for number in numbers]
        table = self._with_known_columns(read_table(X), "X")
        if table.rows == 0:
            raise TableError(
                f"Found array with 0 sample(s) (shape=(0, {len(table.columns)})) while a minimum "
                f"of 1 is required by {type(self).__name__}."
            )
        return [prepared.transform(table, number) for number in numbers]

    # Answers

    def find_task(self, X: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The name of each row's task, and how sure that is, from 0 to 1."""
        now = self._as_now()
        found = now._found(X)
        return np.array(now.tasks, dtype=object)[found.places], found.sure

    def _found(self, X: Any) -> FoundTasks:
        check_is_fitted(self)
        finder: TaskFinder = self.finder_
        return finder.find(self._views(X, range(1, len(self.tasks) + 1)))

    def _number(self, task: str) -> int:
        if task not in self.tasks_:
            raise TaskError(
                f"no task named {task!r} was learned; learned so far: "
                + ", ".join(map(repr, self.tasks_))
            )
        return self.tasks.index(task) + 1

    def _by_task(self, X: Any, task: str | None) -> list[tuple[str, Any, NDArray[np.int64]]]:
        """Each task that answers for some rows, with their inputs and their places."""
        names = self.tasks
        if not names:
            check_is_fitted(self)  # raises; it is slow, which a single row would feel
        if task is None and (len(names) == 1 or self.unnamed == "last"):
            task = names[-1]
        if task is not None:
            inputs = self._views(X, [self._number(task)])[0]
            return [(task, inputs, np.arange(len(inputs)))]
        views = self._views(X, range(1, len(names) + 1))
        places = self.finder_.find(views).places
        return [
            (names[place], views[place][rows := np.flatnonzero(places == place)], rows)
            for place in np.unique(places)
        ]

    def _outputs(self, task: str, inputs: NDArray[np.float32]) -> Answers:
        learner: Learner[Any] = self.learner_
        shape = learner.network.architecture.layout.inputs
        x = inputs if len(shape) == 1 else inputs.reshape(len(inputs), *shape)
        told = learner.outputs(torch.from_numpy(x), task=task)
        return np.asarray(told.cpu().numpy().astype(np.float64))

    # Files

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write model and columns into a directory, replaced together or not at all."""
        check_is_fitted(self)
        learner: Learner[Any] = self.learner_
        learner.attached = attached(
            self.front,
            self._parameters(),
            self.preparation_,
            tuple(self.tasks_.values()),
            self.finder_,
        )
        learner.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote; any defect raises `ModelFileError`."""
        learner = load_model(Path(path))
        if learner.attached is None:
            raise ModelFileError(
                f"{path}: a model without columns, which a learner saved and not a {cls.__name__}; "
                f"load it with {type(learner).__name__}.load"
            )
        try:
            return cls._of(read(learner, cls.front), learner)
        except (msgspec.ValidationError, ValueError, TypeError, KeyError) as error:
            raise ModelFileError(f"{path}: what it knows of columns is damaged: {error}") from error

    @classmethod
    def _of(cls, saved: Saved, learner: Learner[Any]) -> Self:
        given = saved.parameters
        if given.get("network") is None:  # as it was traced, which the model has
            given = {**given, "network": learner.network.architecture}
        estimator = cls(**given)
        estimator._check_parameters()
        for known, own in zip(learner.network.tasks, saved.tasks, strict=True):
            outputs = 1 if own.classes is None or len(own.classes) == 2 else len(own.classes)
            kind = estimator._kind(own)
            # A regressor's loss may change from task to task.
            fits = known.kind is kind or (kind.is_regression and known.kind.is_regression)
            if not fits or known.outputs != outputs:
                raise ValueError(f"the labels of task {known.name!r} are not those of the model")
        tasks = dict(zip(learner.tasks, saved.tasks, strict=True))
        chosen = estimator._choices()
        estimator._know(learner, saved.preparation, saved.finder, tasks, chosen)
        return estimator

    def _parameters(self) -> dict[str, Any]:
        """All parameters as JSON has them."""
        given = self.get_params(deep=False)
        if isinstance(self.random_state, np.random.RandomState):
            given["random_state"] = seed_of(self.random_state)
        network = self.network
        if hasattr(network, "layout") and not isinstance(network, Sequential):
            given["network"] = None  # it is in the model
        given |= {"categorical": list(self.categorical), "device": "cpu"}
        return {name: plain(value) for name, value in given.items()}
