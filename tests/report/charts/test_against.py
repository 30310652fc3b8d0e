"""Charts that compare two figures of a case: launches, memory, implementations, threads."""

from __future__ import annotations

import math

import pytest
from charted import HOSTILE, check, item, looked, timing
from hypothesis import given
from hypothesis import strategies as st
from showcase import showcase

from opmark.analysis.rows import MachineFacts, Row
from opmark.api.items import view_run
from opmark.report.charts import elements
from opmark.report.charts.elements import ONE_PROCESS
from opmark.report.charts.gallery import FIGURES
from opmark.report.charts.overhead import memory, overhead
from opmark.report.charts.speedup import fused, threads
from opmark.schema.chart import Mark
from opmark.schema.machine import Peaks

OURS = ("bus", "overhead", "threads", "fused", "memory")
TIMES = st.floats(1e-9, 1e3)


def on_device(n: int, cold: float, warm: float | None, host: float | None) -> Row:
    times = [timing(cold, quantity="device_time", cache="cold")]
    times += [timing(warm, quantity="device_time")] if warm else []
    times += [timing(host, 0.9 * host, 1.1 * host, quantity="host_time")] if host else []
    return item(*times, n=n, backend="torch-cuda")


def test_a_launch_is_held_against_the_warm_device_time():
    (chart,) = overhead(
        looked(on_device(1, 9e-6, 2e-6, 5e-6), on_device(2, 9e-6, None, 5e-6), on_device(3, 1e-6, 1e-6, None))
    )
    dots, guide = check(chart).series
    assert [(mark.x, mark.y, mark.note) for mark in dots.marks] == [(2e-6, 5e-6, "launch-bound")], (
        "a cold time is not drawn among warm ones"
    )
    assert (chart.x.title, chart.y.title) == ("device time, warm", "host time until the call returns, warm")
    assert dots.marks[0].link == "key1"
    assert dots.marks[0].low == pytest.approx(4.5e-6)
    assert guide.role == "guide"
    assert [(mark.x, mark.y) for mark in guide.marks] == [(2e-6, 2e-6), (5e-6, 5e-6)]
    assert chart.notes == ("1 of 1 case launch-bound", "2 cases left out: only one of the two times is usable")


def test_without_a_device_latency_is_held_against_the_calibrated_call():
    known = MachineFacts(Peaks("a chip", "calibrate", {}, [], launch={"latency": 1e-6}, backend="torch-cpu"))
    items = item(timing(1.5e-6), n=1, bytes=64), item(timing(2e-6), n=2, bytes=1024), item(timing(1e-6), n=3)
    assert overhead(looked(*items)) == []
    (chart,) = overhead(looked(*items, machines=known))
    check(chart)
    assert [(mark.x, mark.y, mark.note) for mark in chart.series[0].marks] == [
        (64, 1.5e-6, "launch-bound"),
        (1024, 2e-6, ""),
    ]
    (rule,) = chart.rules
    assert (rule.across, rule.at, rule.name) == ("y", 1e-6, "smallest call of torch-cpu on a chip: 1.00 µs")
    assert chart.notes == (
        "1 of 2 cases within 2 times the smallest call",
        "1 case left out: the number of bytes that they move is unknown",
    )


def test_a_call_is_held_against_the_smallest_of_its_own_backend():
    known = MachineFacts(Peaks("a chip", "calibrate", {}, [], launch={"latency": 1e-6}, backend="torch-cpu"))
    own, other = (item(timing(1.5e-6), n=n, bytes=64, backend=f"{name}-cpu") for n, name in enumerate(("torch", "jax")))
    (chart,) = overhead(looked(own, other, machines=known))
    assert [series.name for series in check(chart).series] == ["torch-cpu"]
    assert chart.notes == (
        "1 of 1 case within 2 times the smallest call",
        "left out: jax-cpu, whose smallest call was not measured",
    )
    assert overhead(looked(other, machines=known)) == []


