"""Pictures: all kinds, all marks inside and numbered, nothing hostile gets through."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import HOSTILE
from msgspec.structs import replace

from opmark.report.charts.svg.picture import svg
from opmark.report.html.figure import count_undrawn, numbers
from opmark.schema.chart import Axis, Chart, ChartSeries, HistogramBin, Mark, ReferenceLine, Role, Shape

SVG = "{http://www.w3.org/2000/svg}"
TIME = Axis("time", "s", "log")
SIZE = Axis("size", "B", "log2")
NAMES = Axis("case", "", "category", ("add", "exp", "sum"))
TYPES = Axis("element type", "", "category", ("float32", "float16"))
SHARE = Axis("share of peak", "share", "linear")


def chart(*series: ChartSeries, kind: Any = "plot", x: Axis = SIZE, y: Axis = TIME, **more: Any) -> Chart:
    return Chart("figure", "Title", "How to read it", kind, x, y, series, **more)


def plain(shape: Shape = "points", role: Role = "data", name: str = "one", **ends: float) -> ChartSeries:
    return ChartSeries(name, tuple(Mark(1 << k, 1e-6 * 2**k, f"mark {k}", **ends) for k in range(5)), shape, role)


def root(of: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(svg(of))


def rows(of: ElementTree.Element) -> list[int]:
    return sorted(int(one.get("data-i", "")) for one in of.iter() if one.get("data-i"))


def said(of: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in of.iter(f"{SVG}text")]


def classes(of: ElementTree.Element) -> set[str]:
    return {name for one in of.iter() for name in (one.get("class") or "").split()}


BARS = chart(
    ChartSeries("a", tuple(Mark(1e-3 * (i + 1), i, low=0.9e-3, high=4e-3) for i in range(3)), "bars"),
    ChartSeries("b", (Mark(2e-3, 1),), "bars"),
    kind="bars", x=Axis("time", "s", "linear"), y=NAMES,
)  # fmt: skip
FOREST = chart(
    ChartSeries("slower", (Mark(1.1, 0, low=1.05, high=1.15),), "points", "alarm"),
    ChartSeries("same", (Mark(1.0, 1),)),
    kind="bars", x=Axis("new / base", "ratio", "log"), y=NAMES, rules=(ReferenceLine("x", 1.0, "as before"),),
)  # fmt: skip
HEAT = chart(
    ChartSeries("share", (Mark(0, 0, value=0.5), Mark(1, 0, value=0.004), Mark(0, 1), Mark(1, 2, value=1.7)), "cells"),
    kind="heatmap", x=TYPES, y=NAMES, values=SHARE,
)  # fmt: skip
SAMPLES = chart(
    ChartSeries("samples", tuple(Mark(i, 1e-3 + 1e-6 * (i % 7)) for i in range(40))),
    ChartSeries("outliers", (Mark(40, 2e-3),), "points", "alarm"),
    kind="samples", x=Axis("sample", "count", "linear"), y=Axis("time", "s", "linear"),
    rules=(ReferenceLine("y", 1.003e-3, "median"), ReferenceLine("y", 1.002e-3, "", to=1.004e-3)),
    spread=(HistogramBin(1e-3, 1.5e-3, 400), HistogramBin(1.5e-3, 2e-3, 1)),
)  # fmt: skip
KINDS = {"plot": chart(plain(), plain("band", low=1e-7, high=1e-4)), "bars": BARS, "forest": FOREST, "heatmap": HEAT,
         "samples": SAMPLES}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_drawn_with_the_numbers_of_its_rows(name: str) -> None:
    of = KINDS[name]
    empty = {i for i, (_, mark) in enumerate(of.marks()) if of.kind == "heatmap" and mark.value is None}
    assert rows(root(of)) == [i for i in range(len(of.marks())) if i not in empty]
    assert len(numbers(of).rows) == len(of.marks())


@pytest.mark.parametrize("name", KINDS)
def test_nothing_has_a_style_or_a_colour_of_its_own(name: str) -> None:
    for element in root(KINDS[name]).iter():
        assert not {"style", "stroke", "onload"} & set(element.keys())
        assert element.get("fill", "url(").startswith("url(")


@pytest.mark.parametrize("name", KINDS)
def test_marks_lie_inside_the_picture(name: str) -> None:
    drawn = root(KINDS[name])
    _, _, wide, high = map(float, drawn.get("viewBox", "").split())
    for element in drawn.iter():
        x = float(element.get("cx", element.get("x", "0")))
        y = float(element.get("cy", element.get("y", "0")))
        assert 0 <= x <= wide
        assert 0 <= y <= high


@pytest.mark.parametrize("shape", ["line", "steps"])
def test_lines_have_no_marks(shape: Shape) -> None:
    drawn = root(chart(plain(shape)))
    assert rows(drawn) == []
    assert "line" in classes(drawn)


def test_intervals_are_whiskers_or_an_area() -> None:
    ends = {"low": 1e-7, "high": 1e-4}
    assert "whiskers" in classes(root(chart(plain("points", **ends))))
    assert "area" in classes(root(chart(plain("band", **ends))))
    assert not {"whiskers", "area"} & classes(root(chart(plain())))


def test_a_ceiling_has_its_name_beside_it_and_the_others_a_legend() -> None:
    drawn = root(chart(plain("line", "ceiling", "memory 4 TB/s"), plain(name="torch"), plain(name="jax")))
    assert {"memory 4 TB/s", "torch", "jax"} <= set(said(drawn))
    legend = next(one for one in drawn.iter(f"{SVG}g") if one.get("class") == "legend")
    assert said(legend) == ["torch", "jax"]
    assert "torch" not in said(root(chart(plain(name="torch")))), "the title names a single series"


def test_the_ninth_series_has_the_colour_of_the_first_and_another_marker() -> None:
    drawn = root(chart(*(plain(name=f"series {i}") for i in range(20))))
    groups = [one for one in drawn.iter(f"{SVG}g") if (one.get("class") or "").startswith("series s0")]
    first = [next(iter(group.find(f"{SVG}g") or ())).tag for group in groups[:2]]
    assert first == [f"{SVG}circle", f"{SVG}path"]
    assert {f"series {i}" for i in range(20)} <= set(said(drawn))


def test_more_series_than_a_legend_holds_are_counted() -> None:
    drawn = root(chart(*(plain(name=f"series {i}") for i in range(60))))
    assert any("and 12 more" in words for words in said(drawn))


def test_cells_tell_their_values_and_empty_ones_are_hatched() -> None:
    drawn = root(HEAT)
    assert {"50", "0.4", "170", "no number"} <= set(said(drawn))
    assert {"h5", "h0", "h9", "nothing"} <= classes(drawn)


def test_bars_begin_at_zero() -> None:
    drawn = root(BARS)
    boxes = [one for one in drawn.iter(f"{SVG}rect") if one.get("data-i")]
    assert len({box.get("x") for box in boxes}) == 1
    wide = [float(box.get("width", "")) for box in boxes]
    assert wide[1] == pytest.approx(2 * wide[0], abs=0.2)
    assert wide[3] == wide[1]


def test_bars_of_several_series_have_a_marker_each_beside_their_colour() -> None:
    def signs(of: Chart) -> int:
        return sum(one.get("class") == "dots" for one in root(of).iter())

    assert signs(BARS) == 4, "beside the bars and in the legend"
    assert signs(replace(BARS, series=BARS.series[:1])) == 0


def test_a_forest_plot_has_points_and_a_line_at_one() -> None:
    drawn = root(FOREST)
    assert "rule" in classes(drawn)
    assert "as before" in said(drawn)
    assert {"alarm", "whiskers"} <= classes(drawn)


def test_what_has_no_interval_does_not_look_certain() -> None:
    of = replace(FOREST, series=(ChartSeries("same", (Mark(1.0, 1, unsure=True), Mark(1.0, 2, low=0.9, high=1.1))),))
    hollow = [one.get("data-i") for one in root(of).iter() if one.get("class") == "hollow"]
    assert hollow == ["0"]
    assert numbers(of).rows[0].cells[-2:] == ("unknown", "unknown")


@pytest.mark.parametrize(("known", "areas", "whiskers"), [("111", 1, 0), ("101", 0, 1), ("11011", 2, 0), ("000", 0, 0)])
def test_a_band_is_interrupted_where_an_interval_is_not_known(known: str, areas: int, whiskers: int) -> None:
    marks = tuple(Mark(2.0**i, 1.0, low=0.5 if one == "1" else None, high=2.0 if one == "1" else None)
                  for i, one in enumerate(known))  # fmt: skip
    paths = {one.get("class"): one.get("d", "") for one in root(chart(ChartSeries("a", marks, "band"))).iter()}
    assert paths.get("area", "").count("z") == areas
    assert bool(paths.get("whiskers")) == bool(whiskers)


def test_samples_have_a_histogram_of_what_the_chart_has_counted() -> None:
    assert "histogram" in classes(root(SAMPLES))
    assert {"median", "400"} <= set(said(root(SAMPLES)))
    assert "histogram" not in classes(root(replace(SAMPLES, spread=())))
    wider = replace(SAMPLES, spread=(HistogramBin(0.5e-3, 1e-3, 1), *SAMPLES.spread))
    (path,) = [one.get("d", "") for one in root(wider).iter() if one.get("class") == "histogram"]
    assert min(float(high) for high in re.findall(r"v([\d.]+)", path)) > 50, "the axis has room for all that is counted"


def test_what_lies_beyond_the_end_of_an_axis_is_at_its_edge() -> None:
    def heights(most: float | None) -> list[float]:
        drawn = root(replace(SAMPLES, y=replace(SAMPLES.y, most=most)))
        return [float(one.get("cy", 0)) for one in drawn.iter() if one.tag.endswith("circle") and one.get("data-i")]

    free, ended = heights(None), heights(1.01e-3)
    assert max(free) - min(free) < 5 < 150 < max(ended) - min(ended)


BROKEN = (float("nan"), float("inf"), 0.0, -1.0)


@pytest.mark.parametrize("value", BROKEN)
def test_what_is_no_number_is_left_out_and_counted(value: float) -> None:
    of = chart(ChartSeries("one", (Mark(1024, 1e-3), Mark(2048, value), Mark(4096, 2e-3, low=value, high=3e-3))))
    assert rows(root(of)) == [0, 2]
    assert count_undrawn(of) == 1
    assert "nan" not in svg(of)
    assert "inf" not in svg(of)


def test_a_picture_of_nothing_is_a_picture() -> None:
    for kind, x, y in (("plot", SIZE, TIME), ("bars", TIME, NAMES), ("heatmap", TYPES, NAMES), ("samples", SIZE, TIME)):
        assert rows(root(chart(kind=kind, x=x, y=y))) == []
        assert rows(root(chart(ChartSeries("one", ()), kind=kind, x=x, y=y))) == []


def hostile(kind: Any) -> Chart:
    names = Axis(HOSTILE, "", "category", (HOSTILE, HOSTILE * 5))
    x, y = {"plot": (SIZE, TIME), "bars": (TIME, names), "heatmap": (names, names), "samples": (SIZE, TIME)}[kind]
    marks = (Mark(1, 1, HOSTILE, value=0.5, link=HOSTILE, note=HOSTILE), Mark(1, 1, "\ud800"))
    shape: Shape = "cells" if kind == "heatmap" else "points"
    series = (ChartSeries(HOSTILE, marks, shape), ChartSeries(HOSTILE + "2", marks, shape))
    rules, values = (ReferenceLine("x", 1, HOSTILE),), Axis(HOSTILE, "", "linear")
    return Chart('"><script>', HOSTILE, HOSTILE, kind, x, y, series, rules, values)


@pytest.mark.parametrize("kind", ["plot", "bars", "heatmap", "samples"])
def test_hostile_names_stay_words(kind: Any) -> None:
    text = svg(hostile(kind))
    assert "<b>" not in text
    assert "<script" not in text
    assert text.isprintable()
    assert ElementTree.fromstring(text) is not None
    assert text.encode()


@given(st.lists(st.tuples(st.floats(1e-200, 1e200), st.floats(1e-200, 1e200)), min_size=1, max_size=30),
       st.sampled_from(["points", "line", "band", "steps"]))  # fmt: skip
def test_whatever_is_positive_lies_in_the_plot(places: list[tuple[float, float]], shape: Shape) -> None:
    drawn = root(chart(ChartSeries("one", tuple(Mark(x, y) for x, y in places), shape)))
    _, _, wide, high = map(float, drawn.get("viewBox", "").split())
    for circle in drawn.iter(f"{SVG}circle"):
        assert 0 < float(circle.get("cx", "")) < wide
        assert 0 < float(circle.get("cy", "")) < high


@given(st.lists(st.floats(), max_size=8), st.sampled_from(["linear", "log", "log2"]))
def test_whatever_a_number_is_there_is_a_picture(values: list[float], scale: Any) -> None:
    marks = tuple(Mark(value, value, low=value, high=value) for value in values)
    of = chart(ChartSeries("one", marks, "band"), x=Axis("x", "", scale), y=Axis("y", "B/s", scale))
    assert len(rows(root(of))) == len(values) - count_undrawn(of)
    assert all(math.isfinite(value) or row not in rows(root(of)) for row, value in enumerate(values))


def test_ten_thousand_points_are_not_large() -> None:
    marks = tuple(Mark(10 ** (i % 97 / 30), 10 ** (i % 89 / 30 - 6), f"case {i}") for i in range(10_000))
    text = svg(chart(ChartSeries("a", marks[:5000]), ChartSeries("b", marks[5000:]), x=Axis("x", "flop/B", "log")))
    assert len(text) < 600_000
    assert 'class="many"' in text
