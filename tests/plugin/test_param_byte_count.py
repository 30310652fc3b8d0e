"""Numbers of bytes and series of them, as people write them."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import InvalidParameter
from opmark.plugin.param import nbytes, parse_bytes, parse_series

SIZE = nbytes("size", "bytes")


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("64K", 65536), ("64k", 65536), ("1M", 1 << 20), ("2G", 2 << 30), ("1T", 1 << 40), ("64KiB", 65536),
     ("64KB", 65536), ("10B", 10), (" 4 M ", 4 << 20)],
)  # fmt: skip
def test_a_number_of_bytes(text: str, value: int) -> None:
    assert parse_bytes(text) == value
    assert SIZE.parse(text) == value
    assert SIZE.check(text) == value


@pytest.mark.parametrize("text", ["", "K", "8X", "-8", "1.5M", "8 8", "0x10"])
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text) or "^$"):
        parse_bytes(text)
    with pytest.raises(InvalidParameter, match=r"parameter `size`: expected bytes, as in 4096, 64K"):
        SIZE.parse(text)


def test_nothing_is_no_size() -> None:
    with pytest.raises(InvalidParameter):
        SIZE.check(0)


@pytest.mark.parametrize(
    ("text", "values"),
    [("8..64", [8, 16, 32, 64]), ("8..100", [8, 16, 32, 64]), ("8..64M*1024", [8, 8192, 8 << 20]),
     ("8..32+8", [8, 16, 24, 32]), ("1K..4K", [1024, 2048, 4096]), ("1K..2K+512B", [1024, 1536, 2048]), ("8..8", [8])],
)  # fmt: skip
def test_a_series(text: str, values: list[int]) -> None:
    assert parse_series(text) == values
    assert SIZE.spread(text) == values


@pytest.mark.parametrize("text", ["64..8", "8..64*1", "8..64*0", "8..64+0", "0..8", "1..1G+1"])
def test_a_series_that_never_arrives_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="the series"):
        SIZE.spread(text)


def test_what_is_no_series_stays_as_it_is() -> None:
    assert SIZE.spread("64K") == "64K"
    assert SIZE.spread(8) == 8
    assert SIZE.spread([8, 16]) == [8, 16]


@given(st.integers(1, 1 << 40), st.integers(0, 20), st.integers(2, 9))
def test_a_factor_is_the_ratio_of_neighbours(first: int, steps: int, factor: int) -> None:
    last = first * factor**steps
    found = parse_series(f"{first}..{last}*{factor}")
    assert found is not None
    assert found[0] == first
    assert found[-1] == last
    assert all(b == a * factor for a, b in pairwise(found))
