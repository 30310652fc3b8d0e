"""Damaged uploads, cut off or changed anywhere, are refused completely."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up import made_run, record
from push_parts import everything, fill, lines_of, packed

from opmark.dashboard.endpoint import RequestRefused
from opmark.dashboard.uploads.store import receive

RUN = made_run(1).id


@cache
def bodies() -> tuple[bytes, bytes]:
    """(plain, packed)"""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "here.db"
        fill(place)
        return b"".join(lines_of(place, RUN)), packed(place, RUN)


@pytest.fixture(scope="module")
def there() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "there.db"
        fill(place, made_run(2, "mine"), [record(1)])
        yield place


def refused(there: Path, body: bytes) -> None:
    before = there.read_bytes(), everything(there)
    with pytest.raises(RequestRefused) as why:
        receive(there, body)
    assert why.value.status in (413, 422)
    assert (there.read_bytes(), everything(there)) == before


def test_cut_off_at_the_end_of_any_line(there: Path) -> None:
    plain, _ = bodies()
    lines = plain.splitlines(keepends=True)
    for count in range(len(lines)):
        refused(there, b"".join(lines[:count]))
        refused(there, b"".join(lines[:count]) + lines[count].rstrip(b"\n"))


def test_without_any_one_of_its_lines_or_with_it_twice(there: Path) -> None:
    lines = bodies()[0].splitlines(keepends=True)
    for number, line in enumerate(lines):
        refused(there, b"".join([*lines[:number], *lines[number + 1 :]]))
        refused(there, b"".join([*lines[:number], line, *lines[number:]]))


few = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@few
@given(st.integers(0, 10**6))
def test_cut_off_anywhere(there: Path, place: int) -> None:
    for body in bodies():
        refused(there, body[: place % len(body)])


@few
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_any_byte_changed(there: Path, place: int, difference: int) -> None:
    plain, _ = bodies()
    changed = bytearray(plain)
    changed[place % len(plain)] ^= difference
    refused(there, bytes(changed))


@pytest.mark.parametrize("from_the_end", range(1, 110))
def test_any_byte_of_the_last_line_changed(there: Path, from_the_end: int) -> None:
    """There is no sum of the sum; the smallest change is that of a letter's case."""
    changed = bytearray(bodies()[0])
    changed[-from_the_end] ^= 0x20
    refused(there, bytes(changed))


@few
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_any_byte_of_the_packed_changed_is_refused_or_the_same(there: Path, place: int, difference: int) -> None:
    """Some bytes of gzip say nothing: the name of a system, a date."""
    whole = bodies()[1]
    changed = bytearray(whole)
    changed[place % len(whole)] ^= difference
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "fresh.db"
        try:
            receive(fresh, bytes(changed))
        except RequestRefused:
            assert not fresh.exists()
        else:
            receive(Path(folder) / "same.db", whole)
            assert everything(fresh) == everything(Path(folder) / "same.db")
