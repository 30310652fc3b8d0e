"""Chrome traces of torch's profiler: operators with shapes, nesting by time, kernels, times for execution traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.trace_files import FLIPPED, MATRIX, PRODUCT, call, event, io, node, written

from opmark.errors import UserError
from opmark.traces.chrome import parse_concrete
from opmark.traces.reading import read_trace
from opmark.traces.trace import LAUNCHED_ALONE, OpaqueValue, ProgramTrace, TensorRef
from opmark.traces.workload import workload_of_trace


def trace_of(folder: Path, *events: Any, **head: Any) -> ProgramTrace:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": list(events)}))
    return read_trace(path)


def test_calls_have_shapes_times_and_nest_within_their_thread(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        call("aten::mm", 120, 30, MATRIX, FLIPPED, External_id=2),
        event("ProfilerStep#1", 90, 500, "user_annotation"),
        call("aten::linear", 100, 100, MATRIX, FLIPPED, External_id=1),
        call("aten::mm", 150, 10, MATRIX, FLIPPED, tid=8),
        event("python frame", 100, 100, "python_function"),
    )
    assert [one.name for one in trace.nodes] == ["ProfilerStep#1", "aten::linear", "aten::mm", "aten::mm"]
    linear, other = trace.calls
    assert linear.inputs == [TensorRef((2, 4), "float32", strides=(4, 1)), TensorRef((4, 2), "float32", strides=(1, 4))]
    assert (linear.start, linear.duration) == pytest.approx((1e-4, 1e-4))
    assert trace.by_id[3].parent == linear.id
    assert other.parent is None


def test_kernels_belong_to_the_calls_that_launched_them(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        call("aten::linear", 100, 100, MATRIX, FLIPPED, External_id=1),
        call("aten::mm", 120, 30, MATRIX, FLIPPED, External_id=2),
        call("aten::relu", 300, 30, MATRIX, External_id=4),
        event("sgemm", 400, 50, "kernel", 20, External_id=2, correlation=11, stream=20),
        event("cudaLaunchKernel", 310, 5, "cuda_runtime", correlation=12),
        event("relu", 500, 7, "kernel", 20, correlation=12, stream=20),
        event("Memset", 510, 1, "gpu_memset", 20, correlation=12, stream=20),
    )
    linear, relu = trace.calls
    assert linear.device_time == pytest.approx(50e-6)
    assert trace.by_id[2].device_time == pytest.approx(50e-6)
    assert (relu.device_time, relu.stream) == (pytest.approx(8e-6), 20)


def test_what_no_call_launched_is_a_node_of_its_own(tmp_path: Path) -> None:
    """Outside of any operator, kernels have the external id of an operator that came before."""
    trace = trace_of(
        tmp_path,
        event("ProfilerStep#1", 90, 900, "user_annotation"),
        call("aten::view", 100, 5, MATRIX, ("ScalarList", [], [], "[8]"), External_id=2),
        event("cudaGraphLaunch", 200, 5, "cuda_runtime", correlation=11, External_id=2),
        event("experts", 300, 40, "kernel", 20, External_id=2, correlation=11, stream=20),
        event("experts", 350, 50, "kernel", 20, External_id=2, correlation=11, stream=20),
        event("cuLaunchKernel", 210, 1, "cuda_driver", correlation=12, External_id=2),
        event("fused_norm", 410, 3, "kernel", 20, External_id=2, correlation=12, stream=20),
        call("aten::mm", 600, 30, MATRIX, FLIPPED, External_id=3),
        event("cudaLaunchKernel", 631.5, 1, "cuda_runtime", correlation=13, External_id=3),
        event("gemm", 700, 7, "kernel", 20, External_id=3, correlation=13, stream=20),
    )
    view, graph, norm, product = trace.calls
    assert view.device_time is None
    assert (graph.name, graph.kind, graph.attributes[LAUNCHED_ALONE]) == ("cudaGraphLaunch", "kernel", 2)
    assert graph.device_time == pytest.approx(90e-6)
    assert (norm.name, norm.device_time) == ("fused_norm", pytest.approx(3e-6))
    assert product.device_time == pytest.approx(7e-6), "clocks of the device and the host differ a little"
    assert [trace.by_id[one.parent or 0].name for one in (graph, norm)] == ["ProfilerStep#1"] * 2
    found = workload_of_trace(trace)
    assert [entry.duration for entry in found.entries] == [pytest.approx(7e-6)]
    assert ["90.0 µs recorded" in one.message for one in found.problems] == [True, False]


def test_values_are_read_as_the_profiler_writes_them(tmp_path: Path) -> None:
    inputs = [
        ("c10::BFloat16", [2], [1], ""), ("Scalar", [], [], "1"), ("Scalar", [], [], "1."), ("Scalar", [], [], "False"),
        ("ScalarList", [], [], "[2, 3]"), ("ScalarList", [], [], "[]"), ("", [], [], ""), ("Scalar", [], [], "-1e-05"),
    ]  # fmt: skip
    (one,) = trace_of(tmp_path, call("aten::x", 1, 1, *inputs)).calls
    tensor, *rest = one.inputs
    assert tensor.dtype == "bfloat16"
    assert rest == [1, 1.0, False, [2, 3], [], None, -1e-5]
    assert isinstance(rest[1], float)
    assert parse_concrete("[True, False]") == [True, False]
    assert parse_concrete("sum") == "sum"


def test_scalars_that_an_old_profiler_did_not_record_are_unknown(tmp_path: Path) -> None:
    old = call("aten::x", 1, 1, MATRIX, ("Scalar", [], [], ""))
    del old["args"]["Concrete Inputs"]
    (one,) = trace_of(tmp_path, old).calls
    assert one.inputs[1] == OpaqueValue("Scalar")


def test_tensors_in_lists_get_the_element_type_of_what_the_call_passes_on(tmp_path: Path) -> None:
    listed = ("TensorList", [[2, 4], [3]], [[4, 1], [1]], "")
    trace = trace_of(
        tmp_path,
        call("aten::cat", 1, 10, listed),
        call("aten::copy_", 2, 1, ("double", [3], [1], "")),
        call("aten::_foreach_add_", 20, 1, listed),
    )
    known, guessed = trace.calls
    assert [one.dtype for one in known.inputs[0]] == ["float64", "float64"]
    assert [one.dtype for one in guessed.inputs[0]] == ["float64", "float64"]
    assert "1 call" in trace.notes[0]


def test_bare_lists_of_events_and_compressed_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps([call("aten::mm", 1, 1, MATRIX, FLIPPED)]).encode()))
    assert len(read_trace(path).calls) == 1


def test_traces_without_shapes_or_operators_are_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the shapes") as error:
        trace_of(tmp_path, event("aten::mm", 1, 1))
    assert "record_shapes=True" in (error.value.hint or "")
    with pytest.raises(UserError, match="without operators"):
        trace_of(tmp_path, event("XLA op", 1, 1, "jax"))


def test_communication_of_the_profiler_is_described(tmp_path: Path) -> None:
    comms = event("record_param_comms", 1, 1)
    comms["args"] |= {
        "Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "Group size": 2, "dtype": "Float",
        "Process Group Name": "0",
    }  # fmt: skip
    described = {"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1], "pg_size": 2}]}
    outer = call("c10d::allreduce_", 0.5, 5, ("TensorList", [[8]], [[1]], ""))
    trace = trace_of(tmp_path, outer, comms, call("aten::mm", 9, 1, MATRIX, FLIPPED), distributedInfo=described)
    collective = trace.calls[0].collective
    assert collective is not None
    assert (collective.name, collective.group, collective.group_size) == ("all_reduce", "0", 2)
    assert (trace.rank, trace.world_size) == (1, 2)
    assert len(trace.calls) == 2


# Times beside an execution trace.


def beside(folder: Path, *events: Any) -> Path:
    path = folder / "step.kineto.json"
    path.write_text(json.dumps({"traceEvents": list(events)}))
    return path


def test_an_execution_trace_gets_the_times_beside_it(tmp_path: Path) -> None:
    scale = node(
        11, "aten::mul", 2, op_schema="aten::mul.Scalar(Tensor self, Scalar other) -> Tensor",
        inputs=io(([3, 4, 0, 8, 4, "cpu"], [2, 4], "Tensor(float)", [4, 1]), (0.0, [], "Double", [])),
    )  # fmt: skip
    path = written(tmp_path, PRODUCT, scale)
    beside(
        tmp_path,
        call("aten::mm", 100, 20, MATRIX, FLIPPED, Record_function_id=10),
        call("aten::mul", 200, 5, MATRIX, ("Scalar", [], [], "1e-08"), Record_function_id=11),
        event("gemm", 300, 40, "kernel", 20, correlation=1, stream=9),
        event("cudaLaunchKernel", 105, 1, "cuda_runtime", correlation=1),
        event("cudaGraphLaunch", 150, 1, "cuda_runtime", correlation=2),
        event("hidden", 360, 30, "kernel", 20, correlation=2, stream=9),
    )
    trace = read_trace(path)
    product, graph, scaled = trace.calls
    assert (graph.name, graph.device_time) == ("cudaGraphLaunch", pytest.approx(3e-5))
    assert graph.id not in (product.id, scaled.id)
    assert (product.start, product.duration) == pytest.approx((1e-4, 2e-5))
    assert (product.device_time, product.stream) == (pytest.approx(4e-5), 9)
    assert scaled.inputs[1] == 1e-8  # an execution trace writes 0.000000
    assert product.inputs[0].storage == 4
    assert trace.problems == []


def test_times_of_a_file_with_other_numbers_are_matched_by_name_and_order(tmp_path: Path) -> None:
    path = written(tmp_path, PRODUCT, PRODUCT | {"id": 11})
    beside(tmp_path, call("aten::mm", 100, 20, External_id=900), call("aten::mm", 200, 30, External_id=901))
    assert [one.duration for one in read_trace(path).calls] == pytest.approx([2e-5, 3e-5])
    beside(tmp_path, call("aten::mm", 100, 20, External_id=900))
    trace = read_trace(path)
    assert [one.duration for one in trace.calls] == [None, None]
    assert "none of its events" in trace.problems[0].message
