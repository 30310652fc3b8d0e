"""ByteMicroPerf's communication and transfers: sizes, ranks and pairs of all three generations, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import compact, yaml_text
from opmark.interop.bytemicroperf.communication import buffer_shape
from opmark.interop.bytemicroperf.importer import BYTEMICROPERF
from opmark.interop.bytemicroperf.operators import BETWEEN_DEVICES, to_bytemicroperf
from opmark.plugin.registry import operator
from opmark.runner.workload_source import read_source
from opmark.schema import Case, Imported, Workload
from opmark.schema.tensor import sizeof

BUFFER = {"arg_type": "default", "world_size": 4, "dtype": "float16", "batch_size": 3, "dim_size": 1024}
TOKENS = {"arg_type": "llm", "world_size": 8, "dtype": "bfloat16", "num_tokens": 8, "hidden_size": 1024}
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
DISPATCH = {"arg_type": "llm", "world_size": 4, "num_tokens": 64, "hidden_size": 16, "topk": 2, "dtype": "int8"}


def imported(data: dict[str, Any], name: str = "x.json") -> Imported:
    return BYTEMICROPERF.read(Path(name), json.loads(json.dumps(data)), 0)


def cases(data: dict[str, Any], name: str = "x.json") -> list[Case]:
    found = imported(data, name)
    assert found.problems == ()
    return expand(Workload(1, "x", list(found.entries)), operator)


def case(task: str, point: dict[str, Any]) -> Case:
    (found,) = cases({task: [point]})
    return found


def problem(task: str, point: dict[str, Any]) -> str:
    found = imported({task: [point]})
    assert found.entries == ()
    (only,) = found.problems
    return str(only)


def v1(task: str, **more: Any) -> dict[str, Any]:
    file = {"operator": task, "iterations": 100, "input_shape_groups": {"inputs": [[[8, 16], [1024]]]}}
    return {**file, "dtype": ["float32"], "group": [2, 4], **more}


@pytest.mark.parametrize("task", COLLECTIVES)
def test_a_size_is_the_bytes_of_the_whole_buffer(task: str) -> None:
    found = case(task, BUFFER)
    assert found.op == task
    assert {name: found.params[name] for name in ("size", "dtype", "ranks", "group")} == {
        "size": 3 * 1024 * 2, "dtype": "float16", "ranks": 4, "group": 0
    }  # fmt: skip
    assert operator(task).cost(found.params).traffic.size == 3 * 1024 * 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("task", "factor"),
    [("all_reduce", 1.5), ("reduce_scatter", 0.75), ("all_gather", 0.75), ("all_to_all", 0.75), ("broadcast", 1.0)],
)
def test_bus_traffic_is_that_of_bytemicroperf(task: str, factor: float) -> None:
    traffic = operator(task).cost(case(task, BUFFER).params).traffic
    assert traffic is not None
    assert traffic.bus == factor * 3 * 1024 * 2


@pytest.mark.parametrize("task", COLLECTIVES)
def test_tokens_are_rows_too(task: str) -> None:
    found = case(task, TOKENS)
    assert (found.params["size"], found.params["ranks"]) == (8 * 1024 * 2, 8)
    theirs = to_bytemicroperf(found)
    assert theirs == (task, TOKENS)


@pytest.mark.parametrize(("task", "in_place"), [("all_reduce", True), ("broadcast", True), ("all_gather", False)])
def test_the_result_is_in_place_as_in_bytemicroperf(task: str, in_place: bool) -> None:
    found = case(task, BUFFER)
    assert found.params["in_place"] is in_place
    other = Case.of(task, {**found.params, "in_place": not in_place}, "forward")
    assert to_bytemicroperf(other) is None


POINTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys((*COLLECTIVES, "all_reduce_h2d", "host2device", "device2host"), BUFFER),
    "p2p": {**BUFFER, "src_device": 2, "dst_device": 1},
    "moe_dispatch_tokens": DISPATCH,
}


def test_every_task_has_a_sample() -> None:
    assert POINTS.keys() == set(BETWEEN_DEVICES)


@pytest.mark.parametrize("task", sorted(POINTS))
def test_every_task_comes_back_as_it_was(task: str) -> None:
    found = case(task, POINTS[task])
    theirs = to_bytemicroperf(found)
    assert theirs is not None
    assert (theirs.op, theirs.arguments) == (task, POINTS[task])
    assert case(theirs.op, theirs.arguments).id == found.id


@pytest.mark.parametrize("params", [{"group": 2}, {"asynchronous": True}, {"op": "max"}, {"size": 3, "dtype": "int32"}])
def test_parameters_without_an_argument_are_not_exported(params: dict[str, Any]) -> None:
    whole = operator("all_reduce").complete({"size": 1024, "ranks": 4, **params})
    assert to_bytemicroperf(Case.of("all_reduce", whole, "forward")) is None


@given(st.integers(1, 2**40), st.sampled_from(["int8", "float16", "float32", "float64"]))
def test_rows_have_as_many_bytes_as_the_buffer(nbytes: int, dtype: str) -> None:
    found = buffer_shape(nbytes, dtype)
    if found is None:
        assert nbytes % sizeof(dtype)
    else:
        assert found[0] * found[1] * sizeof(dtype) == nbytes


@pytest.mark.parametrize(
    ("task", "ours"),
    [("allreduce", "all_reduce"), ("allgather", "all_gather"), ("reducescatter", "reduce_scatter"),
     ("alltoall", "all_to_all"), ("broadcast", "broadcast")],
)  # fmt: skip
def test_groups_of_the_first_generation_are_ranks(task: str, ours: str) -> None:
    found = cases(v1(task), f"{task}.json")
    assert {one.op for one in found} == {ours}
    assert [(one.params["ranks"], one.params["size"]) for one in found] == [
        (ranks, rows * 1024 * 4) for ranks in (2, 4) for rows in (8, 16)
    ]
    assert imported(v1(task)).asked == {"samples": 100}


@pytest.mark.parametrize("task", ["host2device", "device2host"])
def test_transfers_are_pinned_and_on_one_device_by_default(task: str) -> None:
    alone = {key: value for key, value in BUFFER.items() if key != "world_size"}
    assert (case(task, alone).params["ranks"], case(task, alone).params["pinned"]) == (1, True)
    file = {key: value for key, value in v1(task).items() if key != "group"}
    assert {one.params["ranks"] for one in cases(file)} == {1}
    assert {one.params["ranks"] for one in cases(v1(task, group=[1, 2, 16]))} == {1, 2, 16}


# Pairs

PAIR = {key: value for key, value in BUFFER.items() if key != "world_size"}


def pairs(found: list[Case]) -> list[tuple[int, int]]:
    return [(one.params["src"], one.params["dst"]) for one in found if one.op == "p2p"]


def test_without_a_pair_every_pair_and_one_copy_are_measured() -> None:
    found = cases({"p2p": [{**PAIR, "world_size": 3}]})
    assert sorted(pairs(found)) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert [(one.op, one.params["n"]) for one in found if one.op != "p2p"] == [("copy", 3 * 1024)]
    assert {one.params["ranks"] for one in found if one.op == "p2p"} == {3}
    (note,) = [note for note in imported({"p2p": [{**PAIR, "world_size": 3}]}).notes if "every pair" in note]
    assert "2 ranks" not in note


def test_two_ranks_where_a_file_does_not_say_how_many() -> None:
    found = cases({"p2p": [PAIR]})
    assert sorted(pairs(found)) == [(0, 1), (1, 0)]
    assert any("every pair of 2 ranks" in note for note in imported({"p2p": [PAIR]}).notes)


def test_pairs_survive_a_file_of_ours(tmp_path: Path) -> None:
    found = imported({"p2p": [{**PAIR, "world_size": [2, 3]}]})
    whole = Workload(1, "x", list(found.entries))
    path = tmp_path / "x.yaml"
    path.write_text(yaml_text(Workload(1, "x", compact(whole.cases))))
    read = read_source(path).workload
    assert {one.id for one in expand(read, operator)} == {one.id for one in expand(whole, operator)}


def test_a_device_to_itself_is_a_copy_of_as_many_bytes() -> None:
    same = {**PAIR, "dtype": "float32", "world_size": 2, "src_device": 1, "dst_device": 1}
    assert (case("p2p", same).op, case("p2p", same).params["n"]) == ("copy", 3 * 1024)
    narrow = case("p2p", {**same, "dtype": "int8"})
    assert (narrow.params["n"], narrow.params["dtype"]) == (3 * 512, "float16")
    assert any("float16" in note for note in imported({"p2p": [{**same, "dtype": "int8"}]}).notes)


def test_the_first_generation_sends_along_a_chain() -> None:
    shapes = {"inputs": [[[8], [1024]], [[8], [1024]]]}
    found = cases(v1("p2p", group=[4], input_shape_groups=shapes))
    assert pairs(found) == [(0, 1), (1, 2), (2, 3)]
    assert len(found) == 3
    assert any("one pair is measured after the other" in note for note in imported(v1("p2p")).notes)


@pytest.mark.parametrize(
    ("task", "point", "says"),
    [
        ("p2p", {**PAIR, "world_size": 2, "src_device": 0, "dst_device": 2}, "expected a rank from 0 to 1"),
        ("p2p", {**PAIR, "world_size": 2, "src_device": 0}, "`dst_device` is missing"),
        ("p2p", {**PAIR, "world_size": 1}, "`world_size`: expected 2 to 256"),
        ("p2p", {**PAIR, "world_size": 10**6}, "`world_size`: expected 2 to 256"),
        ("all_reduce", PAIR, "`world_size` is missing"),
        ("all_reduce", {**BUFFER, "world_size": 0}, "`world_size`"),
        ("all_reduce", {**BUFFER, "dtype": "tfloat32"}, "`dtype`"),
        ("all_reduce", {**BUFFER, "dtype": "bool"}, "`dtype`"),
        ("all_reduce", {**BUFFER, "batch_size": 2**47}, "at most"),
        ("host2device", {**TOKENS, "dtype": "float32"}, "`batch_size` is missing"),
        ("moe_dispatch_tokens", {**DISPATCH, "num_tokens": 3}, "at least one for each of 4 ranks"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(task: str, point: dict[str, Any], says: str) -> None:
    assert says in problem(task, point)


def test_a_refused_p2p_is_one_point() -> None:
    found = imported({"p2p": [{**PAIR, "dtype": "tfloat32", "world_size": 4}]})
    assert [str(one) for one in found.problems if "(1 point)" in str(one)]


# Experts


def test_each_rank_has_its_share_of_the_tokens() -> None:
    found = case("moe_dispatch_tokens", DISPATCH)
    expected = {"num_tokens": 16, "num_experts": 4, "topk": 2, "ranks": 4, "imbalance": 0.1, "dtype": "int8"}
    assert found.op == "moe_dispatch"
    assert {name: found.params[name] for name in expected} == expected


def test_there_are_as_many_experts_as_a_token_can_choose() -> None:
    found = case("moe_dispatch_tokens", {**DISPATCH, "topk": 6})
    assert (found.params["num_experts"], found.params["topk"]) == (8, 6)


@pytest.mark.parametrize("task", ["broadcast", "all_reduce_h2d", "moe_dispatch_tokens"])
def test_differences_from_bytemicroperf_are_noted(task: str) -> None:
    assert any(task in note for note in imported({task: [POINTS[task]]}).notes)
