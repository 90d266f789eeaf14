"""Text from anywhere does not command a terminal."""

import io

import msgspec
import pytest
from rich.table import Table

from lifelong.printing import Terminal, printable, printable_json

HOSTILE = "\x1b]0;title\x07\x1b[2J\r\x9b1m\u202e[red]é\x7f\ud800"


def test_characters_that_show_nothing_are_shown_as_escapes():
    assert printable("Größe × 2 – [red]") == "Größe × 2 – [red]"
    shown = printable(HOSTILE)
    assert shown == r"\x1b]0;title\x07\x1b[2J\r\x9b1m\u202e[red]é\x7f\ud800"
    assert printable("a\nb\tc") == r"a\nb\tc"


@pytest.mark.parametrize("as_cell", [False, True])
def test_a_terminal_prints_text_and_nothing_else(as_cell):
    written = io.StringIO()
    terminal = Terminal(file=written, width=200, force_terminal=True, color_system=None)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    terminal.print(table if as_cell else HOSTILE, highlight=False)
    shown = written.getvalue()
    assert "[red]é" in shown
    assert shown.replace("\n", "").isprintable()


def test_json_is_ascii_and_means_the_same():
    value = {"a": "\x1b[2J\x9b\x7fé😀", "b": [1.5, None]}
    text = printable_json(value)
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert msgspec.json.decode(text) == value
