"""The table of a run on terminals of the usual widths."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from opmark.schema import Caution, Measurement, Record

MakeRecord = Callable[..., Record]
MakeMeasurement = Callable[..., Measurement]
Printed = Callable[..., str]

WIDTHS = (80, 100, 120, 200)
ATTENTION = {"batch": 1, "heads": 4, "q_len": 128, "kv_len": 128, "head_dim": 64, "causal": True, "dtype": "float32"}


@pytest.fixture
def suite(make_record: MakeRecord) -> list[Record]:
    """Rows as those of the suite `quick`: short and long ones, two phases, two element types, cautions and failures."""
    loaded = Caution("loaded", "other processes kept 1.2 of 2 cores busy; up to 0.3 is usual", "stop them, or wait")
    noisy = Caution("noisy", "samples spread by 17 % of the median; up to 10 % is usual", "look for other load")

    def make(op: str, params: dict[str, Any], **fields: Any) -> Record:
        return make_record(op, params, backend="torch-cpu", implementation="torch", **fields)

    return [
        make("matmul", {"M": 256, "N": 256, "K": 256}, cautions=[noisy, loaded]),
        make("matmul", {"M": 256, "N": 256, "K": 256}, phase="backward", cautions=[loaded]),
        make("matmul", {"M": 512, "N": 512, "K": 64, "dtype": "bfloat16"}),
        make("exp", {"shape": [1024, 1024]}, samples=[1.234e-6] * 7),
        make("layer_norm", {"shape": [8, 8]}, status="error", reason="a library that it needs " + "is not here " * 12),
        *(make("scaled_dot_product_attention", ATTENTION | {"heads": n}) for n in (4, 8)),
    ]


def table_of(text: str) -> list[str]:
    """Head and rows, without the line above."""
    return text.partition("\n\n")[0].splitlines()[1:]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_line_fits_and_every_figure_stands_below_its_head(
    suite: list[Record], printed: Printed, width: int
) -> None:
    text = printed(suite, width)
    assert max(map(len, text.splitlines())) <= width
    head, *lines = [line for line in table_of(text) if not line.startswith("no room")]
    ends = {head_word.end() for head_word in re.finditer(r"\S+(?: \S+)*", head)}
    firsts = [line for line in lines if re.search(r" (ok|error)( !)?$", line)]
    assert len(firsts) == len(suite)
    for line in (line for line in firsts if "error" not in line):
        figures = [match.end() for match in re.finditer(r"\S+(?: (?:[µm]s|[KM]iB|%))?", line)]
        assert {head.index("median") + len("median"), head.index("interval") + len("interval")} <= {*figures}
        assert {end for end in ends if end > head.index("median") and end < head.index("status")} <= {*figures}
    # Lines in between belong to names that are too long for one.
    assert all(line.startswith("  ") and not re.search(r"\d [µm]s", line) for line in lines if line not in firsts)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_word_is_broken(suite: list[Record], printed: Printed, width: int) -> None:
    whole = {word for line in printed(suite).splitlines() for word in line.split()}
    above = "torch-cpu ×2, latency warm; forward and float32 where a row says nothing else"
    below = "no room for noise, GB/s, GFLOP/s, memory: `opmark show --wide` shows every column noise: memory:"
    whole |= {"M=N=K=256", "M=N=512", "q_len=kv_len=128", "case", "samples", *above.split(), *below.split()}
    shown = {word for line in printed(suite, width).splitlines() for word in line.split()}
    assert {word for word in shown if not set("▁▂▃▄▅▆▇█") & set(word)} <= whole


@pytest.mark.parametrize("width", WIDTHS)
def test_what_every_row_shares_is_said_once_above(suite: list[Record], printed: Printed, width: int) -> None:
    above, *rest = printed(suite, width).splitlines()
    assert above == "torch-cpu ×2, latency warm; forward and float32 where a row says nothing else"
    table = "\n".join(table_of("\n".join((above, *rest))))
    assert "torch-cpu" not in table
    assert "forward" not in table
    assert "float32" not in table
    assert table.count("bfloat16") == 1
    assert table.count("backward") == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_one_line_for_a_kind_of_warning(suite: list[Record], printed: Printed, width: int) -> None:
    text = printed(suite, width)
    assert text.count("! loaded, 2 of 7 rows:") == 1
    assert text.count("hint:") == 1
    assert text.count("noisy") == 1


@pytest.mark.parametrize(
    ("width", "left_out"), [(60, "noise, GB/s, GFLOP/s, memory"), (80, "noise, memory"), (120, None), (200, None)]
)
def test_columns_are_chosen_by_width_and_the_others_are_named(
    suite: list[Record], printed: Printed, width: int, left_out: str | None
) -> None:
    text = " ".join(printed(suite, width).split())
    found = re.search(r"no room for (.*?): `opmark show --wide` shows every column", text)
    assert (found[1] if found else None) == left_out


def test_equal_backends_and_phases_leave_no_column(make_record: MakeRecord, printed: Printed) -> None:
    above, head, row = printed([make_record(phase="backward")], 120).splitlines()
    assert above == "null ×2, latency warm, backward, float32"
    assert head.split()[:3] == ["operator", "parameters", "median"]
    assert re.split(r"\s{2,}", row)[:3] == ["matmul", "M=256 N=128 K=64", "1.03 ms"]


@pytest.mark.parametrize("width", WIDTHS)
def test_backends_that_differ_have_a_column(make_record: MakeRecord, printed: Printed, width: int) -> None:
    records = [make_record(backend="torch-cpu", implementation=name) for name in ("unfused", "fused")]
    text = printed(records, width)
    assert text.splitlines()[0] == "latency warm, forward, float32"
    assert "  backend  " in text
    assert text.index("  backend  ") - text.index("\n") == text.splitlines()[2].index("  torch-cpu/unfused ×2  ") + 1
    assert re.search(r"  gain\b", text)


def test_quantities_that_differ_have_a_table_and_further_ones_a_column_each(
    make_record: MakeRecord, make_measurement: MakeMeasurement, printed: Printed
) -> None:
    both = (make_measurement("device_time", "cold", [3e-6] * 9), make_measurement("latency", "warm", [9e-6] * 9))
    above, head, _ = printed([make_record(measurements=both)], 80).splitlines()[:3]
    assert above.startswith("null ×2, device_time cold")
    assert "latency warm" in head
    first, second = printed([make_record(measurements=both), make_record("exp", {"shape": [4]})], 80).split("\n\n")[:2]
    assert first.startswith("null ×2, device_time cold")
    assert re.search(r"3.00 µs .* 9.00 µs", first)
    assert second.startswith("null ×2, latency warm")
    assert "1.03 ms" in second


def test_an_element_type_is_only_left_out_where_every_row_has_one(make_record: MakeRecord, printed: Printed) -> None:
    """A row of a call would seem to have it too."""
    call = make_record("torch.something", {"args": ["8x64 int64", 2], "kwargs": {}, "build": None})
    above, *table = printed([make_record(), make_record(phase="backward"), call], 200).splitlines()
    assert "float32" not in above
    assert sum("float32" in line for line in table) == 2


@pytest.mark.parametrize("width", [20, 30, 40])
def test_a_word_that_is_longer_than_its_column_is_cut(make_record: MakeRecord, printed: Printed, width: int) -> None:
    name = "operator_with_a_name_that_is_longer_than_the_whole_terminal"
    text = printed([make_record(name, {"n": 1})], width)
    rows = [line for line in text.splitlines() if len(line) <= width]
    assert rows == text.splitlines()
    cells = [re.sub(r" +1.03 ms.*", "", line).removeprefix("operator ") for line in rows]
    assert name in "".join(cell.strip() for cell in cells)


@pytest.mark.parametrize("copies", [1, 300])
def test_a_file_has_every_column_in_one_line(make_record: MakeRecord, printed: Printed, copies: int) -> None:
    head, *rows = printed([make_record(params={"M": m, "N": 1, "K": 1}) for m in range(copies)]).splitlines()
    assert head.split()[:5] == ["operator", "parameters", "backend", "phase", "median"]
    assert len(rows) == copies
