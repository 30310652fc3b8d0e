"""The table beside a figure."""

from __future__ import annotations

from opmark.report.html.figure import numbers
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark

NAMES = Axis("case", "", "category", ("add", "exp"))


def test_a_row_a_mark_with_units_and_only_columns_that_say_something() -> None:
    marks = (Mark(1024, 1e-5, "add 1K", low=0.9e-5, high=1.1e-5, link="key"), Mark(2048, 2e-5, note="noisy"))
    of = Chart("a", "t", "", "plot", Axis("size", "B", "log2"), Axis("time", "s", "log"), (ChartSeries("one", marks),))
    found = numbers(of)
    assert found.head == ("of", "size", "time", "from", "to", "note")
    assert found.rows[0] == (("add 1K", "1 KiB", "10.00 µs", "9.000 µs", "11.00 µs", ""), "key")
    assert found.rows[1] == (("one", "2 KiB", "20.00 µs", "", "", "noisy"), ""), "a row always has a name"
    assert found.words == (True, False, False, False, False, True)


def test_series_have_a_column_where_there_are_several() -> None:
    series = (ChartSeries("torch", (Mark(1e-3, 1),), "bars"), ChartSeries("jax", (Mark(2e-3, 0),), "bars"))
    found = numbers(Chart("a", "t", "", "bars", Axis("time", "s", "linear"), NAMES, series))
    assert found.head == ("series", "case", "time")
    assert [row.cells for row in found.rows] == [("torch", "exp", "1.000 ms"), ("jax", "add", "2.000 ms")]


def test_cells_tell_what_was_not_measured() -> None:
    cells = ChartSeries("share", (Mark(0, 1, value=0.123), Mark(1, 1)), "cells")
    found = numbers(Chart("a", "t", "", "heatmap", NAMES, NAMES, (cells,), values=Axis("share", "share", "linear")))
    assert [row.cells for row in found.rows] == [("exp", "add", "12.3 %"), ("exp", "exp", "no number")]


def test_samples_have_more_digits() -> None:
    of = Chart("a", "t", "", "samples", Axis("sample", "count", "linear"), Axis("time", "s", "linear"),
               (ChartSeries("one", (Mark(3, 1.23456e-3),)),))  # fmt: skip
    assert numbers(of).rows[0].cells == ("3", "1.2346 ms")


def test_what_is_no_number_is_said() -> None:
    of = Chart("a", "t", "", "plot", Axis("size", "B", "log2"), Axis("time", "s", "log"),
               (ChartSeries("one", (Mark(8, float("nan")),)),))  # fmt: skip
    assert numbers(of).rows[0].cells == ("8 B", "no number")
