"""Text from anywhere, made safe to print: names in a file may be written to command a terminal."""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

_UNLIMITED = 10_000  # columns of a pipe
_LEAST_NAME = 8  # characters that a name keeps
_APART = "  "  # between columns


def printable(text: object) -> str:
    """Characters that a terminal obeys, or does not show, as escapes that can be seen."""
    return "".join(c if c.isprintable() else _escape(c) for c in str(text))


def printable_json(value: object) -> str:
    """Indented JSON in ASCII, which every terminal and every encoding takes."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    return re.sub(r"[^\n -~]", lambda found: _json_escape(found[0]), text) + "\n"


@final
@dataclass(frozen=True)
class Grid:
    """A table whose numbers are never cut: names shrink first, then columns go to a next block.

    Attributes:
        columns: headings.
        rows: a cell for each column.
        names: headings of the columns of text, which may shrink; what is up to the first of them
            begins every block.
        title, caption: lines above and below.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: Collection[str]
    title: str = ""
    caption: str = ""

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="bold")
        for place, block in enumerate(self.blocks(options.max_width)):
            if place:
                yield ""
            yield self._table(block, options.max_width)
        if self.caption:
            yield Text(self.caption, style="dim italic")

    def blocks(self, width: int) -> list[list[int]]:
        """The columns of each block that fits into a width, numbers whole and names shrunk."""
        lead = 1 + next(i for i, name in enumerate(self.columns) if name in self.names)
        first = list(range(lead))
        blocks = [first]
        for column in range(lead, len(self.columns)):
            block = [*blocks[-1], column]
            if self._spare(block, width) < 0 and blocks[-1] != first:
                block = [*first, column]
                blocks.append(block)
            else:
                blocks[-1] = block
        return blocks

    def _spare(self, block: Sequence[int], width: int) -> int:
        """The room that is left in a width for names to be longer than they must."""
        return width - sum(map(self._least, block)) - len(_APART) * (len(block) - 1)

    def _widest(self, column: int) -> int:
        return max(cell_len(line[column]) for line in (self.columns, *self.rows))

    def _least(self, column: int) -> int:
        widest = self._widest(column)
        return min(widest, _LEAST_NAME) if self.columns[column] in self.names else widest

    def _table(self, block: Sequence[int], width: int) -> Table:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        spare = max(0, self._spare(block, width))
        for column in block:
            heading, least = self.columns[column], self._least(column)
            wide = min(self._widest(column), least + spare)
            spare -= wide - least
            justify: Literal["left", "right"] = "left" if heading in self.names else "right"
            table.add_column(heading, justify=justify, no_wrap=True, width=wide)
        for row in self.rows:
            table.add_row(*(Text(row[column]) for column in block))
        return table


@final
class Terminal(Console):
    """A console that prints whatever it is given as text: no markup, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)
        told = "width" in options or "COLUMNS" in os.environ
        if not self.is_terminal and not told:  # a pipe or a file has no width to keep to
            self.width = _UNLIMITED

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
