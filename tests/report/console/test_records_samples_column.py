"""The column of samples in a table, and colours of tables."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence

import pytest
from rich.console import Console

from opmark.report.console.records import print_records
from opmark.report.console.side_by_side import print_side_by_side
from opmark.report.console.table import MANY
from opmark.schema import Caution, Record

MakeRecord = Callable[..., Record]
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_RISING = "▁▂▃▅▆▇█"
"""The seven samples of a made-up record, each a percent above the one before."""
_TIGHT = 85
"""Columns that are wide enough for a record of these tests, but not for its samples."""


def show(records: Sequence[Record], width: int | None, *, wide: bool = False, coloured: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width or 1000, force_terminal=width is not None,
        color_system="standard" if coloured else None, no_color=not coloured,
    )  # fmt: skip
    print_records(records, console, wide=wide)
    return out.getvalue()


def many(make_record: MakeRecord, count: int) -> list[Record]:
    return [make_record(params={"M": m, "N": 128, "K": 64}) for m in range(1, count + 1)]


@pytest.mark.parametrize("count", [1, MANY + 1], ids=["few", "many"])
@pytest.mark.parametrize(
    ("width", "wide", "drawn"),
    [(None, False, False), (None, True, True), (200, False, True), (_TIGHT, False, False), (85, True, True)],
    ids=["file", "wide-file", "roomy", "tight", "wide-tight"],
)
def test_samples_are_drawn_where_there_is_room_or_where_asked_for(
    make_record: MakeRecord, count: int, width: int | None, wide: bool, drawn: bool
) -> None:
    text = show(many(make_record, count), width, wide=wide)
    assert text.count(_RISING) == (count if drawn else 0)
    assert ("samples" in text) is drawn
    assert ("taken" in text) is wide


def test_samples_of_several_processes_stand_one_behind_the_other(make_record: MakeRecord) -> None:
    records = [make_record(samples=[value] * 3, process=i) for i, value in enumerate((1e-3, 2e-3))]
    assert "▁▁▁███" in show(records, 200)


def test_a_run_of_failures_has_no_column_of_samples(make_record: MakeRecord) -> None:
    assert "samples" not in show([make_record(status="error", reason="broken")], 200, wide=True)


@pytest.mark.parametrize("count", [1, MANY + 1], ids=["few", "many"])
def test_colours_add_nothing_and_take_nothing_away(make_record: MakeRecord, count: int) -> None:
    records = [*many(make_record, count), make_record(status="wrong", reason="off by 1")]
    coloured = show(records, 200, coloured=True)
    assert "\x1b[" in coloured
    assert _ESCAPE.sub("", coloured) == show(records, 200)


@pytest.mark.parametrize("count", [0, MANY + 1], ids=["few", "many"])
@pytest.mark.parametrize(
    ("fields", "painted"),
    [
        ({}, "\x1b[32mok\x1b[0m"),
        ({"cautions": [Caution("noisy", "by 20 %")]}, "\x1b[33mok !\x1b[0m"),
        ({"cautions": [Caution("preempted", "by 20 %")]}, "\x1b[1;31mok !!\x1b[0m"),
        ({"status": "error", "reason": "broken"}, "\x1b[31merror\x1b[0m"),
        ({"status": "skipped", "reason": "no GPU"}, "\x1b[33mskipped\x1b[0m"),
    ],
)
def test_a_status_has_the_colour_of_its_kind(
    make_record: MakeRecord, fields: dict[str, object], painted: str, count: int
) -> None:
    text = show([make_record(**fields), *many(make_record, count)], 200, coloured=True)
    assert painted in re.sub(r" +\x1b\[0m", "\x1b[0m", text)  # Rich fills a column up


def test_what_is_said_below_has_the_colour_of_what_it_is_about(make_record: MakeRecord) -> None:
    records = [
        make_record(cautions=[Caution("noisy", "by 20 %", "stop other work")]),
        make_record("exp", {"shape": [8]}, status="error", reason="broken"),
    ]
    text = show(records, 200, coloured=True)
    assert "\x1b[33m! noisy:" in text
    assert "\x1b[31mexp" in text


def test_side_by_side_the_fastest_is_bold_and_what_is_doubtful_is_yellow(make_record: MakeRecord) -> None:
    out = io.StringIO()
    records = [
        make_record(backend="torch-cpu", samples=[1e-3] * 7),
        make_record(backend="jax-cpu", samples=[2e-3] * 7, cautions=[Caution("noisy", "by 20 %")]),
    ]
    print_side_by_side(
        records, Console(file=out, width=200, force_terminal=True, color_system="standard", no_color=False)
    )
    text = out.getvalue()
    assert re.search(r"\x1b\[1;32m *1.00 ms \*", text)
    assert re.search(r"\x1b\[33m *2.00 ms !", text)
