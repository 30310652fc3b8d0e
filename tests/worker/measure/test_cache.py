"""Cold and warm: how much data takes turns, how much memory that may take, and what is done where it is too much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.plugin import Launch
from opmark.worker.measure.cache import UNKNOWN_CACHE, CacheRoom, LaunchSource, OutputHolder, flush, rotation, warm

MIB = 1 << 20
sizes = st.integers(0, 1 << 40)
some = st.integers(1, 1 << 40)
maybe = st.none() | sizes


def nothing() -> None:
    return None


@given(some, some)
def test_the_sets_together_are_five_times_the_cache_and_none_is_needless(set_bytes: int, cache: int) -> None:
    sets = CacheRoom(set_bytes, cache, None).sets
    assert sets >= 2
    assert sets * set_bytes >= 5 * cache
    assert sets == 2 or (sets - 1) * set_bytes < 5 * cache


@given(sizes, maybe, maybe)
def test_what_rotates_is_bounded_in_number_and_in_memory(set_bytes: int, cache: int | None, free: int | None) -> None:
    room = CacheRoom(set_bytes, cache, free)
    fits = room.sets <= 64 and (free is None or 4 * (room.sets - 1) * set_bytes <= free)
    assert (room.why_no_rotation() is None) == fits


@given(st.integers(1 << 10, 1 << 40), maybe)
def test_data_without_size_never_rotates(cache: int, free: int | None) -> None:
    assert CacheRoom(0, cache, free).why_no_rotation() is not None


@pytest.mark.parametrize("cache", [None, 0])
def test_a_cache_of_unknown_size_is_taken_to_be_large(cache: int | None) -> None:
    assert CacheRoom(1, cache, None).cache == UNKNOWN_CACHE
    assert CacheRoom(1, 5 * MIB, None).cache == 5 * MIB


@pytest.mark.parametrize(("sets", "why"), [(64, None), (65, "rotation would take 65 copies of 1.00 MiB")])
def test_there_are_64_copies_at_most(sets: int, why: str | None) -> None:
    assert CacheRoom(MIB, sets * MIB // 5, None).why_no_rotation() == why


@pytest.mark.parametrize(
    ("free", "why"),
    [
        (36 * MIB, None),
        (36 * MIB - 4, "rotation would take 9.00 MiB of the 36.0 MiB that are free"),
        (None, None),
    ],
)
def test_the_copies_take_a_quarter_of_the_free_memory_at_most(free: int | None, why: str | None) -> None:
    # Ten sets, of which one is at hand.
    assert CacheRoom(MIB, 2 * MIB, free).why_no_rotation() == why


def test_a_rotation_makes_each_set_once_and_as_many_as_there_have_to_be() -> None:
    made: list[int] = []
    seen: list[int] = []

    def another(variant: int) -> Launch:
        made.append(variant)
        return lambda: seen.append(variant)

    supply = rotation(lambda: seen.append(0), another, CacheRoom(2 * MIB, 2 * MIB, None))
    assert made == [1, 2, 3, 4]
    assert supply.rotates
    assert (supply.cache, supply.before) == ("cold", None)
    assert supply.control == "rotated over 5 sets of data, 10.0 MiB"
    for launch in supply.some(12):
        launch()
    assert seen == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]


def test_a_set_keeps_its_last_output_and_only_that() -> None:
    outputs = iter("abc")
    freed: list[str] = []

    class Output:
        def __init__(self) -> None:
            self.name = next(outputs)

        def __del__(self) -> None:
            freed.append(self.name)

    held = OutputHolder(Output)
    held()
    assert freed == []
    assert held().name == "b"
    assert freed == ["a"]


def test_rotating_sets_write_to_other_memory() -> None:
    supply = rotation(lambda: bytearray(100), lambda i: lambda: bytearray(100), CacheRoom(MIB, MIB, None))
    addresses = {id(launch()) for launch in supply.some(5)}
    assert len(addresses) == 5


@pytest.mark.parametrize(("why", "more"), [(None, ""), ("too large", " (too large)")])
def test_what_does_not_rotate_is_flushed_by_twice_the_cache(why: str | None, more: str) -> None:
    asked: list[int] = []

    def overwrite(nbytes: int) -> Launch:
        asked.append(nbytes)
        return nothing

    supply = flush(list, overwrite, CacheRoom(1, 3 * MIB, None), why)
    assert asked == [6 * MIB]
    assert (supply.before, supply.cache, supply.rotates) == (nothing, "cold", False)
    assert supply.control == "6.00 MiB overwritten before each call" + more
    assert supply.next() is list


def test_a_warm_launch_is_the_same_again_with_nothing_before() -> None:
    supply = warm(nothing)
    assert supply.some(3) == [nothing] * 3
    assert LaunchSource([nothing, list]).rotates
    assert (supply.before, supply.cache, supply.control, supply.rotates) == (None, "warm", "", False)


@given(st.integers(1, 8), st.lists(st.integers(0, 9), max_size=8))
def test_turns_go_on_where_they_stopped(sets: int, counts: list[int]) -> None:
    names: list[Any] = list(range(sets))
    supply = LaunchSource(names)
    taken = [name for count in counts for name in supply.some(count)]
    assert taken == [i % sets for i in range(len(taken))]


@given(sizes, maybe, maybe)
def test_a_rotation_as_in_a_model_takes_what_fits(set_bytes: int, cache: int | None, free: int | None) -> None:
    room = CacheRoom(set_bytes, cache, free)
    assert 1 <= room.most_sets <= min(64, room.sets)
    assert free is None or room.most_sets == 1 or 4 * room.most_sets * set_bytes <= free


def test_fewer_sets_than_a_cold_cache_needs_are_called_rotated() -> None:
    made: list[int] = []
    source = rotation(nothing, lambda i: made.append(i) or nothing, CacheRoom(MIB, 100 * MIB, None), "rotated")  # type: ignore[func-returns-value]
    assert (source.cache, len(source.launches), len(made)) == ("rotated", 64, 63)
