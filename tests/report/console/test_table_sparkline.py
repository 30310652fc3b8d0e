"""Sparklines."""

from __future__ import annotations

import pytest

from opmark.report.console.table import samples_line, sparkline


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([1.0, 1.0, 1.0], "▅▅▅"),
        ([1.0, 2.0], "▁█"),
        ([1.0, 2.0, 4.0, 2.0], "▁▅█▅"),
        ([1.0, 1.001], "▄▅"),  # less than what would be news
    ],
)
def test_values_are_drawn_by_their_logarithm(values: list[float], drawn: str) -> None:
    assert sparkline(values) == drawn


def test_many_values_share_characters_and_none_is_lost() -> None:
    assert sparkline([1.0] * 50 + [2.0] * 50, width=4) == "▁▁██"
    assert len(sparkline([float(i) for i in range(1, 1000)], width=30)) == 30


def test_one_straggler_among_a_thousand_samples_is_seen() -> None:
    drawn = samples_line([1.0] * 700 + [3.0] + [1.0] * 299, 10, "utf-8")
    assert drawn == "▁▁▁▁▁▁▁█▁▁"


@pytest.mark.parametrize(("encoding", "drawn"), [("utf-8", "▁█"), ("ascii", "_#"), ("latin-1", "_#"), ("none", "_#")])
def test_a_stream_gets_the_signs_that_it_can_write(encoding: str, drawn: str) -> None:
    assert samples_line([1.0, 2.0], 10, encoding) == drawn


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 0.0, -1.0])
def test_what_is_no_positive_number_is_left_out(odd: float) -> None:
    assert samples_line([1.0, odd, 2.0], 10, "utf-8") == "▁█"
    assert samples_line([odd], 10, "utf-8") == ""
    assert samples_line([], 10, "utf-8") == ""
