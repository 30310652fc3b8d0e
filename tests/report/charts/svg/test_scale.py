"""Scales and ticks: everything inside, round numbers, labels as people write them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.report.charts.svg.scale import (
    MOST,
    Linear,
    Log,
    Places,
    fit_scale,
    fit_ticks,
    format_evenly,
    format_exactly,
    format_round,
    is_drawable,
    ticks,
    title_with_unit,
)
from opmark.report.charts.svg.text import shorten, width
from opmark.schema.chart import Axis, Scale, Unit

POSITIVE = st.floats(1e-299, 1e299)
ANY = st.floats(-1e299, 1e299)


def axis(scale: Scale, unit: Unit = "s", names: tuple[str, ...] = ()) -> Axis:
    return Axis("time", unit, scale, names)


def made(scale: Scale, *values: float) -> Linear | Log:
    found = fit_scale(axis(scale), values)
    assert not isinstance(found, Places)
    return found


def texts(scale: Scale, unit: Unit, *values: float, most: int = MOST) -> list[str]:
    return [tick.text for tick in ticks(made(scale, *values), unit, most).labelled]


@given(st.lists(POSITIVE, min_size=1, max_size=20), st.sampled_from(["log", "log2", "linear"]))
def test_every_value_lies_inside(values: list[float], scale: Scale) -> None:
    found = made(scale, *values)
    low, high = found.value(0), found.value(1)
    assert all(low <= value <= high for value in values)
    assert all(0 <= found.place(value) <= 1 for value in values)
    assert found.low < found.high


@given(st.lists(ANY, min_size=1, max_size=20))
def test_a_linear_axis_takes_values_of_either_sign(values: list[float]) -> None:
    found = made("linear", *values)
    assert found.low < found.high
    assert all(found.low <= value <= found.high for value in values)


def check(found: Linear | Log, most: int) -> None:
    drawn = ticks(found, "s", most)
    values = [tick.value for tick in drawn.labelled]
    assert 2 <= len(values) <= max(2, most)
    assert all(a < b for a, b in pairwise(values))
    places = [tick.place for tick in drawn.labelled] + drawn.between
    assert all(0 <= place <= 1 for place in places)
    low, high = found.value(0), found.value(1)
    slack = 1e-6 * (high - low)
    assert all(low - slack <= value <= high + slack for value in values)


@given(st.lists(POSITIVE, min_size=1, max_size=4), st.sampled_from(["log", "log2", "linear"]), st.integers(2, 12))
def test_ticks_increase_and_are_from_2_to_12(values: list[float], scale: Scale, most: int) -> None:
    check(made(scale, *values), most)


@given(POSITIVE, st.floats(1, 30), st.sampled_from(["log", "log2", "linear"]), st.integers(3, 12))
def test_the_same_of_short_ranges(start: float, factor: float, scale: Scale, most: int) -> None:
    check(made(scale, start, start * factor), most)


@given(ANY, st.floats(0, 1e3))
def test_the_same_of_ranges_around_zero(start: float, wide: float) -> None:
    check(made("linear", start, start + wide), MOST)


def test_labels_are_as_people_write_them() -> None:
    assert texts("log", "s", 1e-6, 1e-2) == ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]
    assert texts("log", "flop/s", 1e11, 1e14) == ["100 GFLOP/s", "1 TFLOP/s", "10 TFLOP/s", "100 TFLOP/s"]
    assert texts("log", "B/s", 1e8, 1e10) == ["100 MB/s", "1 GB/s", "10 GB/s"]
    assert texts("log2", "B", 1 << 14, 1 << 17) == ["16 KiB", "32 KiB", "64 KiB", "128 KiB"]
    assert texts("log2", "count", 1, 16) == ["1", "2", "4", "8", "16"]
    assert texts("linear", "share", 0.1, 1.0, most=6) == ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
    assert texts("log", "ratio", 0.94, 1.08, most=4) == ["0.95", "1.00", "1.05"]
    assert texts("linear", "s", 0.0, 1.5e-3, most=4) == ["0 ms", "0.5 ms", "1.0 ms", "1.5 ms"]


def test_below_a_decade_there_are_ones_twos_and_fives() -> None:
    assert texts("log", "s", 0.9e-3, 11e-3) == ["1 ms", "2 ms", "5 ms", "10 ms"]


@pytest.mark.parametrize("scale", ["linear", "log", "log2"])
@pytest.mark.parametrize("values", [(), (3.0,), (3.0, 3.0)])
def test_no_range_is_a_range_all_the_same(scale: Scale, values: tuple[float, ...]) -> None:
    found = made(scale, *values)
    check(found, MOST)
    assert all(0.1 < found.place(value) < 0.9 for value in values)


def test_zero_is_shown_where_it_is_near() -> None:
    assert made("linear", 1.0, 5.0).low == 0
    assert made("linear", 4.0, 5.0).low > 3.9
    assert made("linear", -5.0, -1.0).high == 0


def test_many_decades_have_few_labels() -> None:
    found = ticks(made("log", 1e-30, 1e30), "s", 8)
    assert 2 <= len(found.labelled) <= 8
    assert found.between, "the decades without a label have a thin line"


def test_labels_do_not_touch() -> None:
    scale = made("log2", 1, 1 << 30)
    found = fit_ticks(scale, "B", 200, width, 8).labelled
    assert 2 <= len(found) < 6
    assert all(200 * (b.place - a.place) >= (width(a.text) + width(b.text)) / 2 + 8 for a, b in pairwise(found))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), None, 1e301])
@pytest.mark.parametrize("scale", ["linear", "log", "log2", "category"])
def test_what_is_no_number_is_not_drawn(value: float | None, scale: Scale) -> None:
    assert not is_drawable(axis(scale, names=("a",)), value)


def test_what_has_no_place_on_its_axis_is_not_drawn() -> None:
    assert is_drawable(axis("linear"), -1.0)
    assert not is_drawable(axis("log"), 0.0)
    assert not is_drawable(axis("category", names=("a", "b")), 2)
    assert is_drawable(axis("category", names=("a", "b")), 1)


def test_numbers_of_a_table_have_units_and_digits() -> None:
    assert format_exactly(1.2346e-3, axis("log")) == "1.235 ms"
    assert format_exactly(65536, axis("log2", "B")) == "64 KiB"
    assert format_exactly(2.5e12, axis("log", "flop/s")) == "2.500 TFLOP/s"
    assert format_exactly(0.5, axis("linear", "share")) == "50.0 %"
    assert format_exactly(1.052, axis("log", "ratio")) == "1.052"
    assert format_exactly(8, axis("log2", "count")) == "8"
    assert format_exactly(1, axis("category", "", ("a", "b"))) == "b"
    assert format_exactly(7, axis("category", "", ("a", "b"))) == "no number"
    assert format_exactly(float("nan"), axis("log")) == "no number"
    assert format_exactly(None, axis("log")) == ""


def test_a_title_tells_the_unit_that_ticks_do_not() -> None:
    assert title_with_unit(Axis("intensity", "flop/B", "log")) == "intensity (FLOP/B)"
    assert title_with_unit(Axis("intensity in FLOP/B", "flop/B", "log")) == "intensity in FLOP/B"
    assert title_with_unit(axis("log")) == "time"
    assert format_round(10.0, "flop/B") == "10"
    assert format_evenly([], "s") == []


def test_a_long_name_keeps_its_ends() -> None:
    short = shorten("a" * 50 + "z" * 50, 100)
    assert short[0] == "a"
    assert "…" in short
    assert short[-1] == "z"
    assert width(short) <= 110
    assert shorten("short", 100) == "short"