def test_memory_names_what_takes_much_more_than_its_data():
    items = [item(n=1, bytes=100, memory=100), item(n=2, bytes=100, memory=500), item(n=3, bytes=100, memory=300),
             item(n=4, bytes=100, memory=0), item(n=5, memory=7), item(n=6, bytes=9, memory=9, status="wrong"),
             item(n=7, bytes=9)]  # fmt: skip
    (chart,) = memory(looked(*items))
    dots, guide = check(chart).series
    assert [(mark.x, mark.y) for mark in dots.marks] == [(100, 100), (100, 500), (100, 300)]
    assert [(mark.x, mark.y) for mark in guide.marks] == [(100, 100), (500, 500)]
    assert chart.notes == (
        "2 of 3 cases over 2 times their data: add 2 on torch-cpu ×2 5.00 times; add 3 on torch-cpu ×2 3.00 times",
        "1 case left out: less than the counter of memory can tell",
        "1 case left out: the number of bytes that they move is unknown",
    )


def test_memory_of_the_host_is_not_that_of_a_device():
    own = item(n=1, bytes=100, memory=100, memory_source="allocator")
    host = item(n=2, bytes=100, memory=100, memory_source="resident pages, sampled", backend="jax-cuda")
    (chart,) = memory(looked(own, host, facts={"gpu": "a chip", "device": "cuda"}))
    assert [one.name for one in check(chart).series if one.role == "data"] == ["torch-cpu"]
    assert chart.notes == ("1 case of jax-cuda left out: counted on the host, which is not the device's memory",)
    (chart,) = memory(looked(own, host))
    assert len(chart.marks()) == 2 + 2, "of a processor it is the same memory"


def test_memory_below_the_step_of_its_counter_is_not_drawn():
    small = item(n=1, bytes=100, memory=100, memory_resolution=4096)
    (chart,) = memory(looked(small, item(n=2, bytes=100, memory=4096, memory_resolution=4096)))
    assert [mark.y for mark in check(chart).series[0].marks] == [4096]
    assert "1 case left out: less than the counter of memory can tell" in chart.notes


def test_the_same_data_is_held_against_itself():
    items = [item(timing(1.0 / t), threads=t, seed=seed) for t, seed in ((1, 7), (2, 8), (2, 7))]
    (chart,) = threads(looked(*items))
    assert [mark.y for mark in check(chart).series[0].marks] == [1.0, 2.0]
    assert threads(looked(*items[:2])) == [], "another seed is other data"
    made = [item(timing(1.0), implementation=name, seed=seed) for seed, name in ((1, "unfused"), (2, "compiled"))]
    assert fused(looked(*made)) == []


def test_a_dot_a_case_is_too_many_for_a_page(monkeypatch):
    monkeypatch.setattr(elements, "MOST_DOTS", 10)
    known = MachineFacts(Peaks("a chip", "calibrate", {}, [], launch={"latency": 1e-6}, backend="torch-cpu"))
    hosts = [item(timing(1e-3 * (1 + n / 1e5)), n=n, bytes=100 + n, memory=100 + n) for n in range(300)]
    devices = [on_device(n, 1e-6 * (1 + n), 1e-6 * (1 + n), 5e-6) for n in range(300)]
    for charts in (memory(looked(*hosts)), overhead(looked(*hosts, *devices, machines=known))):
        for chart in charts:
            dots = sum(len(one.marks) for one in check(chart).series if one.role == "data")
            assert 0 < dots <= 10
            assert f"left out: {300 - dots} dots near others of their backend" in chart.notes
    assert "of 300 cases" in overhead(looked(*devices))[0].notes[0], "counts are over all"


def ways(*named: tuple[str, float | None], n: int = 4, **more: object) -> list[Row]:
    return [item(timing(m, m and 0.8 * m, m and 1.25 * m), n=n, implementation=name, **more) for name, m in named]


