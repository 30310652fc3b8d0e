"""Workloads of traces: distinct calls with counts and durations, recognised operators, and what cannot be expressed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.trace_files import FLIPPED, MATRIX, PRODUCT, call, io, node, written

from opmark.models import calls
from opmark.models.calls import release_recognition
from opmark.schema import Entry, Imported
from opmark.traces import workload
from opmark.traces.reading import read_trace
from opmark.traces.trace import ProgramTrace, TraceCollective, TraceNode
from opmark.traces.workload import workload_of_trace


@pytest.fixture(scope="module", autouse=True)
def _end_process() -> Iterator[None]:
    yield
    release_recognition()


TABLE, ROWS = [20, 21, 0, 40, 4, "cpu"], [22, 23, 0, 3, 8, "cpu"]


def schema(name: str, arguments: str) -> str:
    return f"aten::{name}({arguments}) -> Tensor"


def lookup(number: int, low: int, high: int) -> Any:
    return node(
        number, "aten::index_select", 2, op_schema=schema("index_select", "Tensor self, int dim, Tensor index"),
        inputs=io((TABLE, [10, 4], "Tensor(float)", [4, 1]), (0, [], "Int", []), (ROWS, [3], "Tensor(long int)", [1])),
        tensor_range=json.dumps({"1": [low, high]}),
    )  # fmt: skip


def simple(number: int, name: str, arguments: str = "Tensor self", **attributes: Any) -> Any:
    inputs = io((TABLE, [10, 4], "Tensor(float)", [4, 1]))
    return node(number, f"aten::{name}", 2, op_schema=schema(name, arguments), inputs=inputs, **attributes)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """One process with torch for all of these calls."""
    folder = tmp_path_factory.mktemp("trace")
    plain = io(
        ([3, 4, 0, 8, 4, "cpu"], [2, 4], "Tensor(float)", [4, 1]),
        ([5, 6, 0, 8, 4, "cpu"], [4, 2], "Tensor(float)", [2, 1]),
    )
    multiply = PRODUCT | {"id": 12, "inputs": plain}
    nodes = [
        PRODUCT, PRODUCT | {"id": 11}, multiply, lookup(13, 0, 3), lookup(14, 2, 20), simple(15, "t"),
        simple(16, "operator_of_tomorrow"), simple(17, "relu"),
        node(18, "c10d::allreduce_", 2, op_schema="c10d::allreduce_(Tensor[] tensors) -> ()",
             inputs=io(([TABLE], [[40]], "GenericList[Tensor(float)]", [[1]]))),
        node(3, "## process_group:init ##", 2,
             inputs=io(('[{"pg_name": "0", "ranks": [], "group_size": 2}]', [], "String", []))),
        node(19, "triton_poi_fused_0", 2, kernel_backend="triton", kernel_file="k.py"),
    ]  # fmt: skip
    path = written(folder, *nodes)
    times = [call("aten::mm", 100.0 * i, 10.0 * i, MATRIX, FLIPPED, Record_function_id=9 + i) for i in (1, 2)]
    (folder / "step.kineto.json").write_text(json.dumps({"traceEvents": times}))
    return workload_of_trace(read_trace(path))


def entry(found: Imported, op: str) -> Entry:
    (one,) = (entry for entry in found.entries if entry.op == op)
    return one


def test_distinct_calls_have_their_count_and_mean_duration(imported: Imported) -> None:
    product = entry(imported, "linear_no_bias")
    assert product.params == {"M": 2, "N": 2, "K": 4, "dtype": "float32"}
    assert product.count == 2
    assert product.duration == pytest.approx(1e-5)
    assert product.source == "step.json#10 aten::mm"


def test_operators_of_the_catalogue_are_recognised(imported: Imported) -> None:
    assert entry(imported, "matmul").params == {"M": 2, "N": 2, "K": 4, "dtype": "float32"}
    assert entry(imported, "relu").params == {"shape": [[10, 4]], "dtype": "float32"}


def test_indices_stay_inside_the_tensor_that_they_point_into(imported: Imported) -> None:
    found = entry(imported, "torch.ops.aten.index_select.default")
    assert found.args == ["10x4 float32", 0, "3 int64"]
    assert found.count == 2


def test_collectives_are_operators_of_the_catalogue(imported: Imported) -> None:
    assert entry(imported, "all_reduce").params == {"size": 160, "dtype": "float32", "ranks": 2}


@pytest.mark.parametrize(("splits", "said"), [((4, 8), True), ((6, 6), False)])
def test_parts_of_different_sizes_are_a_note(splits: tuple[int, ...], said: bool) -> None:
    exchange = TraceCollective("all_to_all", "", 2, "float32", 12, 12, splits, (6, 6))
    found = workload_of_trace(
        ProgramTrace("t.json", "made up", [TraceNode(1, "record_param_comms", "collective", collective=exchange)])
    )
    assert found.entries[0].op == "all_to_all"
    assert any("1 collective sent parts of different sizes" in note for note in found.notes) == said


def test_messages_between_two_ranks_are_operators_of_the_catalogue() -> None:
    nodes = [
        TraceNode(i, "record_param_comms", "collective", collective=TraceCollective(name, "", 8, "bfloat16", 12, 12))
        for i, name in enumerate(("send", "recv", "send"), 1)
    ]
    (message,) = workload_of_trace(ProgramTrace("t.json", "made up", nodes)).entries
    assert (message.op, message.count) == ("p2p", 3)
    assert message.params == {"size": 24, "dtype": "bfloat16", "ranks": 2}


def test_views_are_left_out_and_what_cannot_be_expressed_is_named(imported: Imported) -> None:
    assert any("1 call" in note and "views" in note for note in imported.notes)
    text = "\n".join(map(str, imported.problems))
    assert "node 16 (aten::operator_of_tomorrow): torch" in text
    assert "has no operator torch.ops.aten.operator_of_tomorrow" in text
    assert "node 19 (triton_poi_fused_0)" in text


def test_a_profile_has_durations_and_overloads_are_found_by_the_arguments(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    scalar = ("Scalar", [], [], "1")
    events = [
        call("aten::mm", 100, 10, MATRIX, FLIPPED),
        call("aten::mm", 200, 20, MATRIX, FLIPPED),
        call("aten::add", 300, 5, MATRIX, ("Scalar", [], [], "2.5"), scalar),
        call("aten::sum", 400, 5, MATRIX, ("ScalarList", [], [], "[1]"), ("Scalar", [], [], "True"), ("", [], [], "")),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    found = workload_of_trace(read_trace(path))
    assert entry(found, "linear_no_bias").duration == pytest.approx(15e-6)
    assert entry(found, "torch.ops.aten.add.Scalar").args == ["2x4 float32", 2.5]
    assert entry(found, "torch.ops.aten.sum.dim_IntList").args == ["2x4 float32", [1], True]
    assert found.problems == ()


def test_tensors_whose_strides_are_not_in_the_file_are_a_note(tmp_path: Path) -> None:
    old = PRODUCT | {"inputs": {key: one for key, one in PRODUCT["inputs"].items() if key != "strides"}}
    found = workload_of_trace(read_trace(written(tmp_path, old, version="1.0.2-chakra.0.0.4")))
    assert any("tensors of 1 call have no strides" in note for note in found.notes)
    with_strides = workload_of_trace(read_trace(written(tmp_path, PRODUCT)))
    assert not any("strides" in note for note in with_strides.notes)


def test_without_torch_operators_are_callables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (workload, calls):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    found = workload_of_trace(read_trace(written(tmp_path, PRODUCT)))
    assert found.entries[0].op == "torch.ops.aten.mm.default"
    assert found.entries[0].args == ["2x4 float32", "4x2 float32 strides 1x4"]
    assert "torch is not installed" in found.notes[0]
