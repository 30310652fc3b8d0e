"""Tables have the same style everywhere."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, integers, lists, text
from rich.console import Console

from opmark.report.console.table import MANY, PlainConsole, print_rows
from opmark.report.text import fold, text_width

HEADS = ["op", "size", "time", "B/A", ""]
ROWS = [
    ["exp", "4x5 float32", "1.0 µs", "12x", ""],
    ["matmul", "M=3", "", "3", "it says so"],
    ["日本", "1", "2", "3", ""],
]


def printed(rows: list[list[str]], *, terminal: bool, width: int = 200) -> list[str]:
    out = Console(file=StringIO(), width=width, force_terminal=terminal, color_system=None, highlight=False)
    print_rows(HEADS, rows, out, who=2)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("copies", [1, MANY])
def test_a_table_looks_the_same_whoever_sets_it(copies: int) -> None:
    """Rich does for few rows on a terminal, plain formatting otherwise."""
    by_rich = printed(ROWS, terminal=True)
    assert by_rich == [
        "op      size           time  B/A",
        "exp     4x5 float32  1.0 µs  12x",
        "matmul  M=3                    3  it says so",
        "日本    1                 2    3",
    ]
    for terminal in (False, True):
        found = printed(ROWS * copies, terminal=terminal)
        assert found == [by_rich[0], *by_rich[1:] * copies]


def test_a_cell_never_breaks_a_line() -> None:
    found = printed([["a\nb", "1", "2", "3", "x\ty"]], terminal=False)
    assert found[1:] == ["a b  1        2    3  x y"]


def test_a_narrow_terminal_with_many_rows_gets_two_lines_a_row() -> None:
    found = printed(ROWS * MANY, terminal=True, width=20)
    assert found[:2] == ["op exp  4x5 float32", "  time 1.0 µs  B/A 12x"]
    assert len(found) == 2 * len(ROWS) * MANY


def test_names_share_a_column_where_that_keeps_figures_aligned() -> None:
    assert printed(ROWS, terminal=True, width=38) == [
        "case          time  B/A",
        "exp 4x5     1.0 µs  12x",
        "  float32",
        "matmul M=3            3  it says so",
        "日本 1           2    3",
    ]


@given(
    words=lists(text(alphabet="ab日x=1 ", max_size=30), min_size=1, max_size=6), width=integers(6, 60), cut=booleans()
)
def test_folding_keeps_every_word_and_the_width(words: list[str], width: int, cut: bool) -> None:
    whole = " ".join(" ".join(words).split())
    lines = fold(whole, width, cut=cut)
    assert "".join(lines).replace(" ", "") == whole.replace(" ", "")
    if cut:
        assert max(map(text_width, lines)) <= width
    else:
        assert " ".join(" ".join(lines).split()) == whole
        assert all(text_width(line) <= width or len(line.split()) == 1 for line in lines)


def test_nothing_in_a_cell_is_obeyed_however_it_is_set() -> None:
    hostile = [["\x1b[31mred", "a\nb", "\u202e1", "\x9b2J", "x"]]
    for copies in (1, MANY + 1):
        for terminal, width in ((False, 200), (True, 200), (True, 20)):
            out = PlainConsole(
                file=StringIO(), width=width, force_terminal=terminal, color_system=None, highlight=False
            )
            print_rows(HEADS, hostile * copies, out, who=2)
            assert not set("\x1b\x9b\u202e") & set(out.file.getvalue())  # type: ignore[attr-defined]
