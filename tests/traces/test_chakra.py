"""Chakra's traces: read and written, checked against protobuf with the published schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.trace_files import PRODUCT, A, io, node, trace_of, written

from opmark.api.export import export_workload
from opmark.errors import UserError
from opmark.traces.chakra import decode_varint, encode_varint, write_chakra
from opmark.traces.execution_trace import write_execution_trace
from opmark.traces.reading import read_trace
from opmark.traces.trace import ProgramTrace


def messages() -> dict[str, Any]:
    """The messages of et_def.proto that traces of programs have."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    nodes = file.enum_type.add(name="NodeType")
    for number, name in enumerate(
        ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
    ):
        nodes.value.add(name=f"{name}_NODE", number=number)

    def message(name: str, *fields: tuple[int, str, int, bool, str]) -> None:
        added = file.message_type.add(name=name)
        for number, field, kind, repeated, of in fields:
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            type_name = f".ChakraProtoMsg.{of}" if of else None
            one = added.field.add(name=field, number=number, type=kind, label=label, type_name=type_name)
            if name == "AttributeProto" and number > 2:
                one.oneof_index = 0
        if name == "AttributeProto":
            added.oneof_decl.add(name="value")

    text, u64, i64, flag = kinds.TYPE_STRING, kinds.TYPE_UINT64, kinds.TYPE_INT64, kinds.TYPE_BOOL
    of_message, of_enum = kinds.TYPE_MESSAGE, kinds.TYPE_ENUM
    message("Int64List", (1, "values", i64, True, ""))
    message(
        "AttributeProto", (1, "name", text, False, ""), (2, "doc_string", text, False, ""),
        (3, "double_val", kinds.TYPE_DOUBLE, False, ""), (9, "int64_val", i64, False, ""),
        (10, "int64_list", of_message, False, "Int64List"), (13, "uint64_val", u64, False, ""),
        (17, "sint64_val", kinds.TYPE_SINT64, False, ""), (27, "bool_val", flag, False, ""),
        (29, "string_val", text, False, ""),
    )  # fmt: skip
    message("GlobalMetadata", (1, "version", text, False, ""), (2, "attr", of_message, True, "AttributeProto"))
    message("IOInfo", (1, "values", text, False, ""), (2, "shapes", text, False, ""), (3, "types", text, False, ""))
    message(
        "Node", (1, "id", u64, False, ""), (2, "name", text, False, ""), (3, "type", of_enum, False, "NodeType"),
        (4, "ctrl_deps", u64, True, ""), (5, "data_deps", u64, True, ""), (6, "start_time_micros", u64, False, ""),
        (7, "duration_micros", u64, False, ""), (8, "inputs", of_message, False, "IOInfo"),
        (9, "outputs", of_message, False, "IOInfo"), (10, "attr", of_message, True, "AttributeProto"),
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("GlobalMetadata", "Node", "AttributeProto")
    }


def split(content: bytes) -> list[bytes]:
    found, place = [], 0
    while place < len(content):
        size, place = decode_varint(content, place)
        found.append(content[place : place + size])
        place += size
    return found


def framed(*parts: Any) -> bytes:
    contents = [part.SerializeToString() for part in parts]
    return b"".join(encode_varint(len(content)) + content for content in contents)


REDUCE = node(
    12, "c10d::allreduce_", 2, op_schema="c10d::allreduce_(Tensor[] tensors) -> ()",
    inputs=io(([A], [[8]], "GenericList[Tensor(float)]", [[1]])),
)  # fmt: skip
USER = PRODUCT | {"id": 11, "inputs": io(([7, 8, 0, 4, 4, "cpu"], [2, 2], "Tensor(float)", [2, 1]))}


def recorded(folder: Path) -> ProgramTrace:
    trace = trace_of(folder, PRODUCT, USER, REDUCE)
    trace.calls[0].start, trace.calls[0].duration = 5.0, 25e-6
    return trace


def test_what_is_written_is_valid_for_protobuf(tmp_path: Path) -> None:
    kinds = messages()
    head, *rest = split(write_chakra(recorded(tmp_path)))
    assert kinds["GlobalMetadata"].FromString(head).version == "0.0.4"
    nodes = {one.id: one for one in (kinds["Node"].FromString(part) for part in rest)}
    assert [nodes[number].type for number in (2, 10, 11, 12)] == [1, 4, 4, 7]
    assert list(nodes[10].ctrl_deps) == [2]
    assert list(nodes[11].data_deps) == [10]  # it reads what the product wrote
    assert nodes[10].duration_micros == 25
    assert nodes[10].inputs.types == '["Tensor(float)", "Tensor(float)"]'
    attributes = {one.name: one for one in nodes[12].attr}
    assert (attributes["comm_type"].int64_val, attributes["comm_size"].int64_val) == (0, 32)
    assert attributes["is_cpu_op"].bool_val


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    before = recorded(tmp_path)
    path = tmp_path / "step.et"
    path.write_bytes(write_chakra(before))
    after = read_trace(path)
    assert [one.name for one in after.nodes] == [one.name for one in before.nodes]
    assert [ref.shape for ref in after.calls[0].inputs] == [(2, 4), (4, 2)]
    assert after.calls[0].schema == before.calls[0].schema
    assert after.calls[0].duration == pytest.approx(25e-6)
    assert after.calls[2].collective is not None
    assert after.calls[2].collective.in_elements == 8
    assert after.problems == []


