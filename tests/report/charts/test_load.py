"""Charts of load: throughput and tail over clients, a line per batch size, and latency over the offered rate."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from handmade import sound

from opmark.analysis.rows import RunView, rows_of_records
from opmark.report.charts.gallery import gallery
from opmark.report.charts.load import load
from opmark.schema import Record, Run
from opmark.schema.load import Load

Make = Callable[..., Record]


def view(*records: Record) -> RunView:
    return RunView(Run("run", "2030-01-01T00:00:00+00:00", "", "", 0), tuple(rows_of_records(records)))


@pytest.fixture
def scaling(make_loaded: Make) -> RunView:
    return view(
        *(
            make_loaded(Load(clients, 400), op="model:resnet50", params={"batch": batch, "dtype": "float32"})
            for batch in (1, 8)
            for clients in (1, 2, 4)
        )
    )


def test_scaling_over_clients_has_a_line_for_each_batch_size(scaling: RunView) -> None:
    throughput, tail = load(scaling)
    sound([throughput, tail])
    assert throughput.title.endswith("throughput over clients")
    assert tail.title.endswith("p99 over clients")
    assert [series.name for series in throughput.series] == ["batch 1 on null ×2", "batch 8 on null ×2"]
    for series in (*throughput.series, *tail.series):
        assert [mark.x for mark in series.marks] == [1, 2, 4]
        assert all(mark.low is not None and mark.high is not None for mark in series.marks)
        assert all(mark.link for mark in series.marks)
    one, eight = throughput.series
    assert eight.marks[0].y == pytest.approx(8 * one.marks[0].y)
    assert one.marks[2].y == pytest.approx(4 * one.marks[0].y, rel=0.05)


def test_latency_over_the_offered_rate(make_loaded: Make) -> None:
    charts = load(view(*(make_loaded(Load(2, 250, "poisson", rate)) for rate in (50.0, 100.0, 200.0))))
    assert [chart.title.partition(": ")[2] for chart in charts] == ["p50 over offered rate", "p99 over offered rate"]
    assert [mark.x for mark in charts[0].series[0].marks] == [50, 100, 200]
    assert charts[0].series[0].name == "batch 1 poisson on null ×2"


def test_a_percentile_that_is_missing_is_a_note(make_loaded: Make) -> None:
    charts = load(view(make_loaded(Load(1, 100)), make_loaded(Load(4, 100))))
    assert len(charts) == 2
    assert [mark.x for mark in charts[1].series[0].marks] == [4]
    assert charts[1].notes == ("left out: 1 row: p99 needs at least 368 samples, there are 100",)


def test_one_load_alone_has_no_chart_and_other_figures_leave_loads_out(make_loaded: Make) -> None:
    assert load(view(make_loaded(Load(2)))) == []
    found = gallery(view(make_loaded(Load(2)), make_loaded(Load(2), backend="numpy-cpu")))
    assert [chart.id for chart in found] == ["memory"]  # which is that of one call


def test_failures_and_rows_without_load_have_no_place(make_loaded: Make, make_record: Make) -> None:
    assert load(view(make_record(), make_loaded(Load(1), status="error"), make_loaded(Load(2), status="error"))) == []
