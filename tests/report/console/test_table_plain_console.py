"""The console writes control characters of texts as escapes."""

from __future__ import annotations

import io

import pytest
from made_up import HOSTILE
from rich.text import Text

from opmark.report.console.table import PlainConsole, plain_table


@pytest.mark.parametrize("terminal", [False, True])
def test_what_a_terminal_would_obey_is_written_out(terminal: bool) -> None:
    out = io.StringIO()
    console = PlainConsole(file=out, width=200, force_terminal=terminal, color_system="standard" if terminal else None)
    table = plain_table("name")
    table.add_row(Text(HOSTILE, style="green"))
    console.print(table)
    console.print(Text(HOSTILE))
    text = out.getvalue()
    assert not {"\x9b", "\u202e", "\r"} & set(text)
    assert "\x1b[31m" not in text
    assert text.count("\\x1b[31") == 2
    assert ("\x1b[32m" in text) == terminal


def test_other_text_is_left_alone() -> None:
    out = io.StringIO()
    PlainConsole(file=out, width=200).print(Text("10 µs – 日本 ×2\nsecond"))
    assert out.getvalue() == "10 µs – 日本 ×2\nsecond\n"
