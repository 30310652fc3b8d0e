"""Names of ceilings: beside or along their lines, none on another, none cut off, none on dots that leave it room."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opmark.report.charts.svg.labels import spread
from opmark.report.charts.svg.picture import svg
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark, ReferenceLine

SVG = "{http://www.w3.org/2000/svg}"
X, Y = Axis("intensity", "flop/B", "log"), Axis("rate", "flop/s", "log")
TOP = 1e15


def level(name: str, rate: float, *, stated: bool = False) -> ChartSeries:
    return ChartSeries(name, (Mark(10, rate), Mark(1000, rate)), "line", "ceiling", stated)


def slanted(name: str, bandwidth: float) -> ChartSeries:
    return ChartSeries(name, (Mark(0.01, 0.01 * bandwidth), Mark(TOP / bandwidth, TOP)), "line", "ceiling")


def drawn(*series: ChartSeries) -> ElementTree.Element:
    return ElementTree.fromstring(svg(Chart("c", "title", "about", "plot", X, Y, series)))


def named(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    found = [one for one in root.iter(f"{SVG}text") if "ceiling" in (one.get("class") or "")]
    return {one.text or "": one for one in found}


def at(one: ElementTree.Element) -> tuple[float, float]:
    return float(one.get("x", "nan")), float(one.get("y", "nan"))


def test_names_of_level_ones_stand_in_the_margin_in_the_order_of_their_lines() -> None:
    rates = {"float16 990": 9.9e14, "bfloat16 819": 8.19e14, "float16 788": 7.88e14, "float32 67": 6.7e13}
    root = drawn(*(level(name, rate) for name, rate in rates.items()))
    places = {name: at(one) for name, one in named(root).items()}
    assert sorted(places, key=lambda name: places[name][1]) == list(rates)
    heights = sorted(y for _, y in places.values())
    assert all(b - a >= 14.9 for a, b in pairwise(heights))
    right = max(float(x) for one in root.iter(f"{SVG}path") if one.get("class") == "axis"
                for x in re.findall(r"H([\d.]+)", one.get("d") or ""))  # fmt: skip
    assert all(x > right for x, _ in places.values())
    assert len([one for one in root.iter(f"{SVG}path") if one.get("class") == "leader"]) == len(rates)


def test_the_picture_is_as_wide_as_its_names_need() -> None:
    short, long = (drawn(level(name, 1e14)) for name in ("a", "float16, bfloat16 990 TFLOP/s datasheet"))
    widths = [float((root.get("viewBox") or "").split()[2]) for root in (short, long)]
    assert widths[1] > widths[0] + 150


def test_what_is_stated_looks_different_from_what_was_measured() -> None:
    root = drawn(level("measured", 8e14), level("datasheet", 9.9e14, stated=True))
    assert {one.get("class") for one in named(root).values()} == {"name ceiling", "name ceiling stated"}
    groups = [one.get("class") for one in root.iter(f"{SVG}g") if "ceiling" in (one.get("class") or "")]
    assert groups == ["series ceiling", "series ceiling stated"]


def test_names_of_slanted_lines_that_are_close_are_stacked_in_their_order() -> None:
    bandwidths = {"L2 6.31 TB/s": 6.31e12, "memory 4.80 TB/s": 4.8e12, "memory 4.39 TB/s": 4.39e12}
    found = named(drawn(*(slanted(name, bandwidth) for name, bandwidth in bandwidths.items())))
    turns = {float((one.get("transform") or "")[7:].split()[0]) for one in found.values()}
    (turn,) = turns
    assert turn < 0
    angle = math.radians(turn)
    heights = [x * math.sin(angle) - y * math.cos(angle) for x, y in (at(found[name]) for name in bandwidths)]
    assert all(a - b == pytest.approx(15, abs=0.2) for a, b in pairwise(heights))


def test_a_name_leaves_the_place_where_dots_are() -> None:
    line = slanted("memory 1.00 TB/s", 1e12)
    alone = at(named(drawn(line))["memory 1.00 TB/s"])
    dots = ChartSeries("data", tuple(Mark(0.011 * 1.1**k, 1.3e12 * 0.011 * 1.1**k) for k in range(24)))
    crowded = at(named(drawn(line, dots))["memory 1.00 TB/s"])
    assert crowded[0] > alone[0] + 50


@given(st.lists(st.floats(0, 500), max_size=12).map(sorted), st.floats(1, 40))
def test_places_are_in_order_apart_and_not_above_the_top(wanted: list[float], apart: float) -> None:
    found = spread(wanted, apart, 12.0)
    assert len(found) == len(wanted)
    assert all(b - a >= apart - 1e-6 for a, b in pairwise(found))
    assert all(place >= 12.0 - 1e-6 for place in found)


def test_places_that_are_free_are_taken() -> None:
    assert spread([20.0, 60.0, 200.0], 15, 12) == [20.0, 60.0, 200.0]
    assert spread([100.0, 100.0], 15, 12) == [92.5, 107.5]


def test_names_of_rules_above_bars_have_a_line_each() -> None:
    rules = (ReferenceLine("x", 1.0, "as fast"), ReferenceLine("x", 0.99, "called the same: up to 1.0 %", 1.01))
    series = (ChartSeries("data", (Mark(1.0, 0), Mark(1.2, 1))),)
    chart = Chart("c", "t", "a", "bars", Axis("B over A", "ratio", "log"), Axis("", "", "category", ("a", "b")), series)
    root = ElementTree.fromstring(svg(replace(chart, rules=rules)))
    names = [one for one in root.iter(f"{SVG}text") if one.get("class") == "name rule"]
    assert {one.text for one in names} == {rule.name for rule in rules}
    (_, first), (_, second) = map(at, names)
    assert abs(first - second) >= 15
