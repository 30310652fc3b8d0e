from __future__ import annotations

import math

import pytest
from handmade import failed, item, looked, sound, timing

from opmark.report.charts import speedup as file
from opmark.report.charts.speedup import frameworks


def race(number, *seconds, backends=("torch-cpu", "jax-cpu", "tvm-cpu"), **own):
    """One case on as many backends as there are times."""
    return [item("add", number, timing(time), backend=backend, **own)
            for time, backend in zip(seconds, backends, strict=False)]  # fmt: skip


def values(chart):
    return {series.name: [mark.x for mark in series.marks] for series in chart.series}


def test_the_same_case_on_several_backends_is_bars_with_intervals():
    (chart,) = frameworks(looked(*race(1, 2e-3, 4e-3)))
    sound([chart])
    assert (chart.kind, chart.x.unit, chart.x.scale) == ("bars", "s", "linear")
    assert chart.y.names == ("add n=1",)
    assert chart.title == "Backends on Chip C ×4: latency, warm"
    assert values(chart) == {"torch-cpu": [2e-3], "jax-cpu": [4e-3]}
    first, second = (series.marks[0] for series in chart.series)
    assert (first.low, first.high) == pytest.approx((1.6e-3, 2.5e-3))
    assert (first.note, second.note) == ("the fastest", "2.00 times the fastest")
    assert second.link == "add-1-jax-cpu-4"


def test_the_largest_spread_comes_first_and_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(file, "MOST_CASES", 2)
    items = [*race(1, 1e-3, 1.1e-3), *race(2, 1e-3, 3e-3), *race(3, 5e-3, 1e-3)]
    chart, mean = frameworks(looked(*items))
    assert chart.y.names == ("add n=3", "add n=2")
    assert any(note.startswith("left out: 1 case in which") for note in chart.notes)
    assert "over 3 of 3 cases" in mean.notes[0], "the mean is over all"


def test_far_apart_times_need_a_logarithmic_axis():
    chart, _ = frameworks(looked(*race(1, 1e-6, 2e-6), *race(2, 1e-2, 2e-2)))
    assert chart.x.scale == "log"
    assert any("logarithmic" in note for note in chart.notes)


def test_the_mean_is_geometric_and_over_what_all_have():
    items = [*race(1, 1e-3, 2e-3), *race(2, 1e-3, 8e-3), *race(3, 1e-3, 1.0, backends=("torch-cpu", "tvm-cpu"))]
    _, mean = frameworks(looked(*items))
    sound([mean])
    assert mean.y.names == ("torch-cpu", "jax-cpu")
    own, other = mean.series[0].marks
    assert own.x == 1.0
    assert other.x == pytest.approx(4.0)
    assert other.low < 4.0 < other.high
    assert mean.notes == ("over 2 of 3 cases: those that all of them have",
                          "left out: tvm-cpu, which has too few of the cases")  # fmt: skip
    assert [(rule.across, rule.at) for rule in mean.rules] == [("x", 1.0)]
    assert "Intervals are of the mean" in mean.about
    assert (own.note, other.note) == ("", "single cases from 2.00 to 8.00 times")


def test_no_case_that_all_have():
    items = [*race(1, 1e-3, 2e-3), *race(2, 1e-3, 2e-3), *race(3, 1e-3, 3e-3, backends=("torch-cpu", "tvm-cpu")),
             *race(4, 1e-3, 3e-3, backends=("torch-cpu", "tvm-cpu"))]  # fmt: skip
    _, mean = frameworks(looked(*items))
    assert mean.y.names == ("torch-cpu", "jax-cpu")
    assert any("tvm-cpu" in note for note in mean.notes)


def test_only_the_same_quantity_cache_and_threads_are_held_against_each_other():
    times = (timing(1e-6, "device_time", "cold"), timing(3e-6, "latency", "warm"))
    one, other = item("add", 1, *times), item("add", 1, times[1], backend="jax-cpu")
    (chart,) = frameworks(looked(one, other))
    assert chart.x.title == "latency, warm"
    assert frameworks(looked(item("add", 1, times[0]), item("add", 1, times[1], backend="jax-cpu"))) == []
    assert frameworks(looked(item("add", 1), item("add", 1, backend="jax-cpu", threads=8))) == []


