from __future__ import annotations

import math

import pytest
from handmade import MEASURED, SHEET, failed, item, looked, share, sound, timing
from hypothesis import given
from hypothesis import strategies as st

from opmark.analysis.rows import MachineFacts
from opmark.report.charts import roofline as file
from opmark.report.charts.elements import Dot, thin_out
from opmark.report.charts.roofline import ceilings, roofline
from opmark.schema.chart import Chart, ChartSeries
from opmark.schema.machine import Level, Peaks


def on_gpu(op="matmul", number=0, **own):
    timings = own.pop("timings", (timing(2e-6, "device_time", "cold"), timing(1e-6, "device_time"), timing(9e-6)))
    fields = {"environment": "gpu", "bytes": 1000, "flops": 4000, **own}
    return item(op, number, *timings, backend="torch-cuda", **fields)


def by_name(chart: Chart) -> dict[str, ChartSeries]:
    return {series.name: series for series in chart.series}


def test_a_dot_in_each_state_of_the_caches_stands_at_its_intensity_and_rate():
    (chart,) = roofline(looked(on_gpu(of_peak=share(0.25)), measured=MEASURED))
    sound([chart])
    series = by_name(chart)
    (cold,), (warm,) = series["torch-cuda, cold"].marks, series["torch-cuda, warm"].marks
    assert (cold.x, cold.y) == (4.0, 2e9)
    assert (warm.x, warm.y) == (4.0, 4e9)
    assert cold.link == "matmul-0-torch-cuda-4"
    assert cold.label == "matmul n=0 on torch-cuda ×4"
    assert "device_time 2.00 µs" in cold.note
    assert "25 % of the measured peak (memory)" in cold.note
    assert "%" not in warm.note, "the share is that of the headline"
    assert chart.title == "Roofline of Chip G"


def test_ceilings_are_named_by_what_they_are_and_who_says_so():
    (chart,) = roofline(looked(on_gpu(), measured=MEASURED, sheet=SHEET))
    lines = [series.name for series in chart.series if series.role == "ceiling"]
    assert lines == ["L2 400 GB/s measured", "memory 100 GB/s measured", "float32 1.00 TFLOP/s measured",
                     "memory 200 GB/s datasheet", "float32 2.00 TFLOP/s datasheet"]  # fmt: skip
    assert all(series.shape == "line" for series in chart.series if series.role == "ceiling")
    assert all(series.stated == series.name.endswith("datasheet") for series in chart.series)
    assert "dashed ones are what the datasheet states" in chart.about
    (alone,) = roofline(looked(on_gpu(), measured=MEASURED))
    assert "dashed" not in alone.about


def test_the_ridge_lies_on_both_lines():
    (chart,) = roofline(looked(on_gpu(), measured=MEASURED))
    lines = by_name(chart)
    slanted, level = lines["memory 100 GB/s measured"].marks[-1], lines["float32 1.00 TFLOP/s measured"].marks
    assert slanted.x == pytest.approx(1e12 / 1e11)
    assert slanted.y == pytest.approx(1e12) == level[0].y
    assert level[0].x <= slanted.x <= level[1].x
    fastest = lines["L2 400 GB/s measured"].marks[-1]
    assert (fastest.x, fastest.y) == pytest.approx((level[0].x, level[0].y))


def test_caches_bound_nothing_that_is_cold():
    cold = on_gpu(timings=(timing(1e-6, "device_time", "cold"),))
    (chart,) = roofline(looked(cold, measured=MEASURED))
    assert not any(series.name.startswith("L2") for series in chart.series)


RATES = st.floats(1e6, 1e16)