def test_traces_that_others_write_are_read(tmp_path: Path) -> None:
    """Chakra's converter writes lists as Python prints them, and work of devices as nodes of its own."""
    kinds = messages()
    cpu = kinds["Node"](id=5, name="aten::mm", type=4, ctrl_deps=[1])
    cpu.inputs.values, cpu.inputs.shapes = "[[3, 4, 0, 8, 4, 'cuda:0'], -7, '<None>']", "[[2, 4], [], []]"
    cpu.inputs.types = "['Tensor(float)', 'Int', 'None']"
    for name, value in (("op_schema", "aten::mm(Tensor self, Tensor mat2) -> Tensor"),):
        cpu.attr.add(name=name, string_val=value)
    cpu.attr.add(name="is_cpu_op", bool_val=True)
    cpu.attr.add(name="seq_id", sint64_val=-9)
    cpu.attr.add(name="weight", double_val=0.5)
    cpu.attr.add(name="dims").int64_list.values.extend([1, -2])
    gpu = kinds["Node"](id=6, name="sgemm", type=4, ctrl_deps=[5], duration_micros=40)
    gpu.attr.add(name="is_cpu_op", bool_val=False)
    gpu.attr.add(name="stream", int64_val=7)
    comm = kinds["Node"](id=8, name="ALL_TO_ALL", type=7)
    comm.attr.add(name="comm_type", int64_val=6)
    comm.attr.add(name="comm_size", int64_val=4096)
    path = tmp_path / "others.et"
    path.write_bytes(framed(kinds["GlobalMetadata"](version="0.0.4"), cpu, gpu, comm))
    product, exchange = (trace := read_trace(path)).calls
    assert product.inputs[0].device == "cuda:0"
    assert product.inputs[1:] == [-7, None]
    assert (product.device_time, product.stream) == (pytest.approx(40e-6), 7)
    assert (product.attributes["seq_id"], product.attributes["weight"], product.attributes["dims"]) == (
        -9,
        0.5,
        [1, -2],
    )
    assert exchange.collective is not None
    assert (exchange.collective.name, exchange.collective.in_elements) == ("all_to_all", 4096)
    assert "1 node whose parent is not in the file" in str(trace.problems[0])


def test_files_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    content = write_chakra(recorded(tmp_path))
    path = tmp_path / "cut.et"
    path.write_bytes(content[:-10])
    with pytest.raises(UserError, match="after 4 complete nodes"):
        read_trace(path)
    path.write_bytes(b"\xff\xff")
    with pytest.raises(UserError):
        read_trace(path)


def test_a_node_that_makes_no_sense_is_a_problem(tmp_path: Path) -> None:
    head, *rest = split(write_chakra(recorded(tmp_path)))
    parts = [head, b"\x0f\x01", *rest]
    path = tmp_path / "odd.et"
    path.write_bytes(b"".join(encode_varint(len(part)) + part for part in parts))
    trace = read_trace(path)
    assert len(trace.calls) == 3
    assert "node 1" in trace.problems[0].where


def test_execution_traces_are_written_as_torch_does(tmp_path: Path) -> None:
    values = io(
        (A, [2, 4], "Tensor(c10::Half)", [1, 2]), ([1, 2], [[], []], "GenericList[Int,Int]", [[], []]),
        ("inf", [], "Double", []), (True, [], "Bool", []), ("<None>", [], "None", []), ("cuda:0", [], "Device", []),
        ([9, 0, 0, 0, 0, ""], [], "Tensor(nullptr (uninitialized))", []), ("x", [], "String", []),
    )  # fmt: skip
    before = trace_of(tmp_path, PRODUCT | {"id": 11, "inputs": values}, REDUCE)
    path = tmp_path / "again.json"
    path.write_text(write_execution_trace(before))
    after = read_trace(path)
    assert after.format == "PyTorch execution trace 1.1.1-chakra.0.0.4"
    assert after.nodes == before.nodes
    assert after.problems == []


def test_export_writes_a_file_for_each_rank(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in (0, 1):
        written(folder, PRODUCT, name=f"step.rank-{rank}.json")
    files, lost = export_workload(folder, format="chakra")
    assert list(files) == ["ranks.0.et", "ranks.1.et"]
    assert list(lost) == []
    single, _ = export_workload(written(tmp_path, PRODUCT), format="param-et")
    assert list(single) == ["step.json"]
    with pytest.raises(UserError):
        export_workload({"schema": 1, "name": "x", "cases": []}, format="chakra")