def test_other_hardware_is_another_race():
    assert frameworks(looked(item("add", 1), item("add", 1, backend="torch-cuda", environment="gpu"))) == []


def test_two_implementations_of_one_backend_are_no_race_but_run_in_one():
    fused = item("add", 1, timing(5e-4), implementation="fused")
    assert frameworks(looked(item("add", 1), fused)) == []
    (chart,) = frameworks(looked(fused, *race(1, 2e-3, 4e-3)))
    assert set(values(chart)) == {"torch-cpu/fused", "torch-cpu", "jax-cpu"}


def test_who_fails_what_others_do_is_named():
    lost = failed("add", 1, "tvm-cpu", "wrong")
    (chart,) = frameworks(looked(*race(1, 2e-3, 4e-3), lost, failed("exp", 9, "tvm-cpu")))
    assert chart.notes[-1] == "failed where others did not: add n=1 on tvm-cpu ×4 (wrong)"


@pytest.mark.parametrize("bad", [math.nan, None, 0.0, -1.0])
def test_what_has_no_number_does_not_race(bad):
    assert frameworks(looked(item("add", 1), item("add", 1, timing(bad, low=None, high=None), backend="jax-cpu"))) == []


def test_nothing_to_show():
    assert frameworks(looked()) == []
    assert frameworks(looked(item())) == []
    assert frameworks(looked(failed("add", 1, "torch-cpu"), failed("add", 1, "jax-cpu"))) == []


def test_hostile_names_pass_as_data():
    name = "</table><script>"
    charts = frameworks(looked(item(name, 1), item(name, 1, backend=name)))
    sound(charts)
    assert charts[0].series[1].name.startswith(name)
    assert charts[0].y.names[0].startswith(name)


def test_two_that_can_tell_more_are_held_against_each_other_and_all_by_what_all_have():
    times = (timing(1e-6, "device_time", "cold"), timing(3e-6, "device_time"), timing(9e-6))
    items = [item("add", 1, timing(8e-6), backend="jax-cuda"),
             *(item("add", 1, *times, backend=backend) for backend in ("torch-cuda", "triton-cuda"))]  # fmt: skip
    sound(frameworks(looked(*items)))
    titles = [{chart.x.title for chart in frameworks(looked(*order))} for order in (items, items[::-1])]
    assert titles == [{"device_time, cold", "latency, warm"}] * 2, "whoever comes first"
    charts = frameworks(looked(*items[1:], items[0]))
    found = {chart.x.title: values(chart) for chart in charts}
    assert found == {"device_time, cold": {"torch-cuda": [1e-6], "triton-cuda": [1e-6]},
                     "latency, warm": {"torch-cuda": [9e-6], "triton-cuda": [9e-6], "jax-cuda": [8e-6]}}  # fmt: skip
    assert "no device_time, cold, of jax-cuda: not in this race" in charts[0].notes
    assert not any("not in this race" in note for note in charts[1].notes)


def test_modes_and_efforts_do_not_race_each_other():
    assert frameworks(looked(item("add", 1, mode="graph"), item("add", 1, backend="jax-cpu"))) == []
    both = [
        item("add", 1, backend=backend, mode=mode) for backend in ("torch-cpu", "jax-cpu") for mode in ("", "graph")
    ]
    charts = frameworks(looked(*both))
    sound(charts)
    assert [chart.title for chart in charts] == ["Backends on Chip C ×4: latency, warm, no mode",
                                                 "Backends on Chip C ×4: latency, warm, graph"]  # fmt: skip
    hurried = item("add", 1, backend="jax-cpu", effort="quick")
    assert frameworks(looked(item("add", 1), hurried)) == []


@pytest.mark.parametrize(("processes", "said"), [(1, True), (5, False)])
def test_one_process_says_nothing_of_the_next(processes, said):
    items = [item("add", 1, timing(1e-3, processes=processes), backend=name) for name in ("torch-cpu", "jax-cpu")]
    (chart,) = frameworks(looked(*items))
    assert any("--processes 5" in note for note in chart.notes) == said
