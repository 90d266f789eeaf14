"""Text from anywhere, made safe to print: names in a file may be written to command a terminal."""

import re
from collections.abc import Iterable
from typing import Any, final

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment


def printable(text: object) -> str:
    """Characters that a terminal obeys, or does not show, as escapes that can be seen."""
    return "".join(c if c.isprintable() else _escape(c) for c in str(text))


def printable_json(value: object) -> str:
    """Indented JSON in ASCII, which every terminal and every encoding takes."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    return re.sub(r"[^\n -~]", lambda found: _json_escape(found[0]), text) + "\n"


@final
class Terminal(Console):
    """A console that prints whatever it is given as text: no markup, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            # What rich itself commands, such as to move up to a progress bar, is marked so.
            yield segment if segment.control else _safe(segment)


def _safe(segment: Segment) -> Segment:
    return Segment("\n".join(map(printable, segment.text.split("\n"))), segment.style)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
