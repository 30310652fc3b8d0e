"""Every collective of PARAM as an operator of opmark, and the rows of a command line."""

from __future__ import annotations

from typing import Any

import pytest
from param_comms_runs import COLLECTIVES, request_of, rows

from opmark.errors import UserError
from opmark.interop.param.comms import collectives
from opmark.plugin.registry import operator as find_operator

_LISTS: dict[str, Any] = {"lists": True, "imbalance": 0.0}
_ONE: dict[str, Any] = {"lists": False, "imbalance": 0.0}

MAPPED: list[tuple[str, str, dict[str, Any]]] = [
    ("reduce", "reduce", {"in_place": True, "root": 0, "op": "sum"}),
    ("all_reduce", "all_reduce", {"in_place": True, "op": "sum"}),
    ("all_to_all", "all_to_all", _LISTS),
    ("all_to_allv", "all_to_all", _ONE),
    ("all_gather", "all_gather", _LISTS | {"in_place": False}),
    ("all_gather_v", "all_gather", _LISTS | {"in_place": False}),
    ("all_gather_object", "all_gather_object", {}),
    ("broadcast", "broadcast", {"in_place": True, "root": 0}),
    ("broadcast_object_list", "broadcast_object", {"root": 0}),
    ("reduce_scatter", "reduce_scatter", _LISTS | {"in_place": False}),
    ("reduce_scatter_v", "reduce_scatter", _LISTS | {"in_place": False}),
    ("reduce_scatter_base", "reduce_scatter", _ONE | {"in_place": False}),
    ("all_gather_base", "all_gather", _ONE | {"in_place": False}),
    ("incast", "incast", {"root": 0}),
    ("multicast", "multicast", {"root": 0}),
    ("gather", "gather_ranks", {"root": 0}),
    ("scatter", "scatter_ranks", {"root": 0}),
]


def test_all_17_are_there_in_param_s_order() -> None:
    assert tuple(collectives.COLLECTIVES) == COLLECTIVES
    assert [name for name, _, _ in MAPPED] == list(COLLECTIVES)


@pytest.mark.parametrize(("name", "op", "params"), MAPPED, ids=[name for name, _, _ in MAPPED])
def test_a_collective_is_an_operator_of_several_ranks(name: str, op: str, params: dict[str, Any]) -> None:
    (row,) = rows("--collective", name, "--ss", "64", ranks=4)
    (case,) = row.cases
    assert case.op == op
    assert find_operator(op).ranks
    assert params.items() <= case.params.items()
    assert (case.params["ranks"], case.params["group"]) == (4, 0)


@pytest.mark.parametrize("name", ["all_to_allv", "all_gather_v", "reduce_scatter_v"])
def test_parts_that_may_differ_do_where_it_is_asked_for(name: str) -> None:
    (row,) = rows("--collective", name, "--ss", "64K", "--imbalance", "0.5")
    assert row.cases[0].params["imbalance"] == 0.5


def test_an_imbalance_is_only_for_collectives_that_have_it() -> None:
    even, uneven = rows("--collective", "all_gather,all_gather_v", "--ss", "64K", "--imbalance", "0.5")
    assert [row.cases[0].params["imbalance"] for row in (even, uneven)] == [0.0, 0.5]


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "broadcast", "gather", "scatter", "reduce"])
def test_blocking_or_begun_and_waited_for(name: str) -> None:
    for blocking in (0, 1):
        (row,) = rows("--collective", name, "--ss", "64", "--z", str(blocking))
        assert row.cases[0].params["asynchronous"] is (blocking == 0)


def test_every_sender_of_an_incast_has_the_size() -> None:
    """PARAM's size is that of one message; the operator's is what the root receives."""
    (row,) = rows("--collective", "incast", "--ss", "64", ranks=4)
    assert (row.size, row.elements, row.cases[0].params["size"]) == (64, 16, 192)
    (row,) = rows("--collective", "multicast", "--ss", "64", ranks=4)
    assert (row.size, row.elements, row.cases[0].params["size"]) == (64, 16, 64)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_operator_moves_the_bytes_of_the_row(name: str) -> None:
    """Both round in the same way: 1000 bytes are not a multiple of 3 ranks times 8 bytes."""
    (row,) = rows("--collective", name, "--ss", "1000", "--data-types", "float64", ranks=3)
    case = row.cases[0]
    traffic = find_operator(case.op).cost(case.params).traffic
    assert traffic is not None
    assert traffic.size == case.params["size"] == row.size * (2 if name == "incast" else 1)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_elements_are_counted_per_rank(name: str) -> None:
    (row,) = rows("--collective", name, "--ss", "4096", ranks=4)
    assert row.elements == (256 if collectives.COLLECTIVES[name].shared else 1024)


def test_groups_and_root() -> None:
    (row,) = rows("--collective", "broadcast", "--ss", "64", "--multi-comms", "2", "--root", "1", ranks=4)
    assert (row.cases[0].params["group"], row.cases[0].params["root"]) == (2, 1)


def test_element_types_then_collectives_then_sizes() -> None:
    found = rows("--data-types", "int32,half", "--collective", "all_reduce,broadcast", "--ss", "8,16", "--tag", "mine")
    assert [(row.label, row.size) for row in found] == [
        (f"COMMS-RES-{name}-{dtype}-mine", size)
        for dtype in ("int32", "half")
        for name in ("all_reduce", "broadcast")
        for size in (8, 16)
    ]
    assert {row.cases[0].params["dtype"] for row in found} == {"int32", "float16"}


def test_a_pair_is_measured_in_four_ways() -> None:
    """Latency is that of one message, bandwidth that of a window of messages."""
    (row,) = rows("--pt2pt", "one2one", "--ss", "64", "--src-ranks", "2", "--dst-ranks", "0", "--window", "9", ranks=3)
    told = [[case.params[name] for name in ("pattern", "window", "asynchronous")] for case in row.cases]
    assert told == [["one_way", 1, False], ["ping_pong", 1, False], ["one_way", 9, True], ["both_ways", 9, True]]
    assert {(case.op, case.params["src"], case.params["dst"], case.params["ranks"]) for case in row.cases} == {
        ("p2p", 2, 0, 3)
    }
    assert (row.label, row.elements, row.window) == ("COMMS-RES-pt2pt-float32", 16, 9)


def test_a_pair_has_no_groups() -> None:
    with pytest.raises(UserError, match="--multi-comms: pt2pt has one pair and no groups"):
        rows("--pt2pt", "one2one", "--multi-comms", "2", ranks=4)


def test_incast_needs_somebody_else() -> None:
    with pytest.raises(UserError, match="a single rank has no partner"):
        rows("--collective", "incast", ranks=1)


def test_the_group_size_is_that_of_one_communicator() -> None:
    assert request_of("--multi-comms", "2", ranks=4).group_size == 2
    (row,) = rows("--collective", "all_gather", "--ss", "64", "--multi-comms", "2", ranks=4)
    assert row.elements == 8
