"""Records as a table."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from opmark.report.console import parameters, print_records
from opmark.schema import Caution, Memory, Record

MakeRecord = Callable[..., Record]
Printed = Callable[..., str]

COLUMNS = [
    "operator", "parameters", "backend", "phase", "median", "interval", "noise", "GB/s", "GFLOP/s", "memory", "status",
]  # fmt: skip
FIGURES = ["1.03 ms", "1.00–1.06", "2.9 %", "2.06", "4.12", "3.00 MiB", "ok"]


def words(text: str) -> str:
    """With one blank wherever there are several, or a line ends."""
    return " ".join(text.split())


def test_the_table_has_the_columns_that_are_asked_for(make_record: MakeRecord, printed: Printed) -> None:
    assert printed([make_record()]).splitlines()[0].split() == COLUMNS


def test_a_row_has_every_figure_of_its_record(make_record: MakeRecord, printed: Printed) -> None:
    row = printed([make_record()]).splitlines()[1]
    cells = re.split(r"\s{2,}", row.strip())
    assert cells == ["matmul", "M=256 N=128 K=64 float32", "null ×2", "forward", *FIGURES]


def test_a_wide_terminal_gets_the_same_table_as_a_file(make_record: MakeRecord, printed: Printed) -> None:
    wide = printed([make_record()], width=200)
    assert [line.rstrip() for line in wide.splitlines()] == [
        line.rstrip() for line in printed([make_record()]).splitlines()
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100])
def test_a_narrow_terminal_loses_no_figure(make_record: MakeRecord, printed: Printed, width: int) -> None:
    text = printed([make_record(), make_record("exp", {"shape": [1024, 1024]}, phase="backward")], width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    found = words(text)
    for part in ("matmul", "M=256", "N=128", "K=64", "float32", "null ×2", "forward", "backward", "1024x1024"):
        assert part in found
    for figure in FIGURES:
        assert found.count(figure) >= 2, figure
    for name in ("interval", "noise", "GB/s", "GFLOP/s", "memory"):
        assert name in found


def test_a_narrow_terminal_folds_a_word_that_is_too_long(make_record: MakeRecord, printed: Printed) -> None:
    name = "operator_with_a_name_that_is_longer_than_the_whole_terminal"
    text = printed([make_record(name, {"n": 1})], width=30)
    assert name in text.replace("\n", "").replace(" ", "")
    assert max(len(line) for line in text.splitlines()) <= 30


def test_a_record_without_a_number_shows_none(make_record: MakeRecord, printed: Printed) -> None:
    row = printed([make_record(status="error", reason="it broke")]).splitlines()[1]
    assert re.split(r"\s{2,}", row.strip()) == ["matmul", "M=256 N=128 K=64 float32", "null ×2", "forward", "error"]


def test_a_record_without_a_cost_has_no_rate(make_record: MakeRecord, printed: Printed) -> None:
    row = printed([make_record(cost=None)]).splitlines()[1]
    assert "1.03 ms" in row
    assert "2.06" not in row


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (Memory(0, 0, "s", 4096), "<4.00 KiB"),
        (Memory(4095, 0, "s", 4096), "<4.00 KiB"),
        (Memory(4096, 0, "s", 4096), "4.00 KiB"),
        (Memory(3 * 2**30, 0, "s", 512), "3.00 GiB"),
    ],
)
def test_memory_below_what_the_counter_sees_is_not_zero(
    make_record: MakeRecord, printed: Printed, memory: Memory, text: str
) -> None:
    row = printed([make_record(memory=memory)]).splitlines()[1]
    assert re.split(r"\s{2,}", row.strip())[-2] == text


# What is written in brackets is no markup.


MARKUP = "[red]not red[/red] [/] [torch]"


@pytest.mark.parametrize("width", [None, 60], ids=["file", "narrow"])
def test_markup_is_printed_as_it_is(make_record: MakeRecord, printed: Printed, width: int | None) -> None:
    caution = Caution(f"code{MARKUP}", f"message {MARKUP}", f"hint {MARKUP}")
    records = [
        make_record(f"op{MARKUP}", {"name": MARKUP}, backend=f"backend{MARKUP}", cautions=[caution]),
        make_record(status="skipped", reason=f"reason {MARKUP}"),
    ]
    found = words(printed(records, width))
    for part in ("op", "name=", "backend", "reason ", "code", "message ", "hint "):
        assert f"{part}{MARKUP}" in found


def test_a_terminal_gets_its_colours(make_record: MakeRecord) -> None:
    out = io.StringIO()
    print_records([make_record(status="wrong")], Console(file=out, width=60, force_terminal=True, no_color=False))
    assert "\x1b[" in out.getvalue()


# What stands below the table.


def test_a_reason_is_given_once_for_all_that_share_it(make_record: MakeRecord, printed: Printed) -> None:
    records = [make_record(params={"M": m, "N": 1, "K": 1}, status="skipped", reason="no GPU") for m in (1, 2, 3)]
    text = printed([*records, make_record(status="error", reason="no GPU")])
    below = text.split("\n\n")[1].splitlines()
    assert below == [
        "matmul M=1 N=1 K=1 float32 and 2 more: skipped: no GPU",
        "matmul M=256 N=128 K=64 float32: error: no GPU",
    ]


def test_a_doubt_is_said_once_a_kind_with_what_to_do(make_record: MakeRecord, printed: Printed) -> None:
    noisy, loaded = Caution("noisy", "by 20 %", "stop other work"), Caution("loaded", "load 9")
    records = [make_record(cautions=[noisy]), make_record("exp", {"shape": [8]}, cautions=[noisy, loaded])]
    text = printed(records)
    assert text.split("\n\n")[1].splitlines() == [
        "! noisy: matmul M=256 N=128 K=64 float32 and 1 more: by 20 %",
        "  hint: stop other work",
        "! loaded: exp 8 float32: load 9",
    ]
    assert text.count("ok !") == 2


def test_without_reasons_and_doubts_there_is_only_the_table(make_record: MakeRecord, printed: Printed) -> None:
    assert len(printed([make_record()]).splitlines()) == 2


def test_no_record_is_a_table_with_its_head_only(printed: Printed) -> None:
    assert printed([]).split() == COLUMNS


# Parameters, short.


@pytest.mark.parametrize(
    ("op", "given", "text"),
    [
        ("matmul", {"M": 1, "N": 2, "K": 3, "dtype": "bfloat16"}, "M=1 N=2 K=3 bfloat16"),
        ("exp", {"shape": [32, 64]}, "32x64 float32"),
        ("layer_norm", {"shape": [8, 8]}, "8x8 float32"),
        ("fault", {"kind": "none", "n": 16}, "kind=none float32"),
        ("fault", {"kind": "none", "n": 17}, "kind=none n=17 float32"),
        ("stranger", {"flag": True, "eps": 1e-05, "axes": [0, 1], "name": "x"}, "flag=true eps=1e-05 axes=0x1 name=x"),
        ("stranger", {}, ""),
    ],
)
def test_parameters_are_short_and_defaults_left_out(
    make_record: MakeRecord, op: str, given: dict[str, object], text: str
) -> None:
    assert parameters(make_record(op, given)) == text


def test_an_element_type_that_is_not_the_only_one_is_named(make_record: MakeRecord) -> None:
    from opmark.registry import operator

    cast = operator("cast")
    params = cast.complete({"shape": [4], "dtype": "float32", "to": "float16"})
    assert parameters(make_record("cast", params)) == "4 float32 to=float16"
