from __future__ import annotations

import math

import pytest
from handmade import failed, item, looked, share, sound, timing
from hypothesis import given
from hypothesis import strategies as st

from opmark.report.charts import roofline as file
from opmark.report.charts.roofline import _class_name, _size_class, heatmap


def cell(op, number, part, *, dtype="float32", **own):
    return item(op, number, params={"n": number, "dtype": dtype}, of_peak=share(part), **own)


def cells(chart):
    """Values by the names of their row and column."""
    return {(chart.y.names[int(mark.y)], chart.x.names[int(mark.x)]): mark for mark in chart.series[0].marks}


def test_a_cell_is_the_median_over_its_cases():
    items = [cell("add", 1, 0.1), cell("add", 2, 0.5), cell("add", 3, 0.2), cell("add", 4, 0.9, dtype="float16"),
             cell("exp", 5, 0.05)]  # fmt: skip
    by_dtype, by_size = heatmap(looked(*items))
    sound([by_dtype, by_size])
    assert (by_dtype.kind, by_dtype.values.unit, by_dtype.series[0].shape) == ("heatmap", "share", "cells")
    found = cells(by_dtype)
    assert {place: mark.value for place, mark in found.items()} == {
        ("add", "float32"): 0.2, ("add", "float16"): 0.9, ("exp", "float32"): 0.05,
    }  # fmt: skip
    several, alone = found["add", "float32"], found["exp", "float32"]
    assert several.label == "add, float32: median of 3 cases"
    assert (several.link, several.note) == ("", "from 10 % to 50 %")
    assert (alone.link, alone.note) == (items[4].key, "")


def test_the_operator_furthest_from_the_peak_comes_first():
    (chart,) = heatmap(looked(cell("good", 1, 0.9), cell("bad", 2, 0.1), cell("fair", 3, 0.5)))
    assert chart.y.names == ("bad", "fair", "good")


def test_what_was_measured_and_the_datasheet_are_not_mixed():
    sheet = item("exp", 2, of_datasheet=share(0.3))
    (chart,) = heatmap(looked(cell("add", 1, 0.5), cell("mul", 3, 0.5), sheet))
    assert "measured peak" in chart.title
    assert "exp" not in chart.y.names
    assert any("without a share" in note for note in chart.notes)
    (chart,) = heatmap(looked(sheet, item("log", 4, of_datasheet=share(0.4))))
    assert "datasheet's peak" in chart.title


@given(st.integers(1024, 1 << 60))
def test_a_size_is_within_its_class(moved):
    power = _size_class(moved)
    assert 4**power <= moved < 4 ** (power + 1)


def test_sizes_are_classes_of_powers_of_four():
    items = [cell("add", i, 0.1 * (i + 1), bytes=size) for i, size in enumerate((0, 1023, 1024, 4095, 16384))]
    (chart,) = heatmap(looked(*items))
    assert chart.x.names == ("below 1K", "1K–4K", "4K–16K", "16K–64K")
    assert {place[1]: round(mark.value, 6) for place, mark in cells(chart).items()} == {
        "below 1K": 0.15, "1K–4K": 0.35, "16K–64K": 0.5,
    }  # fmt: skip
    assert _class_name(10) == "1M–4M"


def test_backends_chips_and_threads_are_charts_of_their_own():
    both = [cell(op, i, 0.5, backend=backend, environment=where, threads=threads)
            for i, op in enumerate(("add", "exp"))
            for backend, where, threads in (("torch-cpu", "cpu", 4), ("jax-cpu", "cpu", 4), ("torch-cuda", "gpu", 4),
                                            ("torch-cpu", "cpu", 2))]  # fmt: skip
    charts = heatmap(looked(*both))
    sound(charts)
    assert [chart.series[0].name for chart in charts] == [
        "torch-cpu on Chip C ×4 with 4 threads", "jax-cpu on Chip C ×4", "torch-cuda on Chip G",
        "torch-cpu on Chip C ×4 with 2 threads",
    ]  # fmt: skip


