"""Matrices of pairs of ranks."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

from opmark.schema import Record

MakeRecord = Callable[..., Record]
Printed = Callable[..., str]


def matrices(text: str) -> dict[str, list[list[str]]]:
    """Cells by title."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return {
        block[0]: [re.split(r"\s{2,}", line.strip()) for line in block[1:]]
        for block in blocks
        if len(block) > 1 and "from \\ to" in block[1]
    }


def sent(make: MakeRecord, src: int, dst: int, size: int, seconds: float) -> Record:
    return make(size, seconds, op="p2p_like", params={"ranks": 3, "src": src, "dst": dst}, bus=float(size))


def test_pairs_of_one_size_have_a_matrix_of_bandwidth_and_one_of_latency(
    make_sent: MakeRecord, printed: Printed
) -> None:
    """10 MB in 1, 2 and 4 ms: 10, 5 and 2.5 GB/s."""
    pairs = [(0, 1, 1e-3), (1, 0, 2e-3), (0, 2, 4e-3)]
    text = printed([sent(make_sent, src, dst, 10**7, seconds) for src, dst, seconds in pairs])
    assert matrices(text) == {
        "p2p_like ranks=3 on torch-cpu ×2, size=10000000: algbw GB/s": [
            ["from \\ to", "0", "1", "2"], ["0", "-", "10.0", "2.50"], ["1", "5.00", "-", "-"],
        ],
        "p2p_like ranks=3 on torch-cpu ×2, size=10000000: latency ms": [
            ["from \\ to", "0", "1", "2"], ["0", "-", "1.00", "4.00"], ["1", "2.00", "-", "-"],
        ],
    }  # fmt: skip


def test_of_several_sizes_the_latency_is_of_the_smallest_and_the_bandwidth_of_the_largest(
    make_sent: MakeRecord, printed: Printed
) -> None:
    records = [
        sent(make_sent, src, 1 - src, size, t)
        for src in (0, 1)
        for size, t in ((8, 5e-6), (1 << 10, 6e-6), (1 << 20, 1e-3))
    ]
    found = matrices(printed(records))
    assert [title.rpartition(", ")[2] for title in found] == ["size=1M: algbw GB/s", "size=8: latency µs"]
    assert [rows[1][2] for rows in found.values()] == ["1.05", "5.00"]


def latencies(text: str) -> dict[str, list[list[str]]]:
    return {title.rpartition(", ")[2]: rows for title, rows in matrices(text).items() if "latency" in title}


def test_the_unit_is_that_of_the_links_and_not_of_a_copy_to_itself(make_sent: MakeRecord, printed: Printed) -> None:
    pairs = [(0, 0, 3e-7), (0, 1, 2.5e-3), (1, 0, 2e-3), (1, 1, 4e-7)]
    assert latencies(printed([sent(make_sent, src, dst, 1024, t) for src, dst, t in pairs])) == {
        "size=1K: latency ms": [["from \\ to", "0", "1"], ["0", "0.000300", "2.50"], ["1", "2.00", "0.000400"]]
    }


def test_with_nothing_but_copies_to_itself_theirs_is_the_unit(make_sent: MakeRecord, printed: Printed) -> None:
    assert list(latencies(printed([sent(make_sent, i, i, 1024, 3e-7) for i in (0, 1)]))) == ["size=1K: latency ns"]


def test_the_size_is_the_one_that_was_asked_for(make_sent: MakeRecord, printed: Printed) -> None:
    records = [
        make_sent(1032, 1e-3, op="p2p_like", params={"size": 1024, "ranks": 2, "src": src, "dst": 1 - src}, bus=1032.0)
        for src in (0, 1)
    ]
    assert [title.rpartition(", ")[2] for title in matrices(printed(records))] == [
        "size=1K: algbw GB/s",
        "size=1K: latency ms",
    ]


def test_one_pair_is_no_matrix(make_sent: MakeRecord, printed: Printed) -> None:
    assert "from" not in printed([sent(make_sent, 0, 1, size, 1e-3) for size in (8, 16)])


def test_what_has_no_number_leaves_its_place_empty(make_sent: MakeRecord, printed: Printed) -> None:
    broken = make_sent(
        64, op="p2p_like", params={"ranks": 3, "src": 2, "dst": 0}, status="error", reason="gone",
        measurements=(), cost=None,
    )  # fmt: skip
    found = matrices(printed([sent(make_sent, 0, 1, 64, 1e-6), sent(make_sent, 1, 0, 64, 1e-6), broken]))
    assert [len(rows) for rows in found.values()] == [3, 3]


def test_a_matrix_of_times_names_the_quantity_and_has_one(make_sent: MakeRecord, printed: Printed) -> None:
    records = [sent(make_sent, src, 1 - src, 8, 5e-6) for src in (0, 1)]
    on_device = [
        replace(one, measurements=(replace(one.measurements[0], quantity="device_time", cache="cold"),))
        for one in records
    ]
    assert [title.rpartition(": ")[2] for title in matrices(printed(on_device))] == ["algbw GB/s", "device_time µs"]
    assert matrices(printed([records[0], on_device[1]])) == {}, "two pairs of different quantities are no matrix"
