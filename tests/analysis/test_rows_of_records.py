"""Records of one case in several processes are one row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from opmark.analysis.rows import Row, rows_of_records
from opmark.schema import Caution, Measurement, Record
from opmark.stats import log_interval

MakeRecord = Callable[..., Record]
MakeMeasurement = Callable[..., Measurement]

K = ({"M": 1, "N": 1, "K": 1}, {"M": 2, "N": 1, "K": 1})


def row_of(*records: Record) -> Row:
    (row,) = rows_of_records(records)
    return row


def test_a_record_alone_is_a_row(make_record: MakeRecord) -> None:
    record = make_record()
    assert row_of(record).records == (record,)
    assert rows_of_records([]) == []


def test_processes_are_put_together_however_they_are_interleaved(make_record: MakeRecord) -> None:
    records = [make_record(params=params, process=i) for i in range(3) for params in K]
    found = rows_of_records(records)
    assert [[record.task.settings.process for record in row.records] for row in found] == [[0, 1, 2]] * 2
    assert [row.record.task.case.params["M"] for row in found] == [1, 2]
    assert rows_of_records(reversed(records))[0].records == tuple(reversed(found[1].records))


@pytest.mark.parametrize(
    "other", [{"threads": 3}, {"backend": "other"}, {"mode": "discrete"}, {"phase": "backward"}, {"params": K[0]}]
)
def test_what_differs_in_anything_but_the_process_is_another_row(
    make_record: MakeRecord, other: dict[str, object]
) -> None:
    assert len(rows_of_records([make_record(process=0), make_record(process=1, **other)])) == 2


def test_the_process_is_the_unit_and_not_the_sample(make_record: MakeRecord) -> None:
    """Within a process nothing moves, between processes a lot does: only the latter tells what the next one gives."""
    values = [1.0e-3, 1.3e-3, 1.1e-3, 1.2e-3]
    row = row_of(*(make_record(samples=[value] * 100, process=i) for i, value in enumerate(values)))
    summary = row.summary()
    assert summary is not None
    assert (summary.median, summary.processes, summary.samples) == (pytest.approx(1.14454e-3, rel=1e-5), 4, 400)
    assert (summary.low, summary.high) == log_interval(values)[:2]
    assert summary.low < min(values) < max(values) < summary.high


def test_one_process_has_the_interval_of_its_samples(make_record: MakeRecord) -> None:
    summary = row_of(make_record()).summary()
    assert summary is not None
    assert (summary.low, summary.high, summary.processes) == (1.00e-3, 1.06e-3, 1)


def test_a_process_without_a_number_leaves_those_of_the_others(make_record: MakeRecord) -> None:
    row = row_of(make_record(process=0), make_record(process=1, status="oom", reason="none left"))
    assert row.record.status == "oom"
    summary = row.summary()
    assert summary is not None
    assert (summary.median, summary.processes) == (1.03e-3, 1)


def test_where_nothing_was_measured_there_is_no_summary(make_record: MakeRecord) -> None:
    row = row_of(make_record(status="skipped", reason="no GPU"))
    assert (row.summary(), row.keys, row.summary(("latency", "warm"))) == (None, [], None)


def test_what_was_measured_keeps_its_order_and_stands_once(
    make_record: MakeRecord, make_measurement: MakeMeasurement
) -> None:
    cold, warm = (make_measurement("device_time", cache, [1e-6]) for cache in ("cold", "warm"))
    late = make_measurement("latency", "warm", [5e-6])
    row = row_of(make_record(measurements=(cold, warm), process=0), make_record(measurements=(warm, late), process=1))
    assert row.keys == [("device_time", "cold"), ("device_time", "warm"), ("latency", "warm")]
    assert row.measurements(("device_time", "warm")) == [warm, warm]
    assert row.measurements(("latency", "warm")) == [late]
    assert row.summary(("energy", "warm")) is None


def test_every_doubt_of_every_process_is_there(make_record: MakeRecord) -> None:
    noisy = Caution("noisy", "m")
    row = row_of(
        make_record(cautions=[noisy], process=0), make_record(process=1), make_record(cautions=[noisy], process=2)
    )
    assert [caution.code for _, caution in row.warnings()] == ["noisy", "noisy"]
    assert [caution.message for _, caution in row.warnings()] == ["in one of 3 processes, m"] * 2


def test_how_sure_each_of_several_processes_was_gives_way_to_how_far_they_are_apart(
    make_record: MakeRecord, make_measurement: MakeMeasurement
) -> None:
    unsure = Caution("imprecise", "m")

    def over(*values: float) -> list[str]:
        made = [make_measurement("latency", "warm", [value] * 9) for value in values]
        records = [make_record(measurements=(replace(m, cautions=(unsure,)),), process=i) for i, m in enumerate(made)]
        return [caution.code for _, caution in row_of(*records).warnings()]

    assert over(1e-3) == ["imprecise"]
    assert over(1e-3, 1.01e-3, 0.99e-3) == []
    assert over(1e-3, 1.3e-3, 0.8e-3) == ["processes-differ"]