def test_implementations_are_held_against_the_unfused_one():
    (chart,) = fused(looked(*ways(("compiled", 1e-6), ("unfused", 3e-6), ("triton", 6e-6))))
    assert check(chart).y.names == ("add 4",)
    assert chart.title == "Fused against unfused on torch-cpu ×2: latency, warm"
    assert chart.series[0].marks[0].note == "latency, warm"
    assert [(one.name, one.shape) for one in chart.series] == [("compiled", "bars"), ("triton", "bars")]
    quick, slow = (one.marks[0] for one in chart.series)
    assert (quick.x, slow.x) == (pytest.approx(3.0), pytest.approx(0.5))
    assert (quick.low, quick.high) == (pytest.approx(3 * 0.8 / 1.25), pytest.approx(3 * 1.25 / 0.8))
    assert chart.rules[0].at == 1.0
    assert ONE_PROCESS in chart.notes


def test_where_and_what_is_in_the_names_where_it_differs():
    device = [item(timing(m, quantity="device_time", processes=5), n=5, implementation=name, backend="torch-cuda")
              for name, m in (("unfused", 2e-6), ("compiled", 1e-6))]  # fmt: skip
    (chart,) = fused(looked(*ways(("unfused", 3e-6), ("compiled", 1e-6)), *device))
    assert check(chart).title == "Fused against unfused: compiled"
    assert chart.y.names == ("add 4 on torch-cpu ×2, latency, warm", "add 5 on torch-cuda ×2, device_time, warm")
    (alone,) = fused(looked(*device))
    assert alone.notes == ()
    assert alone.title == "Fused against unfused on torch-cuda ×2: compiled, device_time, warm"


def test_gains_that_are_far_apart_have_a_logarithmic_axis():
    both = [ways(("unfused", 1.0), ("compiled", m), n=n) for n, m in enumerate((0.9, 0.01))]
    assert [fused(looked(*items))[0].x.scale for items in both] == ["linear", "log"]


def test_where_none_is_unfused_the_first_is_the_base_and_is_named():
    (chart,) = fused(looked(*ways(("one", 2e-6), ("other", 1e-6))))
    assert chart.y.names == ("add 4, against one",)
    assert [one.name for one in chart.series] == ["other"]


def test_what_differs_in_more_than_its_implementation_is_not_compared():
    first, second = ways(("unfused", 2e-6), ("compiled", 1e-6))
    assert fused(looked(first, *ways(("compiled", 1e-6), threads=4))) == []
    assert fused(looked(first, *ways(("compiled", 1e-6), backend="torch-cuda"))) == []
    assert fused(looked(first, item(timing(1e-6, quantity="throughput"), implementation="compiled"))) == []
    assert len(fused(looked(first, second))) == 1


def test_the_largest_gains_are_drawn_and_the_others_counted():
    items = [one for n in range(1, 51) for one in ways(("unfused", 1.0), ("compiled", 1 / n), n=n)]
    failed = [*ways(("unfused", None), ("compiled", 1.0), n=99)]
    (chart,) = fused(looked(*items, *failed))
    assert check(chart).y.names[:2] == ("add 50", "add 49")
    assert len(chart.y.names) == 40
    assert chart.notes == (
        "10 more cases not drawn: their implementations differ less",
        "1 case left out: fewer than two implementations have a usable number of the same quantity",
        ONE_PROCESS,
    )


def test_speed_up_is_told_against_the_fewest_threads():
    items = [item(timing(m, 0.8 * m, 1.25 * m), key=f"k{t}", threads=t) for t, m in ((4, 4.0), (2, 8.0), (8, 8.0))]
    (chart,) = threads(looked(*items, item(timing(1.0), n=9)))
    line, ideal = check(chart).series
    assert [(mark.x, mark.y) for mark in line.marks] == [(2, 1.0), (4, 2.0), (8, 1.0)]
    assert (line.name, line.shape) == ("add 4 on torch-cpu", "band")
    assert [(mark.x, mark.y) for mark in ideal.marks] == [(2, 1.0), (8, 4.0)]
    assert ideal.role == "guide"
    assert chart.notes == (ONE_PROCESS,)


