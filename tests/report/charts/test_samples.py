from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import pytest
from charted import HOSTILE, check, item, timing
from hypothesis import given
from hypothesis import strategies as st
from showcase import showcase

from opmark.analysis.rows import Row
from opmark.api.items import view_stored_run
from opmark.report.charts.samples import Sample, thin_out
from opmark.report.charts.samples import samples as draw_samples
from opmark.schema import EFFORTS, Case, Measurement, Record, Settings, Task
from opmark.schema.chart import Chart
from opmark.schema.measurement import Caution, Conditions, SensorReading
from opmark.store.runs import find_run
from opmark.store.sql import open_sql


def samples(row: Row, records: list[Record], *args: Any, **named: Any) -> Chart:
    row.__dict__["_records"] = tuple(records)
    return draw_samples(row, *args, **named)


EVEN = [1.0, 1.01, 0.99, 1.02, 0.98] * 8


def record(values: list[float], process: int = 0, **more: Any) -> Record:
    task = Task(
        Case.of("add", {}, "forward"), "torch-cpu", "torch", Settings(2, "quick", EFFORTS["quick"], process=process)
    )
    return Record(task, "ok", "", (Measurement("latency", "warm", "virtual", values, 1, 0.0, 1, 0.0, "count", **more),))


def test_samples_stand_in_the_order_taken_with_the_median_and_its_interval():
    chart = check(samples(item(timing(1.0, 0.9, 1.1)), [record([1.0, 1.2, 0.8])]))
    assert (chart.id, chart.kind, chart.y.unit) == ("samples-key4-latency-warm", "samples", "s")
    (series,) = chart.series
    assert [(mark.x, mark.y, mark.label) for mark in series.marks] == [
        (1, 1.0, "sample 1"),
        (2, 1.2, "sample 2"),
        (3, 0.8, "sample 3"),
    ]
    assert [(rule.across, rule.at, rule.to, rule.name) for rule in chart.rules] == [
        ("y", 1.0, None, "median"),
        ("y", 0.9, 1.1, "interval of the median"),
    ]
    assert chart.notes == ()


def test_an_outlier_is_what_the_cautions_call_one():
    values = [*EVEN, 1.23, 1.21]  # 14.8 robust deviations above the median is 1.2198
    chart = check(samples(item(timing(1.0)), [record(values)]))
    assert [(one.name, one.role, len(one.marks)) for one in chart.series] == [
        ("samples", "data", 41),
        ("outliers", "alarm", 1),
    ]
    assert chart.series[1].marks[0].x == 41
    assert chart.notes == ("1 outlier, 2.4 % of the samples",)


def test_samples_of_a_throttled_clock_are_marked():
    held = Conditions((SensorReading(0), SensorReading(1), SensorReading(3, throttle=("power",))))
    chart = check(samples(item(timing(1.0)), [record([1.0, 1.0, 9.0, 1.0], conditions=held)]))
    assert {one.name: [mark.x for mark in one.marks] for one in chart.series} == {
        "samples": [1],
        "clock held down": [2, 4],
        "outliers": [3],
    }
    assert chart.series[2].marks[0].note == "clock held down"


def test_processes_follow_each_other():
    chart = check(samples(item(timing(1.0)), [record([1.0, 1.0]), record([2.0], 1), record([3.0, 3.0], 2)]))
    assert [mark.y for mark in chart.series[0].marks] == [1.0, 1.0, 2.0, 3.0, 3.0]
    assert chart.series[0].marks[2].label == "sample 1 of process 1"
    assert [(r.at, r.name) for r in chart.rules if r.across == "x"] == [(2.5, "process 1"), (3.5, "process 2")]


def test_cautions_are_told_once_with_how_often():
    first, second = Caution("noisy", "much", "be quiet"), Caution("noisy", "more", "be quiet")
    made = [record([1.0], i, cautions=(one,)) for i, one in enumerate((first, second))]
    assert samples(item(timing(1.0)), made).notes == ("noisy: much; be quiet (in 2 of 2 processes)",)
    assert samples(item(timing(1.0)), made[:1]).notes == ("noisy: much; be quiet",)


