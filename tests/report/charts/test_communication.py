from __future__ import annotations

from typing import Any

import pytest
from charted import check, item, looked, timing
from msgspec.structs import replace

from opmark.analysis.rows import MachineFacts, Row
from opmark.report.charts.communication import bus
from opmark.schema.machine import Interconnect, Peaks

GPU = {"device": "cuda", "gpu": "a chip"}
SHEET = MachineFacts(None, Peaks("a chip", "sheet", {}, [], interconnect=[Interconnect("NVLink 4", 450e9),
                                                                     Interconnect("PCIe Gen5 x16", 64e9)]))  # fmt: skip


def sent(size: int, seconds: float = 1.0, ranks: int = 2, op: str = "all_reduce", **more: Any) -> Row:
    """The busiest link carries as much as the buffer has."""
    given = {"bus_bandwidth": size / seconds, "link": "peers", **more}
    params = {"dtype": "float32", "ranks": ranks, "size": size}
    times = timing(seconds, 0.8 * seconds, 1.25 * seconds)
    return item(times, op=op, params=params, key=f"{op}{ranks}-{size}", traffic=size, ranks=ranks, **given)


def test_sizes_of_one_series_are_in_order_and_ranks_are_apart():
    rate, time = bus(looked(sent(2048, 2.0), sent(1024), sent(1024, ranks=4)))
    assert [one.name for one in check(rate).series] == [
        "all_reduce float32 ranks=2 on torch-cpu ×2",
        "all_reduce float32 ranks=4 on torch-cpu ×2",
    ]
    first = rate.series[0]
    assert [(mark.x, mark.y, mark.link) for mark in first.marks] == [
        (1024, 1024.0, "all_reduce2-1024"),
        (2048, 1024.0, "all_reduce2-2048"),
    ]
    assert (first.marks[0].low, first.marks[0].high) == (pytest.approx(1024 / 1.25), pytest.approx(1024 / 0.8))
    assert first.shape == "band"
    marks = check(time).series[0].marks
    assert [(mark.x, mark.y, mark.low, mark.high) for mark in marks] == [(1024, 1.0, 0.8, 1.25), (2048, 2.0, 1.6, 2.5)]


def test_the_peak_of_the_link_is_a_ceiling_but_not_for_processes_of_one_host():
    items = sent(1024), sent(4096)
    assert [one.role for one in bus(looked(*items, machines=SHEET))[0].series] == ["data"]
    line = check(bus(looked(*items, machines=SHEET, facts=GPU))[0]).series[-1]
    assert (line.name, line.role, line.shape) == ("NVLink 4 peak 450 GB/s", "ceiling", "line")
    assert line.stated
    assert [(mark.x, mark.y) for mark in line.marks] == [(1024, 450e9), (4096, 450e9)]


def test_to_the_host_data_takes_the_bus_of_the_host():
    chart = bus(looked(sent(1024, link="host", op="host_to_device"), machines=SHEET, facts=GPU))[0]
    assert check(chart).series[-1].name == "PCIe Gen5 x16 peak 64.0 GB/s"


def test_where_nothing_crosses_a_link_there_is_only_a_time():
    (chart,) = bus(looked(sent(1024, ranks=1, bus_bandwidth=None)))
    assert chart.id == "bus-latency"
    rate, _ = bus(looked(sent(1024, ranks=1, bus_bandwidth=None), sent(1024)))
    assert rate.notes == ("1 case left out: nothing crosses a link",)


def test_many_series_get_a_figure_an_operator():
    ops = "all_reduce", "all_gather"
    items = [sent(size, ranks=ranks, op=op) for op in ops for ranks in range(2, 16) for size in (8, 16)]
    charts = bus(looked(*items))
    assert [chart.id for chart in map(check, charts)] == [
        "bus-all-reduce",
        "bus-latency-all-reduce",
        "bus-all-gather",
        "bus-latency-all-gather",
    ]
    assert len(charts[0].series) == 12
    assert charts[0].notes == ("2 more series not drawn: those with most sizes are",)


def test_numbers_that_cannot_be_drawn_are_counted_once():
    charts = bus(looked(sent(8), item(timing(None), n=9, traffic=8, ranks=2)))
    assert [chart.notes for chart in charts] == [("1 case left out: no usable number (preempted, 0 or none)",), ()]


def test_series_of_different_quantities_say_which_they_are():
    device = sent(2048)
    device = replace(device, timings=tuple(replace(t, quantity="device_time", cache="cold") for t in device.timings))
    for chart in bus(looked(sent(1024), sent(4096), device)):
        assert [one.name.rpartition(" on ")[2] for one in check(chart).series] == [
            "torch-cpu ×2, latency, warm",
            "torch-cpu ×2, device_time, cold",
        ]
