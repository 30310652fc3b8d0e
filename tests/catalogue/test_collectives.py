"""The suite `collectives`: every operator that several ranks share, over all sizes, and its parts by tag."""

from __future__ import annotations

import pytest

from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import suite
from opmark.plugin.registry import DRILL, catalogue, operator
from opmark.schema import Case

PARTS = {"sweep", "dtypes", "groups", "uneven", "matrix", "async", "transfers"}
SMALLEST, LARGEST = 8, 64 << 20


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return expand(suite("collectives"), operator)


def tagged(cases: list[Case], tag: str) -> list[Case]:
    return [case for case in cases if tag in case.tags]


def test_every_case_is_of_one_part_or_more(cases: list[Case]) -> None:
    assert {part for case in cases for part in case.tags} >= PARTS
    assert [case for case in cases if not PARTS & set(case.tags)] == []


def test_no_collective_is_missing(cases: list[Case]) -> None:
    needing_none = {name for name, op in catalogue().items() if op.ranks and not op.device_only}
    drills = {name for name, op in catalogue().items() if op.category == DRILL}
    assert {case.op for case in tagged(cases, "sweep")} == needing_none - drills


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "p2p"])
def test_sizes_go_from_8_bytes_to_64_mebibytes(cases: list[Case], op: str) -> None:
    sizes = {case.params["size"] for case in tagged(cases, "sweep") if case.op == op}
    assert (min(sizes), max(sizes)) == (SMALLEST, LARGEST)
    assert len(sizes) >= 8


def test_four_ranks_unless_it_is_a_transfer(cases: list[Case]) -> None:
    assert {case.params["ranks"] for case in cases if operator(case.op).ranks} == {4}
    assert {case.params["ranks"] for case in tagged(cases, "transfers")} == {1}


def test_ranks_stand_by_themselves_so_that_others_can_be_asked_for() -> None:
    assert [entry.op for entry in suite("collectives").cases if any("ranks." in key or ".ranks" in key
                                                                     for key in entry.params)] == []  # fmt: skip


def test_every_element_type(cases: list[Case]) -> None:
    found = {case.params["dtype"] for case in tagged(cases, "dtypes") if case.op == "all_reduce"}
    assert found == set(operator("all_reduce").param("dtype").choices)


def test_groups_of_two(cases: list[Case]) -> None:
    assert {case.params["group"] for case in tagged(cases, "groups")} == {2}


def test_every_pair_once(cases: list[Case]) -> None:
    found = [(case.params["src"], case.params["dst"]) for case in tagged(cases, "matrix")]
    assert sorted(found) == [(i, j) for i in range(4) for j in range(4) if i != j]


def test_what_is_asynchronous(cases: list[Case]) -> None:
    assert {case.params["asynchronous"] for case in tagged(cases, "async")} == {True}


def test_transfers_of_both_kinds_of_memory(cases: list[Case]) -> None:
    found = {(case.op, case.params["pinned"]) for case in tagged(cases, "transfers")}
    assert found == {(op, pinned) for op in ("host2device", "device2host") for pinned in (True, False)}
