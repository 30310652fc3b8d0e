"""Communication: columns, remarks and JSON keys. The expected numbers were computed by hand."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from opmark.analysis.rows import MachineFacts, rows_of_records
from opmark.report.console.side_by_side import print_side_by_side
from opmark.report.row_view import row_view
from opmark.schema import Record
from opmark.schema.machine import Interconnect, Peaks
from opmark.schema.record import Overlap

MakeRecord = Callable[..., Record]
Printed = Callable[..., str]

SIZE = 1 << 20
"""In 1 ms: 1.048576 GB/s; among 4 ranks half as much again crosses the busiest link, 1.572864 GB/s."""
CHIP = Peaks("Fast", "made up", {}, [], interconnect=[Interconnect("FastLink", 6.291456e9), Interconnect("PCIe", 4e9)])
KNOWN = {"0123456789abcdef": MachineFacts(datasheet=CHIP)}
LATE = ((5e-4,) * 11, (6e-4,) * 11, (1e-3,) * 11, (7e-4,) * 11)
"""Rank 2 is always the slowest, twice as slow as rank 0."""


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_bandwidths_of_the_link_stand_where_those_of_the_chip_would(make_sent: MakeRecord, printed: Printed) -> None:
    head, row = printed([make_sent(SIZE)]).splitlines()[:2]
    assert cells(head) == [
        "operator", "parameters", "backend", "phase", "median", "interval", "noise", "algbw GB/s", "busbw GB/s",
        "memory", "status",
    ]  # fmt: skip
    assert cells(row) == [
        "all_reduce", "size=1M float32 ranks=4", "torch-cpu ×2", "forward", "1.00 ms", "1.00–1.00", "0 %", "1.05",
        "1.57", "ok",
    ]  # fmt: skip


def test_a_table_of_both_has_both_and_each_only_its_own(
    make_sent: MakeRecord, make_record: MakeRecord, printed: Printed
) -> None:
    head, sent, computed = printed([make_sent(SIZE), make_record()]).splitlines()[:3]
    assert cells(head)[7:11] == ["GB/s", "GFLOP/s", "algbw GB/s", "busbw GB/s"]
    assert cells(sent)[7:] == ["1.05", "1.57", "ok"]
    assert cells(computed)[7:] == ["2.06", "4.12", "3.00 MiB", "ok"]


def test_nothing_crosses_a_link_where_there_is_one_rank(make_sent: MakeRecord, printed: Printed) -> None:
    head, row = printed([make_sent(SIZE, params={"ranks": 1}, bus=0.0)]).splitlines()[:2]
    assert "busbw" not in head
    assert cells(row)[-2:] == ["1.05", "ok"]


def test_skew_is_shown_and_who_is_always_late_is_named(make_sent: MakeRecord, printed: Printed) -> None:
    text = printed([make_sent(SIZE, by_rank=LATE), make_sent(2 * SIZE, by_rank=LATE)])
    head, row = text.splitlines()[:2]
    assert cells(head)[9] == "skew"
    assert cells(row)[9] == "50 %"
    assert (
        "! straggler: all_reduce size=1M float32 ranks=4 and 1 more: rank 2 is the slowest in 100 % of the samples, "
        "ranks 50 % apart\n  hint: " in text
    )


@pytest.mark.parametrize(
    ("by_rank", "params"),
    [
        (((9e-4,) * 11, (1e-3,) * 11), {}),
        (((5e-4, 5e-4, 1e-3) * 4, (1e-3, 1e-3, 5e-4) * 4), {}),
        (((5e-4,) * 9, (1e-3,) * 9), {}),
        (((5e-4,) * 11, (1e-3,) * 11), {"root": 0}),
    ],
    ids=["little", "mostly", "few samples", "other work"],
)
def test_not_every_skew_is_somebodys(
    make_sent: MakeRecord, printed: Printed, by_rank: Any, params: dict[str, int]
) -> None:
    text = printed([make_sent(SIZE, op="send", by_rank=by_rank, params=params)])
    assert "skew" in text
    assert "straggler" not in text


def test_of_a_pair_only_its_two_ranks_count(make_sent: MakeRecord) -> None:
    by_rank = ((0.0,) * 7, (8e-4,) * 7, (0.0,) * 7, (1e-3,) * 7)
    seen = row_view(rows_of_records([make_sent(SIZE, op="p2p", by_rank=by_rank, params={"src": 3, "dst": 1})])[0])
    assert seen["metrics"]["skew"] == {"share": pytest.approx(0.2), "slowest": 3, "often": 1.0, "samples": 7}


@pytest.mark.parametrize(
    ("link", "share"), [("peers", "25 %"), ("host", "39 %")], ids=["1.57 of 6.29 GB/s", "1.57 of 4 GB/s"]
)
def test_the_share_of_a_links_peak(make_sent: MakeRecord, printed: Printed, link: str, share: str) -> None:
    head, row = printed([make_sent(SIZE, backend="torch-cuda", link=link)], known=KNOWN).splitlines()[:2]
    assert cells(head)[9] == "of link"
    assert cells(row)[9] == share


def test_more_than_a_link_can_carry_is_doubted(make_sent: MakeRecord, printed: Printed) -> None:
    """15.7 of 6.29 GB/s."""
    text = printed([make_sent(SIZE, 1e-4, backend="torch-cuda"), make_sent(SIZE, backend="torch-xpu")], known=KNOWN)
    assert "! above-link: all_reduce size=1M float32 ranks=4: 250 % of FastLink; at most 100 % is possible" in text
    assert "above-link" not in printed([make_sent(SIZE, backend="torch-cuda")], known=KNOWN)


def test_processes_of_one_host_have_no_link(make_sent: MakeRecord, printed: Printed) -> None:
    assert "of link" not in printed([make_sent(SIZE, backend="torch-cpu")], known=KNOWN)


def test_overlap_is_shown_with_what_it_is_made_of(make_sent: MakeRecord, printed: Printed) -> None:
    """2 and 1 ms alone, 2.5 ms together: half a millisecond of the shorter one is hidden."""
    overlap = Overlap("all_reduce", 2e-3, "matmul", 1e-3, 2.5e-3)
    lines = printed([make_sent(SIZE, overlap=overlap), make_sent(2 * SIZE)]).splitlines()
    assert cells(lines[0])[9] == "overlap"
    assert cells(lines[1])[9] == "50 %"
    assert [cells(line) for line in lines[3:6]] == [
        [""],
        ["overlap", "parameters", "backend", "alone", "beside it, alone", "together", "hidden"],
        ["all_reduce", "size=1M float32 ranks=4", "torch-cpu ×2", "all_reduce 2.00 ms", "matmul 1.00 ms", "2.50 ms",
         "50 %"],
    ]  # fmt: skip


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_a_narrow_terminal_names_what_it_leaves_out(make_sent: MakeRecord, printed: Printed, width: int) -> None:
    overlap = Overlap("all_reduce", 2e-3, "matmul", 1e-3, 2.5e-3)
    sizes = [(SIZE << k, 1e-3 * (k + 1)) for k in range(3)]
    text = printed([make_sent(size, t, by_rank=LATE, overlap=overlap) for size, t in sizes], width=width)
    assert "…" not in text
    words = " ".join(text.split())
    for part in ("algbw GB/s", "busbw GB/s", "skew", "together", "2.50 ms", "hidden", "50 %", "alpha"):
        assert part in words
    assert ("1.57" in words.partition("no room for")[0]) is (width >= 80)


def test_programs_get_the_same_unrounded(make_sent: MakeRecord) -> None:
    overlap = Overlap("all_reduce", 2e-3, "matmul", 1e-3, 2.5e-3)
    record = make_sent(SIZE, by_rank=LATE, overlap=overlap, backend="torch-cuda")
    seen = row_view(rows_of_records([record], machines=KNOWN)[0])
    found = seen["metrics"]
    assert found["algorithm_bandwidth"] == pytest.approx(1.048576e9)
    assert found["bus_bandwidth"] == pytest.approx(1.572864e9)
    assert found["of_link"] == {"share": pytest.approx(0.25), "link": "FastLink"}
    assert found["skew"] == {"share": 0.5, "slowest": 2, "often": 1.0, "samples": 11}
    assert found["overlap"]["share"] == pytest.approx(0.5)
    assert found["overlap"]["together"] == 2.5e-3
    assert (found["bytes_per_second"], found["of_datasheet_peak"]) == (None, None)
    assert seen["quantities"]["latency"]["warm"]["rank_medians"] == [[5e-4, 6e-4, 1e-3, 7e-4]]


def test_what_computes_has_the_keys_and_nothing_in_them(make_record: MakeRecord) -> None:
    found = row_view(rows_of_records([make_record()])[0])["metrics"]
    keys = ("algorithm_bandwidth", "bus_bandwidth", "of_link", "skew", "overlap")
    assert [found[key] for key in keys] == [None] * 5


def test_over_processes_samples_are_pooled_and_overlaps_are_medians(make_sent: MakeRecord) -> None:
    fast, slow = ((1e-3,) * 3, (1e-3,) * 3), ((5e-4,) * 4, (1e-3,) * 4)
    records = tuple(
        make_sent(SIZE, by_rank=by_rank, process=i, overlap=Overlap("a", 2e-3, "b", 1e-3, together))
        for i, (by_rank, together) in enumerate([(fast, 2e-3), (slow, 3e-3), (slow, 2.4e-3)])
    )
    found = row_view(rows_of_records(records)[0])["metrics"]
    assert found["skew"] == {"share": 0.5, "slowest": 1, "often": pytest.approx(8 / 11), "samples": 11}
    assert found["overlap"]["share"] == pytest.approx(0.6)


def test_side_by_side_the_bus_bandwidth_stands_behind_the_time(make_sent: MakeRecord) -> None:
    out = io.StringIO()
    records = [make_sent(SIZE), make_sent(SIZE, 2e-3, backend="torch-cuda")]
    print_side_by_side(records, Console(file=out, width=1000, color_system=None))
    lines = out.getvalue().splitlines()
    assert cells(lines[1]) == ["all_reduce size=1M float32 ranks=4", "1.00 ms * 1.57 GB/s", "2.00 ms 0.786 GB/s"]
    assert "GB/s: bus bandwidth, as of nccl-tests" in lines
