"""A series in a few characters."""

from __future__ import annotations

import pytest

from opmark.report.sparkline import sparkline


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
