"""Numbers on their way out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.units import change, count_bytes, count_noun, percent, rate, seconds, seconds_unit, significant, small_unit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.00"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234.0, "1234"),
        (0.01234, "0.0123"),
        (-1.5, "-1.50"),
        (0.0, "0"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_three_significant_digits(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(("value", "text"), [(9.996, "10.0"), (99.96, "100"), (0.09996, "0.100")])
def test_rounding_up_does_not_add_a_digit(value, text):
    assert significant(value) == text


@given(st.floats(1e-12, 1e15), st.integers(1, 6), st.sampled_from([1, -1]))
@settings(deadline=None)
def test_what_is_written_is_the_value_up_to_its_last_digit(value, digits, sign):
    text = significant(sign * value, digits)
    assert "e" not in text
    assert float(text) == pytest.approx(sign * value, rel=0.5001 * 10.0 ** (1 - digits))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "2.00 s"),
        (90.0, "90.0 s"),
        (1.0, "1.00 s"),
        (0.999, "999 ms"),
        (1e-3, "1.00 ms"),
        (1.5e-4, "150 µs"),
        (2.34e-6, "2.34 µs"),
        (2e-8, "20.0 ns"),
        (2e-10, "0.200 ns"),
        (0.0, "0 ns"),
        (-2e-3, "-2.00 ms"),
    ],
)
def test_a_duration_is_written_in_the_unit_that_reads_best(value, text):
    assert seconds(value) == text


@given(st.floats(1e-9, 1e6))
@settings(deadline=None)
def test_a_duration_in_its_unit_lies_between_one_and_a_thousand(value):
    scale, unit = seconds_unit(value)
    assert value / scale >= 1 - 1e-9
    assert unit == "s" or value / scale < 1000 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("value", "unit"), [(2.0, "J"), (5e-3, "mJ"), (-5e-3, "mJ"), (4e-6, "µJ"), (3e-9, "nJ"), (3e-12, "nJ"), (0.0, "nJ")]
)
def test_any_unit_can_be_a_small_part_of_itself(value, unit):
    assert small_unit(value, "J")[1] == unit


@given(st.floats(1e-12, 1e6))
@settings(deadline=None)
def test_the_small_part_is_the_same_whatever_the_unit(value):
    assert small_unit(value, "s") == seconds_unit(value)
    assert small_unit(value, "J")[0] == seconds_unit(value)[0]


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (1, ("set",), "1 set"),
        (0, ("set",), "0 sets"),
        (2, ("set",), "2 sets"),
        (1, ("process", "processes"), "1 process"),
        (3, ("process", "processes"), "3 processes"),
    ],
)
def test_things_are_counted_in_words(number, words, text):
    assert count_noun(number, *words) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (5, "5 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (1 << 20, "1.00 MiB"),
        (5 << 30, "5.00 GiB"),
        (3 << 40, "3.00 TiB"),
        (5000 << 40, "5000 TiB"),
        (-2048, "-2.00 KiB"),
        (math.inf, "inf B"),
    ],
)
def test_memory_is_written_in_powers_of_1024(value, text):
    assert count_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5e9, "1.50 GB/s"),
        (999.0, "999 B/s"),
        (999.5, "1000 B/s"),
        (1000.0, "1.00 kB/s"),
        (2.5e6, "2.50 MB/s"),
        (3e12, "3.00 TB/s"),
        (4e15, "4.00 PB/s"),
        (0.25, "0.250 B/s"),
        (math.nan, "nan B/s"),
    ],
)
def test_a_rate_is_written_in_powers_of_1000(value, text):
    assert rate(value, "B/s") == text


def test_a_rate_has_the_unit_it_is_given():
    assert rate(2e12, "FLOP/s") == "2.00 TFLOP/s"


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.05, "5.0 %"), (0.123, "12 %"), (1.5, "150 %"), (0.001, "0.10 %"), (0.0, "0 %")]
)
def test_a_fraction_is_written_in_percent(fraction, text):
    assert percent(fraction) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.031, "+3.1 %"), (0.9, "-10.0 %"), (1.0, "+0.0 %"), (3.0, "3.00x"), (0.25, "0.250x")]
)
def test_a_change_is_told_in_percent_or_as_a_factor(ratio: float, text: str) -> None:
    assert change(ratio) == text
