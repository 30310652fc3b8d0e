"""PARAM's table and the lines of JSON, against figures computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from param_comms_runs import record, request_of, rows

from opmark.errors import UserError
from opmark.interop.param.comms.output import JsonFile, header, json_row, line
from opmark.interop.param.comms.rows import CommsRow, figures
from opmark.schema import Record

# By rank, microseconds of five iterations; the slowest of each are 12, 20, 33, 40, 60.
FOUR = [[10, 20, 30, 40, 50], [12, 18, 33, 36, 60], [1, 2, 3, 4, 5], [9, 9, 9, 9, 9]]

HEADER = (
    "\n\tCOMMS-RES                          total-size (B)  nElementsPerRank      Time(us):p50         p75         p95"
    "         Min         Max    AlgBW(GB/s) BusBW(GB/s)   TotalTime(us):p50"
)
# 1048576 B / 33 us = 31.775 GB/s; of four ranks, 2 x 3 / 4 of that = 47.663. p95: 40 + 0.8 x (60 - 40) = 56.
LINE = (
    "\tCOMMS-RES-all_reduce-float32              1048576            262144              33.0        40.0        56.0"
    "        12.0        60.0         31.775      47.663                33.0"
)
PAIR_HEADER = (
    "\n\tCOMMS-RES                                size (B) pingLatency(us):p50       p75       p95"
    "  pingPongLatency(us):p50       p75       p95 avgUniBW(GB/s)  avgBiBW(GB/s)  totalUniBW(GB/s)   totalBiBW(GB/s)"
)
# 10 messages of 4096 B in a mean of 20 us = 2.048 GB/s; both ways count twice, in 32 us = 2.560.
PAIR_LINE = (
    "\tCOMMS-RES-pt2pt-float32-t                    4096                 3.0       4.0       4.8"
    "                      6.0       7.0       7.8          2.048          2.560             2.048             2.560"
)


def all_reduce(*options: str) -> CommsRow:
    (row,) = rows("--collective", "all_reduce", "--ss", "1M", *options, ranks=4)
    return row


def pair() -> tuple[CommsRow, list[Record]]:
    (row,) = rows("--pt2pt", "one2one", "--ss", "4K", "--window", "10", "--tag", "t")
    times = ([1, 2, 3, 4, 5], [4, 5, 6, 7, 8], [10, 20, 30, 20, 20], [32] * 5)
    return row, [record(case, [own, own]) for case, own in zip(row.cases, times, strict=True)]


def test_the_header_has_param_s_words_in_its_order() -> None:
    assert header("all_reduce") == HEADER
    assert header("pt2pt") == PAIR_HEADER


def test_a_line_has_percentiles_of_iterations() -> None:
    row = all_reduce()
    assert line(row, [record(row.cases[0], FOUR)]) == LINE


def test_every_number_stands_below_its_name() -> None:
    assert len(HEADER) - 1 == len(LINE)
    assert len(PAIR_HEADER) - 1 == len(PAIR_LINE)


def test_a_line_of_a_pair() -> None:
    row, records = pair()
    assert line(row, records) == PAIR_LINE


def test_a_line_can_be_split_however_wide_its_numbers_are() -> None:
    (row,) = rows("--collective", "broadcast_object_list", "--ss", "1G", "--tag", "a-tag-that-is-rather-long")
    told = line(row, [record(row.cases[0], [[1e13], [1e12]])])
    assert told is not None
    assert told.split()[:4] == [
        "COMMS-RES-broadcast_object_list-float32-a-tag-that-is-rather-long", "1073741824", "268435456",
        "10000000000000.0",
    ]  # fmt: skip
    assert len(told.split()) == 11


def test_total_time_is_of_all_collectives_of_an_iteration() -> None:
    """The iterations take 12 + 20 and 33 + 40; the median is between 32 and 73."""
    row = all_reduce("--num-coll", "2")
    found = figures(row, record(row.cases[0], [own[:4] for own in FOUR]))
    assert found is not None
    assert found.total == pytest.approx(52.5e-6)
    assert found.time.p50 == pytest.approx(26.5e-6)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("all_reduce", 1.5), ("all_gather", 0.75), ("all_gather_v", 0.75), ("all_gather_base", 0.75),
        ("all_gather_object", 0.75), ("reduce_scatter", 0.75), ("reduce_scatter_v", 0.75),
        ("reduce_scatter_base", 0.75), ("all_to_all", 0.75), ("all_to_allv", 0.75), ("gather", 0.75),
        ("scatter", 0.75), ("reduce", 1), ("broadcast", 1), ("broadcast_object_list", 1), ("multicast", 1),
        ("incast", 1),
    ],
)  # fmt: skip
def test_bandwidths_have_the_factors_of_nccl_tests(name: str, factor: float) -> None:
    (row,) = rows("--collective", name, "--ss", "4096", ranks=4)
    found = figures(row, record(row.cases[0], FOUR))
    assert found is not None
    whole = 3 * 4096 if name == "incast" else 4096
    assert found.algorithm == pytest.approx(whole / 33e-6 / 1e9)
    assert found.bus == pytest.approx(found.algorithm * factor)


def test_a_failed_row_has_no_line() -> None:
    row = all_reduce()
    assert line(row, [record(row.cases[0], FOUR, "timeout", "too long")]) is None
    row, (first, *rest) = pair()
    assert line(row, [record(row.cases[0], [[1], [1]], "error", "no"), *rest]) is None
    assert line(row, [first, *rest]) is not None


def test_a_row_of_json_has_every_sample_of_every_rank() -> None:
    options = ("--collective", "all_reduce", "--ss", "1M", "--z", "1", "--tag", "t")
    (row,) = rows(*options, ranks=4)
    found = json_row(request_of(*options, ranks=4), row, [record(row.cases[0], FOUR)], "run")
    assert json.loads(json.dumps(found)) == found
    assert found["name"] == "COMMS-RES-all_reduce-float32-t"
    assert [found[name] for name in ("collective", "data_type", "tag", "backend", "device")] == [
        "all_reduce", "float32", "t", "gloo", "cpu",
    ]  # fmt: skip
    assert (found["ranks"], found["ranks_of_one"], found["blocking"], found["run"]) == (4, 4, True, "run")
    assert (found["total_size"], found["elements_per_rank"]) == (1 << 20, 1 << 18)
    assert found["time_us"] == pytest.approx({"p50": 33, "p75": 40, "p95": 56, "least": 12, "most": 60})
    assert found["alg_bw"] == pytest.approx(31.775, abs=1e-3)
    assert found["bus_bw"] == pytest.approx(47.6625, abs=1e-3)
    assert found["samples_us"] == pytest.approx([12, 20, 33, 40, 60])
    assert [list(map(round, own)) for own in found["by_rank_us"]] == FOUR
    assert (found["status"], found["verified"]) == ("ok", "full")
    assert found["case"]["op"] == "all_reduce"
    assert found["case"]["params"]["size"] == 1 << 20


def test_a_row_of_a_pair_has_four_parts() -> None:
    row, records = pair()
    found = json_row(request_of("--pt2pt", "one2one"), row, records, "run")
    assert set(found["parts"]) == {"ping", "ping_pong", "one_way", "both_ways"}
    assert found["parts"]["ping"]["samples_us"] == pytest.approx([1, 2, 3, 4, 5])
    assert (found["uni_bw"], found["bi_bw"]) == pytest.approx((2.048, 2.56))
    assert found["ping_pong_us"]["p50"] == pytest.approx(6)


def test_a_row_that_failed_says_why() -> None:
    row = all_reduce()
    found = json_row(request_of(ranks=4), row, [record(row.cases[0], FOUR, "timeout", "too long")], "run")
    assert (found["status"], found["reason"], found["total_size"]) == ("timeout", "too long", 1 << 20)
    assert "time_us" not in found
    assert "samples_us" not in found


def test_lines_are_on_disk_as_they_come(tmp_path: Path) -> None:
    path, row = tmp_path / "below" / "rows.jsonl", all_reduce()
    with JsonFile(path, request_of(ranks=4)) as file:
        for _ in range(2):
            file.write(row, [record(row.cases[0], FOUR)], "run")
            assert json.loads(path.read_text().splitlines()[-1])["total_size"] == 1 << 20
    assert len(path.read_text().splitlines()) == 2


def test_a_file_that_cannot_be_written_is_the_user_s(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"), JsonFile(tmp_path, request_of()):
        pass
