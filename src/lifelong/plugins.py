"""Registries that code and other installed packages can extend.

A package adds a row by an entry point in its `pyproject.toml`:

    [project.entry-points."lifelong.methods"]
    replay = "my_package.replay:REPLAY"
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, TypeVar, final


class PluginError(ValueError):
    """A row that cannot be added; the message names it, and the package that it came from."""


class Named(Protocol):
    """A row of a registry."""

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Named)
_NEAR = 0.6  # share of letters that a name must have in common with a typo of it


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A hint for an error message, with a trailing space; empty if no name is near."""
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(given.lower(), by_lower, n=1, cutoff=_NEAR)
    return f"did you mean {by_lower[near[0]]}? " if near else ""


@final
class Registry(Mapping[str, R]):
    """Rows by name. Those of other packages are loaded at the first access."""

    def __init__(
        self,
        what: str,
        kind: type[R],
        error: type[Exception],
        rows: Iterable[R] = (),
        *,
        added: Callable[[R], None] = lambda _row: None,
    ) -> None:
        self.group = f"lifelong.{what.replace(' ', '')}s"
        self._what, self._kind, self._error, self._added = what, kind, error, added
        self._rows: dict[str, R] = {}
        self._loaded = False
        for row in rows:
            self.add(row)

    def add(self, row: R) -> None:
        """Add a row; the same row may be added twice, in code and by an entry point."""
        if not isinstance(row, self._kind):
            raise PluginError(
                f"a {self._what} must be a {self._kind.__name__}, not a {type(row).__name__}"
            )
        same = {name.lower(): known for name, known in self._rows.items()}.get(row.name.lower())
        if same is not None and same is not row:
            raise PluginError(
                f"there is a {self._what} named {same.name!r} already; give this one another name"
            )
        self._rows[row.name] = row
        self._added(row)

    def named(self, name: str) -> R:
        """The row of this name, ignoring case."""
        found = {known.lower(): row for known, row in self.items()}.get(name.lower())
        if found is None:
            hint = did_you_mean(name, self)
            raise self._error(f"no {self._what} {name!r}; {hint}there are {', '.join(self)}")
        return found

    def __getitem__(self, name: str) -> R:
        self._load()
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._rows)

    def __len__(self) -> int:
        self._load()
        return len(self._rows)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # before loading, since a plugin may access the registry itself
        try:
            for point in entry_points(group=self.group):
                self._load_row(point)
        except PluginError:
            self._loaded = False  # so that the next access raises again
            raise

    def _load_row(self, point: EntryPoint) -> None:
        try:
            self.add(point.load())
        except Exception as error:  # another package may raise anything
            package = "a package" if point.dist is None else f"the package {point.dist.name}"
            raise PluginError(
                f"{package} adds the {self._what} {point.name!r} ({point.value}), which cannot be "
                f"loaded: {type(error).__name__}: {error}; repair or uninstall that package"
            ) from error