@given(
    st.lists(RATES, min_size=1, max_size=4, unique=True),
    st.lists(RATES, max_size=3),
    st.lists(st.floats(1e-3, 1e4), min_size=1),
)
def test_a_line_is_the_least_of_bandwidth_and_peak(bandwidths, peaks, intensities):
    names = [f"type{i}" for i in range(len(peaks))]
    levels = [Level("memory", bandwidths[0]), *(Level(f"L{i}", rate, 1) for i, rate in enumerate(bandwidths[1:]))]
    known = Peaks("c", "s", dict(zip(names, peaks, strict=True)), levels)
    found = ceilings(MachineFacts(known), names, intensities, warm=True)
    top = max(peaks, default=math.inf)
    for series in found:
        (start, end), slanted = series.marks, series.name.startswith(("memory", "L"))
        assert start.x <= end.x
        if slanted:
            slope = start.y / start.x
            assert any(slope == pytest.approx(rate) for rate in bandwidths)
            assert end.y == pytest.approx(min(slope * end.x, top))
        else:
            assert start.y == end.y
            assert start.y <= max(bandwidths) * start.x * (1 + 1e-9), "no line above what memory delivers"
    assert len(found) == len(bandwidths) + len(set(peaks))


def test_element_types_that_share_a_ceiling_share_a_line():
    known = Peaks("c", "s", {"float16": 8e12, "bfloat16": 8e12}, [Level("memory", 1e11)])
    found = ceilings(MachineFacts(None, known), ["float16", "bfloat16"], [1.0], warm=False)
    assert [series.name for series in found] == [
        "memory 100 GB/s datasheet",
        "float16, bfloat16 8.00 TFLOP/s datasheet",
    ]


def test_without_ceilings_there_are_dots_and_a_hint():
    (chart,) = roofline(looked(item()))
    assert [series.role for series in chart.series] == ["data"]
    assert any("opmark calibrate" in note and "no datasheet" in note for note in chart.notes)
    assert chart.title == "Roofline of Chip C ×4"


def test_an_element_type_without_a_ceiling_is_told():
    (chart,) = roofline(looked(on_gpu(params={"dtype": "int8"}), measured=MEASURED))
    assert "no measured ceiling for int8" in chart.notes


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"flops": 0}, "no arithmetic"),
        ({"flops": None}, "operations is unknown"),
        ({"bytes": None}, "without bytes to move"),
        ({"bytes": 0}, "without bytes to move"),
        ({"traffic": 100}, "of communication"),
        ({"timings": (timing(1.0, "energy", unit="J"),)}, "headline is no time"),
        ({"timings": (timing(math.nan, low=None, high=None),)}, "without a median above 0"),
        ({"timings": (timing(None),)}, "without a median above 0"),
        ({"timings": (timing(0.0),)}, "without a median above 0"),
        ({"timings": (timing(math.inf),)}, "without a median above 0"),
        ({"timings": ()}, "without a median above 0"),
        ({"timings": (timing(1.0, cautions=("preempted",)),)}, "scheduler"),
        ({"status": "timeout"}, "ended as `timeout`"),
    ],
)
def test_what_has_no_place_is_counted_by_reason(own, said):
    from msgspec.structs import replace

    out = replace(item("exp", 3), **own)
    (chart,) = roofline(looked(item(), out, out))
    sound([chart])
    assert sum(len(series.marks) for series in chart.series) == 1
    (note,) = [note for note in chart.notes if said in note]
    assert note.startswith("left out: 2 cases ")


def test_only_failures_an_empty_run_and_one_case():
    assert roofline(looked()) == []
    assert roofline(looked(failed("add", 1, "torch-cpu"))) == []
    assert len(roofline(looked(item()))[0].series[0].marks) == 1


def test_what_ran_nowhere_is_told_beneath_the_first():
    charts = roofline(looked(on_gpu(), item(), failed("add", 2, "tvm-cpu", "skipped"), measured=MEASURED))
    assert [any("`skipped`" in note for note in chart.notes) for chart in charts] == [True, False]


