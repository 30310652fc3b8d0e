"""Laws of spaces: numbers and configurations belong together, and whatever is returned obeys the rules."""

from __future__ import annotations

from math import prod
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import InvalidParameter, UserError
from opmark.plugin import Knob, Space, SpaceRule, splits
from opmark.plugin.space import format_configuration, join_spaces

SPACE = Space(
    (Knob("tile", splits(64, 2), "split"), Knob("unroll", (1, 2, 4)), Knob("order", ("ij", "ji"))),
    (SpaceRule("have a small tile", lambda c: c["tile"][1] <= 16),),  # type: ignore[index, operator]
)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_every_number_is_one_configuration_and_back(lengths: list[int], data: st.DataObject) -> None:
    space = Space(tuple(Knob(f"k{i}", tuple(range(n))) for i, n in enumerate(lengths)))
    assert space.size == prod(lengths)
    number = data.draw(st.integers(0, space.size - 1))
    assert space.index(space.at(number)) == number
    assert len({tuple(space.at(i).items()) for i in range(space.size)}) == space.size


@given(st.integers(1, 200), st.integers(1, 3))
def test_factors_of_a_split_multiply_to_its_extent(extent: int, parts: int) -> None:
    found = splits(extent, parts)
    assert len(set(found)) == len(found)
    assert all(prod(factors) == extent and len(factors) == parts for factors in found)


@given(st.integers(0, SPACE.size - 1))
def test_neighbours_differ_in_one_knob_and_are_allowed(number: int) -> None:
    here = SPACE.at(number)
    for other in SPACE.neighbours(here):
        assert sum(here[name] != other[name] for name in here) == 1
        assert SPACE.why_not(other) is None


def test_what_is_drawn_is_allowed_and_different() -> None:
    drawn = SPACE.draw(Random(0), 20)
    assert len(set(drawn)) == len(drawn) == 20
    assert all(SPACE.why_not(SPACE.at(number)) is None for number in drawn)


def test_the_share_that_is_allowed_is_counted() -> None:
    assert SPACE.allowed_share == len(list(SPACE.allowed())) / SPACE.size == 5 / 7
    large = Space(
        (Knob("a", tuple(range(1000))), Knob("b", tuple(range(1000)))), (SpaceRule("a", lambda c: c["a"] < 500),)
    )  # type: ignore[operator]
    assert large.allowed_share == pytest.approx(0.5, abs=0.05)


def test_a_configuration_of_another_shape_is_fitted() -> None:
    assert SPACE.fit({"tile": (32, 8), "unroll": 2, "order": "ji"}) == {"tile": (8, 8), "unroll": 2, "order": "ji"}
    assert SPACE.fit({"tile": (1, 64), "unroll": 2, "order": "ji"}) is None  # the rule forbids it
    assert SPACE.fit({"vector": 4}) is None
    assert SPACE.fit({"order": "kij"}) is None


def test_a_space_without_knobs_or_with_contradicting_rules_is_refused() -> None:
    with pytest.raises(UserError, match="no knobs"):
        Space(()).refuse_empty("exp on x")
    never = SpaceRule("be odd and even", lambda c: False)
    with pytest.raises(UserError, match="contradict each other: none of 6 combinations"):
        Space(SPACE.knobs[1:], (never,)).refuse_empty("exp on x")


def test_two_knobs_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="two knobs called `unroll`"):
        join_spaces([SPACE, Space((Knob("unroll", (1,)),))])


def test_a_configuration_that_is_a_program_is_not_written_out() -> None:
    """A trace of MetaSchedule has tens of thousands of characters; two of them still differ."""
    one, other = (format_configuration({"metaschedule": letter * 25_000, "unroll": 4}) for letter in "ab")
    assert one.startswith("metaschedule=(25000 characters, ")
    assert one.endswith(" unroll=4")
    assert one != other
