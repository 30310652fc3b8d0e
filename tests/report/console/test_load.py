"""The table of rows under load: figures with intervals, and a reason for every percentile that is missing."""

from __future__ import annotations

from collections.abc import Callable

from opmark.report.console.side_by_side import several_backends
from opmark.schema import Caution, Record
from opmark.schema.load import Load

Make = Callable[..., Record]
Printed = Callable[..., str]


def test_a_row_has_throughput_mean_and_percentiles_with_intervals(make_loaded: Make, printed: Printed) -> None:
    table = printed([make_loaded(Load(2, 250)), make_loaded(Load(2, 250, "poisson", 400.0))])
    heads, closed, open_loop, *rest = table.splitlines()
    assert heads.split() == [
        "operator", "parameters", "backend", "clients", "batch", "arrival", "requests/s", "mean", "p50", "p90", "p99",
        "p99.9", "status",
    ]  # fmt: skip
    assert " closed " in closed
    assert " poisson 400/s " in open_loop
    assert "3.00 ms (" in closed  # p99 with its interval
    assert "–" in closed
    assert closed.split()[-2:] == ["-", "ok"]
    assert rest[0] == "- p99.9 needs at least 3688 samples, there are 500 (2 rows); more --requests"


def test_samples_per_second_are_shown_where_a_request_is_a_batch(make_loaded: Make, printed: Printed) -> None:
    record = make_loaded(Load(1, 50), op="model:resnet50", params={"batch": 8, "dtype": "float32"})
    heads, line, *_ = printed([record]).splitlines()
    assert "samples/s" in heads.split()
    assert " 8 " in line


def test_a_load_that_failed_has_its_reason_below(make_loaded: Make, printed: Printed) -> None:
    table = printed([make_loaded(Load(2), status="timeout", reason="client 2 has no answer to request 3 of 100")])
    assert "timeout" in table.splitlines()[1]
    assert "timeout: client 2 has no answer to request 3 of 100" in table


def test_rows_with_and_without_load_are_two_tables(make_loaded: Make, make_record: Make, printed: Printed) -> None:
    table = printed([make_record(), make_loaded(Load(2))])
    assert sum(line.startswith("operator ") for line in table.splitlines()) == 2


def test_backends_under_load_stand_below_each_other(make_loaded: Make) -> None:
    records = [make_loaded(Load(2), backend=name) for name in ("null", "numpy-cpu")]
    assert not several_backends(records)


def test_what_is_doubtful_is_said_below(make_loaded: Make, printed: Printed) -> None:
    late = Caution("late", "1 % of the requests began too late", "leave a core")
    table = printed([make_loaded(Load(2, 100, "poisson", 50.0), cautions=(late,))])
    assert "ok !" in table
    assert "! late: " in table


def test_a_narrow_terminal_says_what_it_has_no_room_for(make_loaded: Make, printed: Printed) -> None:
    heads, *rest = printed([make_loaded(Load(2, 250))], 110).splitlines()
    assert "p90" not in heads.split()
    assert any(line.startswith("no room for mean, p50, p90") for line in rest)
    assert max(map(len, (heads, *rest))) <= 110