def test_many_samples_are_thinned_and_the_note_says_so():
    values = [1.0 + 0.001 * (i % 7) for i in range(612)]
    values[100] = values[333] = 50.0
    chart = check(samples(item(timing(1.0)), [record(values)]))
    assert len(chart.marks()) == 120
    assert [mark.x for mark in chart.series[1].marks] == [101, 334]
    drawn, beyond = chart.notes
    assert drawn == "120 of 612 samples drawn, 2 outliers among them"
    assert beyond.startswith("2 outliers beyond the axis, at its upper edge: up to 48")


def test_the_histogram_counts_what_is_not_drawn():
    values = [1.0] * 500 + [2.0] * 1000 + [2.5]
    chart = check(samples(item(timing(2.0)), [record(values)], most=50))
    assert len(chart.marks()) < 60
    assert chart.y.most is None
    assert chart.spread[0].low == 1.0
    assert chart.spread[-1].high == 2.5
    found = {one.low: one.number for one in chart.spread if one.number}
    assert list(found.values()) == [500, 1000, 1]
    assert all(one.low <= 2.0 < one.high for one in chart.spread if one.number == 1000)
    assert "Every" not in chart.about


def test_a_straggler_does_not_press_the_others_flat():
    chart = check(samples(item(timing(1.0)), [record([*EVEN, 80.0])]))
    assert chart.y.most is not None
    assert 1.02 < chart.y.most < 1.1
    assert chart.series[1].marks[0].y == 80.0, "the table tells its value"
    assert sum(one.number for one in chart.spread) == 41
    assert chart.spread[-1].number == 1
    assert chart.spread[-1].high == pytest.approx(chart.y.most)
    assert any("1 outlier beyond the axis" in note for note in chart.notes)
    near = check(samples(item(timing(1.0)), [record([*EVEN, 1.23])]))
    assert near.y.most is None or near.y.most < 1.23


@given(st.lists(st.floats(1e-9, 1e3), max_size=200))
def test_every_sample_is_counted_once(values: list[float]):
    chart = check(samples(item(timing(1.0)), [record(values)]))
    assert bool(chart.spread) == (len(set(values)) > 1)
    assert not chart.spread or sum(one.number for one in chart.spread) == len(values)


def test_another_quantity_is_had_by_its_name():
    both = item(timing(1.0), timing(2.0, quantity="host_time"))
    chart = samples(both, [record([1.0])], "host_time")
    assert chart.series == ()
    assert chart.y.title == "host_time warm"


def test_what_is_no_number_is_counted_and_a_failure_says_why():
    chart = check(samples(item(timing(None)), [record([math.nan, 1.0, math.inf])]))
    assert [mark.x for mark in chart.series[0].marks] == [2]
    assert chart.notes == ("2 samples left out: not a number",)
    assert chart.rules == ()
    failed = check(samples(item(status="error", reason=HOSTILE), [record([])]))
    assert failed.series == ()
    assert failed.notes == (f"nothing was measured: error: {HOSTILE}",)
    assert check(samples(item(status="oom"), [])).notes == ("nothing was measured: oom",)


@given(st.lists(st.booleans(), max_size=400), st.integers(1, 150))
def test_thinning_keeps_outliers_and_order(outliers: list[bool], most: int):
    found = [Sample(i + 1, 1.0, 0, i + 1, 2 if far else 0, False) for i, far in enumerate(outliers)]
    kept = thin_out(found, most)
    far = sum(outliers)
    assert [one for one in kept if one.kind == 2] == [one for one in found if one.kind == 2]
    assert kept == sorted(set(kept))
    assert set(kept) <= set(found)
    assert len(kept) == min(len(found), most) or (far > most // 2 and len(kept) > most) or most == 1
    if len(found) > most and not far and most > 1:
        assert {kept[0], kept[-1]} == {found[0], found[-1]}


def test_from_a_store(tmp_path):
    showcase(tmp_path / "db")
    with closing(open_sql(tmp_path / "db")) as store:
        found = view_stored_run(store, find_run(store, "base"), whole=True)
        chart = check(draw_samples(found.rows[0]))
    assert len({mark.label.rpartition(" ")[2] for _, mark in chart.marks()}) == 8
    assert any(note.startswith("120 of 320 samples drawn") for note in chart.notes)