def test_other_limits_are_another_chart():
    from msgspec.structs import replace

    from opmark.analysis.rows import RunView

    found = looked(item("add", 1), item("add", 2, environment="more"))
    more = {**found.environments, "more": {"cpu": "Chip C", "device": "cpu", "threads": 8}}
    charts = roofline(replace(found, environments=more))
    assert isinstance(found, RunView)
    sound(charts)
    assert [chart.title for chart in charts] == ["Roofline of Chip C ×4", "Roofline of Chip C ×8"]


def test_many_element_types_are_charts_of_kinds():
    types = ("float64", "float32", "float16", "bfloat16", "int8", "uint8")
    charts = roofline(looked(*(on_gpu(number=i, params={"dtype": name}) for i, name in enumerate(types))))
    sound(charts)
    assert [chart.title.partition(", ")[2] for chart in charts] == ["64-bit floats", "32-bit floats", "16-bit floats",
                                                                    "integers"]  # fmt: skip


def test_element_types_are_series_while_these_are_few(monkeypatch):
    items = [on_gpu(number=i, params={"dtype": name}) for i, name in enumerate(("float32", "float16"))]
    names = [series.name for series in roofline(looked(*items))[0].series]
    assert names == ["torch-cuda, cold, float32", "torch-cuda, cold, float16",
                     "torch-cuda, warm, float32", "torch-cuda, warm, float16"]  # fmt: skip
    monkeypatch.setattr(file, "MOST_SERIES", 3)
    assert [series.name for series in roofline(looked(*items))[0].series] == ["torch-cuda, cold", "torch-cuda, warm"]


def test_names_pass_as_data():
    name = '<script>alert("x")</script>'
    found = looked(item(name, backend=name), item(name.replace("x", "y"), 1, backend=name))
    charts = roofline(found)
    sound(charts)
    assert charts[0].series[0].name == f"{name}, warm"
    assert charts[0].series[0].marks[0].label.startswith(name)


@given(st.lists(st.tuples(st.floats(1e-3, 1e6), st.floats(1, 1e16)), max_size=300), st.integers(1, 50))
def test_thinning_keeps_at_most_so_many_and_nothing_that_was_not_there(places, most):
    one = item()
    dots = [Dot(one, one.timings[0], *place) for place in places]
    kept = thin_out(dots, most, lambda dot: dot.spot)
    assert len(kept) <= most
    assert all(dot in dots for dot in kept)
    if len(dots) <= most:
        assert kept == dots


def test_hidden_dots_are_counted(monkeypatch):
    monkeypatch.setattr(file, "MOST_DOTS", 2)
    (chart,) = roofline(looked(*(item("add", i, timing(1e-3 * (1 + i / 1e6))) for i in range(10))))
    assert len(chart.series[0].marks) <= 2
    assert any("dots near others" in note for note in chart.notes)


def test_the_quantity_is_named_where_it_is_not_the_same_for_all():
    latency = item("matmul", 1, timing(3e-6), backend="jax-cuda", environment="gpu", flops=4000)
    (chart,) = roofline(looked(on_gpu(), latency, measured=MEASURED))
    names = [series.name for series in chart.series if series.role == "data"]
    assert names == ["torch-cuda, device_time, cold", "torch-cuda, device_time, warm", "jax-cuda, latency, warm"]
    assert any("has the launch in it" in note for note in chart.notes)
    (alone,) = roofline(looked(on_gpu(), measured=MEASURED))
    assert not any("launch" in note for note in alone.notes)


def test_latency_of_a_processor_is_what_it_computes():
    (chart,) = roofline(looked(item()))
    assert not any("launch" in note for note in chart.notes)


def test_a_quantity_is_never_hidden_behind_another():
    one = item("matmul", 1, timing(1e-3, "device_time"), environment="gpu")
    other = item("matmul", 2, timing(1e-3), environment="gpu")
    dots = [Dot(own, own.timings[0], 1.0, 1.0) for own in (one, other)]
    assert len({dot.spot for dot in dots}) == 2
