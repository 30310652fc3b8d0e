"""Overlap of communication with other work."""

from __future__ import annotations

import pytest

from opmark.schema import Overlap


@pytest.mark.parametrize(
    ("first", "second", "together", "share"),
    [(2.0, 1.0, 2.0, 1.0), (2.0, 1.0, 3.0, 0.0), (2.0, 1.0, 2.5, 0.5), (1.0, 4.0, 4.25, 0.75),
     (2.0, 1.0, 1.5, 1.0), (2.0, 1.0, 9.0, 0.0), (0.0, 1.0, 1.0, 0.0)],
)  # fmt: skip
def test_the_share_is_of_the_shorter_one(first: float, second: float, together: float, share: float) -> None:
    assert Overlap("a", first, "b", second, together).share == pytest.approx(share)
