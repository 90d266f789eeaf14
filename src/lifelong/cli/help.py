"""What `--help` shows: one line per command, no empty defaults, no broken words."""

import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from tyro.conf import arg

_BOX = re.compile(r"^(?:╭| ?[a-z ]+\n ?-{9})", re.MULTILINE)  # in a terminal, or in a file
_WIDEST = 100  # columns of text that are still easy to read

GROUPS = {
    "Your own data": ("learn", "predict", "score", "compare"),
    "A saved model": ("inspect", "report", "export", "serve"),
    "Experiments": ("demo", "list", "data", "run", "table", "figure", "tune", "pack", "reproduce"),
}


def overview(about: str, commands: Mapping[str, Callable[..., None]]) -> str:
    """The commands in groups, one line each."""
    lines = ["usage: lifelong COMMAND ...", "", *about.splitlines()]
    for title, names in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:10} {first_line(commands[name])}" for name in names]
    return "\n".join([*lines, ""])


def first_line(command: Callable[..., None]) -> str:
    """The first line of a docstring, as an entry of a list: without its full stop."""
    return (inspect.getdoc(command) or "").splitlines()[0].removesuffix(".")


def tidy(command: Callable[..., None]) -> Callable[..., None]:
    """Prepare a command for tyro: no hint at a default of nothing, no breaks in sentences."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(group := _kind(hints[name])):
            _tidy_group(group)
            continue
        required = parameter.default is parameter.empty
        if _nothing(parameter.default) or (required and get_origin(_kind(hints[name])) is tuple):
            command.__annotations__[name] = _without_hint(hints[name])
    command.__doc__ = _joined(inspect.getdoc(command) or "")
    return command


def _tidy_group(group: Any) -> None:
    """The same for options that commands share."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        if _nothing(field.default):
            group.__annotations__[field.name] = _without_hint(hints[field.name])
    group.__doc__ = _joined(inspect.getdoc(group) or "")


def rewrapped(text: str) -> str:
    """Help with its paragraphs filled anew; boxes are as wide as the terminal already."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    begin = next(_BOX.finditer(text), None)
    told, boxes = (text, "") if begin is None else (text[: begin.start()], text[begin.start() :])
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", told) if part.strip()]
    filled = [
        textwrap.fill(part, width, break_long_words=False, break_on_hyphens=False)
        for part in paragraphs
    ]
    lines = (line.rstrip() for line in "\n\n".join([*filled, boxes]).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def _nothing(default: object) -> bool:
    return default is None or default is False or default == () or default == ""


def _without_hint(hint: Any) -> Any:
    """The annotation, whose `arg` says nothing about the default."""
    if get_origin(hint) is not Annotated:
        return Annotated[hint, arg(help_behavior_hint="")]
    kind, *given = get_args(hint)
    known = [replace(each, help_behavior_hint="") if _is_arg(each) else each for each in given]
    added = [] if any(map(_is_arg, given)) else [arg(help_behavior_hint="")]
    return Annotated[(kind, *known, *added)]


def _kind(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _is_arg(given: object) -> bool:
    return is_dataclass(given) and hasattr(given, "help_behavior_hint")


def _joined(doc: str) -> str:
    """The docstring with the lines of each description of an argument as one."""
    lines: list[str] = []
    for line in doc.splitlines():
        if line.startswith(" " * 8) and lines:
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines)