def test_phases_and_implementations_are_rows_of_their_own():
    (chart,) = heatmap(looked(cell("add", 1, 0.1), cell("add", 2, 0.2, phase="backward"),
                              cell("add", 3, 0.3, implementation="fused")))  # fmt: skip
    assert chart.y.names == ("add", "add backward", "add/fused")
    one, other = (cell("add", i, 0.1, phase="backward", wrt=(name,)) for i, name in enumerate("ab"))
    assert heatmap(looked(one, other))[0].y.names == ("add backward da", "add backward db")


def test_above_the_peak_is_doubted():
    (chart,) = heatmap(looked(cell("add", 1, 1.2), cell("exp", 2, 0.2)))
    assert any(note.startswith("1 case above 100 %") for note in chart.notes)


@pytest.mark.parametrize("part", [math.nan, math.inf, 0.0])
def test_a_share_that_is_no_number_is_left_out(part):
    (chart,) = heatmap(looked(cell("add", 1, part), cell("exp", 2, 0.2), cell("mul", 3, 0.2)))
    sound([chart])
    assert "add" not in chart.y.names
    assert any("left out: 1 case without a share" in note for note in chart.notes)


def test_what_is_too_much_is_told(monkeypatch):
    monkeypatch.setattr(file, "MOST_ROWS", 2)
    monkeypatch.setattr(file, "MOST_PLACES", 1)
    items = [cell(f"op{i}", i, 0.1 * (i + 1)) for i in range(4)]
    (chart,) = heatmap(looked(*items, cell("add", 1, 0.1, backend="jax-cpu")))
    assert chart.y.names == ("op0", "op1")
    assert any("2 operators nearer to the peak" in note for note in chart.notes)
    assert any("jax-cpu on Chip C" in note for note in chart.notes)


def test_nothing_to_show():
    assert heatmap(looked()) == []
    assert heatmap(looked(failed("add", 1, "torch-cpu"))) == []
    assert heatmap(looked(cell("add", 1, 0.5))) == [], "a single number is no picture"


def test_hostile_names_pass_as_data():
    name = "<img src=x onerror=alert(1)>"
    charts = heatmap(looked(cell(name, 1, 0.5, backend=name), cell("add", 2, 0.4, backend=name)))
    sound(charts)
    assert name in charts[0].y.names


def test_quantities_are_charts_of_their_own_and_named():
    def own(op, number, *times, backend):
        return item(op, number, *times, backend=backend, environment="gpu", of_peak=share(0.5))

    device = timing(1e-6, "device_time", "cold")
    found = [own(op, i, device, backend="torch-cuda") for i, op in enumerate(("add", "exp"))]
    found += [own(op, i, timing(1e-6), backend=backend) for i, op in enumerate(("mul", "log"))
              for backend in ("torch-cuda", "jax-cuda")]  # fmt: skip
    charts = heatmap(looked(*found, item("sin", 1, backend="torch-cuda", environment="gpu")))
    sound(charts)
    assert [chart.series[0].name for chart in charts] == [
        "torch-cuda on Chip G, device_time, cold", "torch-cuda on Chip G, latency, warm",
        "jax-cuda on Chip G, latency, warm",
    ]  # fmt: skip
    assert [set(chart.y.names) for chart in charts] == [{"add", "exp"}, {"mul", "log"}, {"mul", "log"}]
    assert "in device_time, cold, by" in charts[0].about
    assert [any("launch" in note for note in chart.notes) for chart in charts] == [False, True, True]
    assert [any("without a share" in note for note in chart.notes) for chart in charts] == [True, False, False]


def test_a_share_above_1_is_counted_where_the_median_hides_it():
    chart, _ = heatmap(looked(cell("add", 1, 0.1), cell("add", 2, 0.2), cell("add", 3, 1.5),
                              cell("exp", 4, 0.1, dtype="float16")))  # fmt: skip
    assert any(note.startswith("1 case above 100 %") for note in chart.notes)