def test_those_with_most_thread_counts_are_drawn():
    items = [item(timing(1.0 / t), n=n, threads=t) for n in range(14) for t in ((1, 2, 4) if n == 13 else (1, 2))]
    (chart,) = threads(looked(*items))
    assert len(check(chart).series) == 12 + 1
    assert len(chart.series[0].marks) == 3
    assert chart.notes == ("2 more cases not drawn: those with most thread counts are",)


def test_scaling_of_different_quantities_says_which_it_is():
    items = [item(timing(1.0 / t), n=1, threads=t) for t in (1, 2)]
    items += [item(timing(1.0 / t, quantity="throughput"), n=2, threads=t) for t in (1, 2)]
    (chart,) = threads(looked(*items))
    assert [one.name.partition(", ")[2] for one in chart.series if one.role == "data"] == [
        "latency, warm",
        "throughput, warm",
    ]


def test_each_base_has_its_own_ideal():
    items = [item(timing(1.0), n=n, threads=t) for n, t in ((1, 1), (1, 4), (2, 2), (2, 4))]
    assert [one.name for one in threads(looked(*items))[0].series[2:]] == [
        "ideal from 1 thread",
        "ideal from 2 threads",
    ]


@given(st.dictionaries(st.integers(1, 256), TIMES, min_size=2, max_size=8))
def test_the_base_is_as_fast_as_itself_and_threads_grow(by_count: dict[int, float]):
    (chart,) = threads(looked(*(item(timing(m, m, m), threads=t) for t, m in by_count.items())))
    marks: tuple[Mark, ...] = check(chart).series[0].marks
    assert (marks[0].y, marks[0].low, marks[0].high) == (1.0, 1.0, 1.0)
    assert [mark.x for mark in marks] == sorted(by_count)


@pytest.mark.parametrize("median", [None, 0.0, -1.0, math.nan, math.inf])
def test_what_is_no_number_is_never_drawn(median: float | None):
    bad = [item(timing(median, median, median), n=1, threads=t, implementation=way, bytes=8, traffic=8, ranks=2,
                bus_bandwidth=median) for t, way in ((1, "unfused"), (2, "unfused"), (2, "compiled"))]  # fmt: skip
    fine = item(timing(1.0, math.nan, math.inf), n=1, threads=4, implementation="unfused", bytes=8, memory=9)
    for name in OURS:
        for chart in FIGURES[name](looked(*bad, fine)):
            check(chart)
            assert all(mark.link == fine.key or not mark.link for _, mark in chart.marks())


def test_a_number_of_the_scheduler_is_not_drawn():
    spoilt = [item(timing(1.0, cautions=("preempted",)), threads=t) for t in (1, 2)]
    assert threads(looked(*spoilt)) == []


def test_nothing_and_only_failures_give_no_figure():
    failed = [item(n=n, status="error", reason="gone", bytes=8, memory=8, threads=n) for n in (1, 2)]
    for name in OURS:
        assert FIGURES[name](looked()) == []
        assert FIGURES[name](looked(*failed)) == []


def test_names_of_any_kind_go_through_as_they_are():
    items = [item(timing(1.0 / t), threads=t, op=HOSTILE, backend=HOSTILE, bytes=8, memory=8) for t in (1, 2)]
    for name in ("threads", "memory"):
        (chart,) = FIGURES[name](looked(*items))
        assert HOSTILE in check(chart).series[0].marks[0].label


def test_the_showcase_has_them_all(tmp_path):
    showcase(tmp_path / "db")
    found = view_run(db=tmp_path / "db")
    for name in OURS:
        charts = FIGURES[name](found)
        assert charts, name
        keys = {one.key for one in found.rows}
        assert all(mark.link in keys or not mark.link for chart in map(check, charts) for _, mark in chart.marks())
