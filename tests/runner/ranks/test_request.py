"""--ranks and --group-size, as cases."""

from __future__ import annotations

import pytest

from opmark.errors import InvalidParameter, UserError
from opmark.plugin.registry import operator
from opmark.runner.selection import RankRequest, SelectedCases, select_cases
from opmark.schema import Case
from opmark.schema.options import Selection


def _case(op: str, **params: object) -> Case:
    return Case.of(op, operator(op).complete(params), "forward", ("tag",), (), ("file#1",))


def selected(*ops: str, **options: object) -> SelectedCases:
    return select_cases(Selection(*ops, **options))  # type: ignore[arg-type]


def test_nothing_asked_leaves_cases_as_they_are() -> None:
    cases = [_case("all_reduce", size=8), _case("exp", shape=[4])]
    assert RankRequest().apply_to_cases(cases) == (cases, [])


def test_ranks_and_groups_multiply_and_keep_tags_and_sources() -> None:
    found, notes = RankRequest([2, 4], [1, 2]).apply_to_cases([_case("all_reduce", size=8)])
    assert [(case.params["ranks"], case.params["group"]) for case in found] == [(2, 1), (2, 2), (4, 1), (4, 2)]
    assert all((case.tags, case.sources) == (("tag",), ("file#1",)) for case in found)
    assert len({case.id for case in found}) == 4
    assert not notes


def test_an_operator_of_one_process_stays_beside_others() -> None:
    found = selected("exp,all_reduce", size="small", ranks=3).cases
    assert [(case.op, case.params.get("ranks")) for case in found] == [("exp", None), ("all_reduce", 3)]


def test_rules_are_those_of_the_number_that_is_asked_for() -> None:
    (case,) = selected("p2p", params={"size": 8, "dst": 3}, ranks=4).cases
    assert (case.params["ranks"], case.params["dst"]) == (4, 3)


def test_a_group_that_does_not_divide_is_a_mistake_where_a_person_named_it() -> None:
    with pytest.raises(UserError, match="got 2 of 3"):
        selected("all_reduce", ranks=3, group_size=2)


def test_of_a_workload_what_cannot_be_is_left_out_and_said() -> None:
    found, notes = RankRequest([2, 3], [2]).apply_to_cases([_case("all_reduce", size=8)])
    assert [case.params["ranks"] for case in found] == [2]
    assert notes == ["left out 1 case that so many ranks cannot do: all_reduce"]
    with pytest.raises(InvalidParameter, match="no case of this workload"):
        RankRequest([3], [2]).apply_to_cases([_case("all_reduce", size=8)])


def test_the_same_thing_twice_is_a_mistake() -> None:
    with pytest.raises(InvalidParameter, match="and --ranks say the same thing"):
        selected("all_reduce", params={"size": 8, "ranks": 3}, ranks=2)


def test_what_a_launcher_started_is_what_communication_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    found = selected("all_reduce,host2device", size="small")
    assert [(case.op, case.params["ranks"]) for case in found.cases] == [("all_reduce", 3), ("host2device", 1)]
    assert found.place is not None
    assert (found.place.rank, found.place.size) == (1, 3)
    suite = selected(suite="collectives", tag="groups", group_size=1)
    assert {(case.params["ranks"], case.params["group"]) for case in suite.cases} == {(3, 1)}
    assert selected("exp", size="small").place is None


@pytest.mark.parametrize("wrong", [0, -1, 10**6, True, 2.0])
def test_numbers_of_ranks_are_checked(wrong: int) -> None:
    with pytest.raises(InvalidParameter, match=r"^ranks: expected a whole number from 1"):
        Selection("all_reduce", ranks=[wrong])


def test_ranks_of_what_has_none_are_a_mistake() -> None:
    with pytest.raises(InvalidParameter, match="none of these operators takes several processes"):
        selected("exp", ranks=2)


def test_an_operator_of_that_name_for_ranks_is_suggested() -> None:
    with pytest.raises(InvalidParameter) as caught:
        selected("gather", size="small", ranks=2)
    assert "did you mean `gather_ranks`?" in str(caught.value.hint)


def test_of_what_takes_one_process_only_a_real_launcher_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of a whole container must not keep a command from measuring."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    assert selected("exp", size="small").place is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    place = selected("exp", size="small").place
    assert place is not None
    assert place.rank == 1
