"""Selecting a part of a workload by size, name, category and tag."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.catalogue.expansion import WorkloadFilter
from opmark.plugin.registry import operator as find
from opmark.schema import Case, Entry, Workload


def case(op: str, *tags: str, phase: Any = "forward") -> Case:
    return Case.of(op, find(op).complete(find(op).preset("small")), phase, tags)


CASES = [
    case("exp", "llm"),
    case("exp", "llm", "decode", phase="backward"),
    case("matmul", "llm", "decode"),
    case("conv2d", "vision"),
    case("conv1d"),
    case("softmax", "llm"),
]


def chosen(**asked: Any) -> list[str]:
    return [one.op for one in WorkloadFilter(**asked).filter_cases(CASES, find)]


def test_nothing_asked_for_is_everything() -> None:
    assert not WorkloadFilter()
    assert WorkloadFilter().filter_cases(CASES, find) == CASES


@pytest.mark.parametrize("kind", ["names", "categories", "tags", "sizes"])
def test_anything_asked_for_is_a_selection(kind: str) -> None:
    assert WorkloadFilter(**{kind: ["x"]})


@pytest.mark.parametrize(
    ("asked", "ops"),
    [
        ({"names": ["exp"]}, ["exp", "exp"]),
        ({"names": ["conv*"]}, ["conv2d", "conv1d"]),
        ({"names": ["conv?d", "matmul"]}, ["matmul", "conv2d", "conv1d"]),
        ({"names": ["mm"]}, ["matmul"]),
        ({"names": ["EXP"]}, []),
        ({"names": ["nothing*"]}, []),
        ({"tags": ["decode"]}, ["exp", "matmul"]),
        ({"tags": ["decode", "vision"]}, ["exp", "matmul", "conv2d"]),
        ({"tags": ["dec"]}, []),
        ({"names": ["exp"], "tags": ["decode"]}, ["exp"]),
        ({"names": ["conv*"], "tags": ["llm"]}, []),
        ({"categories": [find("matmul").category]}, ["matmul"]),
        ({"categories": [find("conv2d").category], "tags": ["vision"]}, ["conv2d"]),
        ({"categories": ["no such thing"]}, []),
    ],
)
def test_values_of_one_kind_are_alternatives_and_kinds_go_together(asked: dict[str, Any], ops: list[str]) -> None:
    assert chosen(**asked) == ops


@given(st.lists(st.sampled_from(["exp", "conv*", "*", "zzz"])), st.lists(st.sampled_from(["llm", "decode", "zzz"])))
@settings(deadline=None)
def test_what_is_chosen_is_there_in_its_order_and_choosing_again_changes_nothing(
    names: list[str], tags: list[str]
) -> None:
    selection = WorkloadFilter(names, (), tags)
    found = selection.filter_cases(CASES, find)
    assert found == [one for one in CASES if one in found]
    assert selection.filter_cases(found, find) == found


def workload(*entries: Entry) -> Workload:
    return Workload(1, "w", list(entries))


def test_of_an_entry_with_several_sizes_those_asked_for_are_left() -> None:
    whole = workload(Entry("exp", sizes=["small", "typical"]), Entry("add", sizes=["large"]), Entry("matmul"))
    found = WorkloadFilter(sizes=["small", "large"]).filter_workload(whole)
    assert [(entry.op, entry.sizes) for entry in found.cases] == [("exp", ["small"]), ("add", ["large"])]
    assert whole.cases[0].sizes == ["small", "typical"], "the original stays"


def test_all_else_of_an_entry_stays() -> None:
    entry = Entry("exp", {"dtype": ["float16"]}, ["small", "large"], ["backward"], ["llm"], ["x"])
    (found,) = WorkloadFilter(sizes=["large"]).filter_workload(workload(entry)).cases
    assert found == Entry("exp", {"dtype": ["float16"]}, ["large"], ["backward"], ["llm"], ["x"])


def test_without_sizes_a_workload_is_the_same() -> None:
    whole = workload(Entry("exp"), Entry("add", sizes=["small"]))
    assert WorkloadFilter(names=["exp"]).filter_workload(whole) is whole


def test_where_nothing_is_left_it_is_said_what_was_asked_for() -> None:
    error = WorkloadFilter(["exp", "conv*"], (), ["llm"], ["small"]).empty_error("suite quick")
    assert error.message == "suite quick has no case for --op exp,conv*, --tag llm, --size small"
    assert "sizes" in (error.hint or "")
    assert "--dry-run" in (WorkloadFilter(["exp"]).empty_error("suite quick").hint or "")


def test_the_tags_that_there_are_are_told() -> None:
    cases = [Case.of("exp", {}, "forward", tags=("b", "a")), Case.of("add", {}, "forward", tags=("c",))]
    assert WorkloadFilter(tags=["z"]).empty_error("suite mine", cases).hint == "its tags are a, b, c"
