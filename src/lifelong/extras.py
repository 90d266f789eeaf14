"""Optional dependencies."""

from importlib.util import find_spec


class MissingExtraError(ImportError):
    """A library that is not installed; the message says what to install."""


def require_extra(*packages: str, extra: str) -> None:
    """Raise unless all of these can be imported; `extra` of pyproject.toml installs them."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise MissingExtraError(
            f"this needs {' and '.join(missing)}, which the extra {extra!r} installs: "
            f"pip install 'lifelong[{extra}]'"
        )
