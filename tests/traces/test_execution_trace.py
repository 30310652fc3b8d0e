"""Execution traces of PyTorch: every version, what files of other people get wrong, and communication."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.trace_files import (
    FLIPPED,
    MATRIX,
    MM,
    PRODUCT,
    ROOT,
    THREAD,
    A,
    B,
    C,
    call,
    io,
    node,
    trace_of,
    written,
)

from opmark.errors import UserError
from opmark.traces.execution_trace import parse_type
from opmark.traces.reading import read_ranks, read_trace
from opmark.traces.trace import OpaqueValue, TensorRef


def without_strides(one: Any) -> Any:
    sides = {side: {k: v for k, v in one[side].items() if k != "strides"} for side in ("inputs", "outputs")}
    return one | sides


def flat(one: Any) -> Any:
    """A node as version 1.0.1 has it."""
    return {
        "name": one["name"], "id": one["id"], "parent": one["ctrl_deps"],
        **{attribute["name"]: attribute["value"] for attribute in one["attrs"]},
        "inputs": one["inputs"]["values"], "input_shapes": one["inputs"]["shapes"],
        "input_types": one["inputs"]["types"],
        "outputs": one["outputs"]["values"], "output_shapes": one["outputs"]["shapes"],
        "output_types": one["outputs"]["types"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "version",
    ["1.0.2-chakra.0.0.4", "1.0.3", "1.0.3-chakra.0.0.4", "1.0.4", "1.1.0", "1.1.0-chakra.0.0.4", "1.1.1",
     "1.1.1-chakra.0.0.4"],
)  # fmt: skip
def test_versions_are_read_alike(tmp_path: Path, version: str) -> None:
    trace = trace_of(tmp_path, without_strides(PRODUCT), version=version)
    (product,) = trace.calls
    assert (product.name, product.schema, product.kind) == ("aten::mm", MM, "operator")
    assert product.inputs[0] == TensorRef((2, 4), "float32", "cpu", 3, 4, 0, None)
    assert [ref.shape for ref in product.outputs] == [(2, 2)]
    assert trace.problems == []
    assert version in trace.format


def test_flat_nodes_of_the_first_version_are_read(tmp_path: Path) -> None:
    old = flat(PRODUCT)
    old["inputs"] = [A[:5], B[:5]]  # the oldest files do not name a device
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": [old, flat(THREAD), flat(ROOT)]}))
    trace = read_trace(path)
    (product,) = trace.calls
    assert product.inputs[0] == TensorRef((2, 4), "float32", "", 3, 4, 0, None)
    assert product.attributes["rf_id"] == 10
    assert product.thread == 1
    assert trace.problems == []


@pytest.mark.parametrize("version", ["1.2.0", "2.0.0-chakra.0.0.4", "1.1.1-chakra.1.0.0"])
def test_newer_versions_are_read_with_a_problem(tmp_path: Path, version: str) -> None:
    trace = trace_of(tmp_path, PRODUCT, version=version)
    assert len(trace.calls) == 1
    assert [version in problem.message for problem in trace.problems] == [True]


@pytest.mark.parametrize("version", ["1.0.0", "0.9.1", "tomorrow", ""])
def test_versions_that_cannot_be_read_are_refused_by_name(tmp_path: Path, version: str) -> None:
    with pytest.raises(UserError, match=version or "no version") as error:
        trace_of(tmp_path, PRODUCT, version=version)
    assert "1.0.1" in (error.value.hint or "")


def test_order_is_that_of_beginnings_and_only_outermost_operators_are_calls(tmp_path: Path) -> None:
    linear = node(9, "aten::linear", 2, op_schema="aten::linear(Tensor input, Tensor weight) -> Tensor")
    inner = node(11, "aten::mm", 9, op_schema=MM)
    step = node(8, "ProfilerStep#1", 2)
    trace = trace_of(tmp_path, inner, linear, PRODUCT, step)
    assert [one.id for one in trace.nodes] == [1, 2, 8, 9, 10, 11]
    assert [one.id for one in trace.calls] == [9, 10]
    assert trace.by_id[8].kind == "label"


def test_values_of_all_kinds_are_read(tmp_path: Path) -> None:
    undefined = [20, 0, 0, 0, 0, ""]
    inputs = io(
        (A, [2, 4], "Tensor(c10::BFloat16)", [4, 1]),
        ([A, B], [[2, 4], [8]], "GenericList[Tensor(long int),Tensor(c10::complex<float>)]", [[4, 1], [1]]),
        (undefined, [], "Tensor(nullptr (uninitialized))", []),
        ("<None>", [], "None", []),
        ("<Generator>", [], "Generator", []),
        ("inf", [], "Double", []),
        ("-nan", [], "Double", []),
        (3, [], "Double", []),
        ("cuda:0", [], "Device", []),
        ([2, 3], [[], []], "GenericList[Int,Int]", [[], []]),
        ([True, "<None>"], [[], []], "Tuple[Bool,None]", [[], []]),
        ("<Object>", [], "Object", []),
        ("<Storage>", [], "Storage", []),
        ("sum", [], "String", []),
        ([], [], "GenericList[]", []),
    )
    (call,) = trace_of(tmp_path, node(10, "aten::many", 2, op_schema="aten::many() -> ()", inputs=inputs)).calls
    tensor, pair, *rest = call.inputs
    assert tensor.dtype == "bfloat16"
    assert [one.dtype for one in pair] == ["int64", "complex64"]
    assert rest[:3] == [OpaqueValue("Undefined"), None, OpaqueValue("Generator")]
    assert rest[3] == math.inf
    assert math.isnan(rest[4])
    assert rest[5] == 3.0
    assert isinstance(rest[5], float)
    assert rest[6:] == [
        OpaqueValue("Device", "cuda:0"), [2, 3], [True, None], OpaqueValue("Object"), OpaqueValue("Storage"), "sum", [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "dtype"),
    [("float", "float32"), ("long", "int64"), ("long int", "int64"), ("c10::Half", "float16"), ("short int", "int16"),
     ("unsigned char", "uint8"), ("signed char", "int8"), ("c10::Float8_e4m3fn", "float8_e4m3fn"), ("bool", "bool"),
     ("c10::complex<double>", "complex128"), ("int", "int32"), ("double", "float64"), ("c10::New", "c10::New")],
)  # fmt: skip
def test_element_types(written: str, dtype: str) -> None:
    assert parse_type(f"Tensor({written})").dtype == dtype
    assert parse_type(f"GenericList[GenericList[Int,Tensor({written})],Int]").items[0].items[1].dtype == dtype


def test_ranges_count_tensors_and_ignore_memory_that_nobody_wrote(tmp_path: Path) -> None:
    index = [9, 12, 0, 5, 8, "cpu"]
    inputs = io(
        (A, [2, 4], "Tensor(float)", [4, 1]),
        (0, [], "Int", []),
        (index, [5], "Tensor(long int)", [1]),
        (index, [5], "Tensor(long int)", [1]),
    )
    bounds = json.dumps({"1": [0, 3], "2": [0, 7309475735946686209]})
    wide = node(10, "aten::x", 2, op_schema="aten::x() -> ()", inputs=inputs, outputs=inputs, tensor_range=bounds)
    (call,) = trace_of(tmp_path, wide).calls
    assert (call.inputs[2].low, call.inputs[2].high) == (0, 3)
    assert (call.inputs[3].low, call.inputs[3].high) == (None, None)
    assert call.outputs[2].low is None


def test_sizes_below_zero_and_odd_tensors_are_problems(tmp_path: Path) -> None:
    inputs = io((A, [-2, 4], "Tensor(float)", [4, 1]), ("tensor", [2], "Tensor(float)", [1]))
    trace = trace_of(tmp_path, node(10, "aten::x", 2, op_schema="aten::x() -> ()", inputs=inputs), PRODUCT | {"id": 11})
    assert len(trace.problems) == 2
    assert "[-2, 4]" in trace.problems[0].message
    assert "$.nodes[0]" in trace.problems[0].where
    assert all(isinstance(one, OpaqueValue) for one in trace.calls[0].inputs)
    assert len(trace.calls) == 2


def test_cycles_missing_parents_and_repeated_ids_are_problems(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        node(20, "one", 21), node(21, "two", 20), node(22, "self", 22), node(23, "orphan", 99), node(24, "child", 23),
        node(24, "again", 2), PRODUCT,
    )  # fmt: skip
    text = "\n".join(map(str, trace.problems))
    assert "which it calls itself" in text
    assert "node 22" in text
    assert "1 node whose parent is not in the file" in text
    assert "the id 24 is that of another node too" in text
    assert {one.id for one in trace.nodes} == {1, 2, 10, 20, 21, 22, 23, 24}
    for one in trace.nodes:
        list(trace.ancestors(one))


def test_a_node_that_cannot_be_read_is_a_problem_with_its_place(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, {"name": "without id"}, PRODUCT)
    assert len(trace.calls) == 1
    assert "$.nodes[0]" in trace.problems[0].where


# Files that are compressed, cut off, or not quite JSON.


def test_compressed_files_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, PRODUCT)
    packed = tmp_path / "step.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read_trace(packed).calls) == 1
    packed.write_bytes(gzip.compress(path.read_bytes())[:-20])
    with pytest.raises(UserError, match="ends too early"):
        read_trace(packed)


def test_a_file_that_is_cut_off_is_refused_with_the_number_of_complete_nodes(tmp_path: Path) -> None:
    whole = written(tmp_path, PRODUCT, PRODUCT | {"id": 11}, PRODUCT | {"id": 12}).read_text()
    cut = tmp_path / "cut.json"
    cut.write_text(whole[: whole.index('"id": 12') + 30])
    with pytest.raises(UserError, match="after 2 complete items") as error:
        read_trace(cut)
    assert error.value.hint


def test_what_torch_writes_against_the_rules_of_json_is_read(tmp_path: Path) -> None:
    scalar = node(11, "tab\there", 2, inputs=io((1.5, [], "Double", [])))
    text = written(tmp_path, PRODUCT, scalar).read_text()
    text = text.replace("[1.5]", "[NaN]").replace("tab\\there", "tab\there").replace('}]}, {"id": 11', '}]} {"id": 11')
    path = tmp_path / "odd.json"
    path.write_text(text)
    trace = read_trace(path)
    assert [one.id for one in trace.nodes] == [1, 2, 10, 11]
    assert math.isnan(trace.by_id[11].inputs[0])
    assert trace.problems == []


def test_a_broken_node_between_others_is_a_problem(tmp_path: Path) -> None:
    text = written(tmp_path, PRODUCT, PRODUCT | {"id": 11}).read_text()
    path = tmp_path / "odd.json"
    path.write_text(
        text.replace('{"id": 11, "name": "aten::mm", "ctrl_deps": 2,', '{"id": 11, "name": "aten::mm" "ctrl')
    )
    trace = read_trace(path)
    assert [one.id for one in trace.calls] == [10]
    assert "$.nodes[1]" in trace.problems[0].where


@pytest.mark.parametrize(
    "text", ["", "nothing", "{}", '{"schema": "1.1.1", "nodes": 3}', '{"schema": "1.1.1", "nodes": []}']
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "no.json"
    path.write_text(text)
    with pytest.raises(UserError):
        read_trace(path)
    with pytest.raises(UserError):
        read_trace(tmp_path / "not-there.json")


# Communication.

TENSORS = ([A], [[8]], "GenericList[Tensor(float)]", [[1]])
REDUCE = "c10d::allreduce_(Tensor[] tensors, ProcessGroup process_group, bool async_op=True) -> (Tensor[], Work)"


def groups(*described: dict[str, Any]) -> Any:
    return node(3, "## process_group:init ##", 2, inputs=io((json.dumps(list(described)), [], "String", [])))


def record(number: int, parent: int, name: str, group: Any = ("pg0", "default"), **attributes: Any) -> Any:
    values = (
        TENSORS, (7, [], "Int", []), (list(group), [[], []], "Tuple[String,String]", [[], []]), (1, [], "Int", []),
        (name, [], "String", []), ([], [], "GenericList[]", []), ([], [], "GenericList[]", []), (0, [], "Int", []),
        (1, [], "Int", []), (4, [], "Int", []),
    )  # fmt: skip
    return node(number, "record_param_comms", parent, inputs=io(*values), **attributes)


def test_a_collective_of_nccl_is_one_call_that_knows_its_group(tmp_path: Path) -> None:
    call = node(
        10,
        "c10d::allreduce_",
        2,
        op_schema=REDUCE,
        inputs=io(TENSORS, ("<Object>", [], "Object", []), (False, [], "Bool", [])),
    )
    trace = trace_of(
        tmp_path, record(11, 10, "allreduce"), call, groups({"pg_name": "pg0", "ranks": [], "group_size": 4})
    )
    (one,) = trace.calls
    assert one.collective is not None
    assert (one.collective.name, one.collective.group, one.collective.group_size) == ("all_reduce", "pg0", 4)
    assert (one.collective.dtype, one.collective.in_elements) == ("float32", 8)
    assert trace.groups["pg0"].ranks == (0, 1, 2, 3)
    assert trace.world_size == 4


def test_records_of_communication_are_read_without_an_operator_above_them(tmp_path: Path) -> None:
    attributes = {
        "collective_name": "all_to_allv", "dtype": "BFloat16", "in_msg_nelems": 12, "out_msg_nelems": 20,
        "in_split_size": "[4,8]", "out_split_size": [10, 10], "pg_name": "7", "pg_size": 2,
    }  # fmt: skip
    trace = trace_of(
        tmp_path, record(10, 2, "x", **attributes), record(11, 2, "wait"), record(12, 2, "init"),
        record(13, 2, "broadcast"), record(14, 2, "_allgather_base"), record(15, 2, "nccl:_reduce_scatter_base"),
    )  # fmt: skip
    first, broadcast, gather, scatter = (one.collective for one in trace.calls)
    assert first is not None
    assert broadcast is not None
    assert gather is not None
    assert scatter is not None
    assert (first.name, first.dtype, first.group, first.group_size) == ("all_to_all", "bfloat16", "7", 2)
    assert (first.in_elements, first.out_elements) == (12, 20)
    assert (first.in_splits, first.out_splits) == ((4, 8), (10, 10))
    assert (broadcast.name, broadcast.peer) == ("broadcast", 1)
    assert (gather.name, scatter.name) == ("all_gather", "reduce_scatter")


def test_work_of_gloo_belongs_to_the_operator_that_asked_for_it(tmp_path: Path) -> None:
    gather = "c10d::allgather_(Tensor[][] output_tensors, Tensor[] input_tensors) -> Work"
    outputs = ([[B, C]], [[[8], [8]]], "GenericList[GenericList[Tensor(float),Tensor(float)]]", [[[1], [1]]])
    trace = trace_of(
        tmp_path,
        node(10, "c10d::allgather_", 2, op_schema=gather, inputs=io(outputs, TENSORS)),
        node(11, "gloo:all_gather", 2),
        node(12, "[pytorch|profiler|execution_trace|thread]", 1, tid=2),
        node(13, "aten::copy_", 12, tid=2, op_schema="aten::copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)"),
        PRODUCT | {"id": 14},
        groups({"pg_name": "0", "ranks": [0, 1], "group_size": 2, "backend_config": "cpu:gloo"}),
    )
    collective, product = trace.calls
    assert collective.collective is not None
    assert (collective.collective.name, collective.collective.group) == ("all_gather", "0")
    assert (collective.collective.in_elements, collective.collective.out_elements) == (8, 16)
    assert product.name == "aten::mm"


def test_ranks_of_a_folder_are_read_in_their_order(tmp_path: Path) -> None:
    for rank in (1, 10, 0, 2, 3, 4, 5, 6, 7, 8, 9):
        written(tmp_path, PRODUCT, name=f"step.rank-{rank}.json")
    (tmp_path / "step.rank-0.kineto.json").write_text('{"traceEvents": []}')
    traces = read_ranks(tmp_path)
    assert [trace.rank for trace in traces] == list(range(11))
    assert {trace.world_size for trace in traces} == {11}
    assert len(read_ranks(tmp_path / "step.json")) == 11
    assert len(read_ranks(tmp_path / "step.rank-3.json")) == 1
    with pytest.raises(UserError, match="there is no such file, and none of its ranks"):
        read_ranks(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="a folder without traces of ranks"):
        read_ranks(tmp_path / "empty")


def test_ranks_of_profilers_files_are_in_them(tmp_path: Path) -> None:
    """TensorBoard's handler names files after hosts and times."""
    for rank, name in ((1, "host-a_77.1750.pt.trace.json"), (0, "host-b_12.1751.pt.trace.json.gz")):
        text = json.dumps(
            {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
             "traceEvents": [call("aten::mm", 1, 1, MATRIX, FLIPPED)]}
        ).encode()  # fmt: skip
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    (tmp_path / "notes.json").write_text("{}")
    first, second = read_ranks(tmp_path)
    assert (first.rank, second.rank) == (0, 1)
    assert second.source.endswith("host-a_77.1750.pt.trace.json")
