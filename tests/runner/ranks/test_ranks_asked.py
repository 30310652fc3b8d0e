"""--ranks and --group-size, as cases."""

from __future__ import annotations

import pytest

from opmark.errors import InvalidParameter
from opmark.registry import operator
from opmark.runner.ranks.asked import of_ranks
from opmark.schema import Case


def _case(op: str, **params: object) -> Case:
    return Case.of(op, operator(op).complete(params), "forward", ("tag",), (), ("file#1",))


def test_nothing_asked_leaves_cases_as_they_are() -> None:
    cases = [_case("all_reduce", size=8), _case("exp", shape=[4])]
    assert of_ranks(cases, [], [], strict=True) == (cases, [])


def test_ranks_and_groups_multiply_and_keep_tags_and_sources() -> None:
    found, notes = of_ranks([_case("all_reduce", size=8)], [2, 4], [1, 2], strict=True)
    assert [(case.params["ranks"], case.params["group"]) for case in found] == [(2, 1), (2, 2), (4, 1), (4, 2)]
    assert all((case.tags, case.sources) == (("tag",), ("file#1",)) for case in found)
    assert len({case.id for case in found}) == 4
    assert not notes


def test_an_operator_of_one_process_stays_beside_others() -> None:
    plain = _case("exp", shape=[4])
    found, _ = of_ranks([plain, _case("all_reduce", size=8)], [3], [], strict=True)
    assert found[0] == plain
    assert found[1].params["ranks"] == 3


def test_a_group_that_does_not_divide_is_a_mistake_where_a_person_named_it() -> None:
    with pytest.raises(InvalidParameter, match="got 2 of 3"):
        of_ranks([_case("all_reduce", size=8)], [3], [2], strict=True)


def test_of_a_workload_what_cannot_be_is_left_out_and_said() -> None:
    found, notes = of_ranks([_case("all_reduce", size=8)], [2, 3], [2], strict=False)
    assert [case.params["ranks"] for case in found] == [2]
    assert notes == ["left out 1 case that so many ranks cannot do: all_reduce"]
    with pytest.raises(InvalidParameter, match="no case of this workload"):
        of_ranks([_case("all_reduce", size=8)], [3], [2], strict=False)


@pytest.mark.parametrize("wrong", [0, -1, 10**6, True, 2.0])
def test_numbers_of_ranks_are_checked(wrong: int) -> None:
    with pytest.raises(InvalidParameter, match="--ranks: expected a whole number from 1"):
        of_ranks([_case("all_reduce", size=8)], [wrong], [], strict=True)


def test_ranks_of_what_has_none_are_a_mistake() -> None:
    with pytest.raises(InvalidParameter, match="none of these operators takes several processes"):
        of_ranks([_case("exp", shape=[4])], [2], [], strict=True)
