"""OpenVINO: what it is asked to compute with, what it makes of that, and what of it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openvino")

import openvino as ov

from opmark.errors import Unsupported, WrongResult
from opmark.frameworks.onnx.implementations._graph import Graph, graph, node
from opmark.plugin import Implementation
from opmark.plugin.registry import backend, operator
from opmark.schema import EFFORTS, Case, Settings, Task, TensorSpec
from opmark.schema.tensor import is_float
from opmark.worker.verify.outputs import verify

pytestmark = pytest.mark.frameworks

INFO = backend("openvino-cpu")
THROUGHPUT = backend("openvino-cpu/throughput")


@pytest.fixture(scope="module")
def live() -> Any:
    return INFO.load(threads=1)


@pytest.fixture(scope="module")
def many() -> Any:
    return THROUGHPUT.load(threads=1)


def _spec(dtype: str, shape: tuple[int, ...] = (8, 8)) -> TensorSpec:
    return TensorSpec(shape, dtype, *((-1.0, 1.0) if is_float(dtype) else (0, 2)))


def _compiled(live: Any, row: Implementation, **dtypes: str) -> tuple[Any, dict[str, Any]]:
    inputs = {name: live.tensor(_spec(dtype), seed) for seed, (name, dtype) in enumerate(dtypes.items())}
    return live.compile(row.build({}, **inputs), inputs), inputs


def _draws(draw: Callable[..., Any]) -> Implementation:
    return graph(lambda g, p, **names: draw(g, **names))


@pytest.mark.parametrize("dtype", sorted(INFO.dtypes))
def test_a_tensor_of_every_claimed_element_type_can_be_made_and_read(dtype: str, live: Any) -> None:
    made = live.tensor(_spec(dtype, (200, 3)), 0)
    array = live.to_numpy(made)
    assert live.dtype(made) == dtype
    assert tuple(made.shape) == array.shape == (200, 3)
    assert len(np.unique(array)) > 1


def test_float32_is_computed_in_float32(live: Any) -> None:
    """By default OpenVINO takes bfloat16 where the processor has it."""
    launch, _ = _compiled(live, node("MatMul", "a", "b"), a="float32", b="float32")
    assert live.environment()["precision"] == "f32"
    assert [name.split("_")[-1] for name in launch.compilation.kernels] == ["f32"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_goes_in_and_comes_out(dtype: str, live: Any) -> None:
    launch, inputs = _compiled(live, node("Exp", "x"), x=dtype)
    (output,) = launch()
    assert live.dtype(output) == dtype
    np.testing.assert_allclose(live.to_numpy(output), np.exp(live.to_numpy(inputs["x"])), rtol=1e-2)


@pytest.mark.parametrize(
    ("kind", "dtype", "instead"),
    [("Add", "float64", "float32"), ("Add", "int64", "int32"), ("MatMul", "int32", "float32")],
)
def test_what_would_be_computed_with_less_is_refused(kind: str, dtype: str, instead: str, live: Any) -> None:
    with pytest.raises(Unsupported, match=f"in {instead}, not in {dtype}"):
        _compiled(live, node(kind, "a", "b"), a=dtype, b=dtype)


@pytest.mark.parametrize(
    "draw",
    [
        lambda g, x: g.Add(x, g.Cast(g.constant(0.5, "float32"), to="float64")),
        lambda g, x: g.Cast(g.Exp(g.Cast(x, to="float32")), to="float64"),
        lambda g, x: g.Where(g.constant([True], "bool"), x, g.Exp(x)),
        lambda g, x: g.Reshape(x, g.constant([64])),
        lambda g, x: g.Cast(g.Exp(x), to="float32"),
    ],
    ids=["constant of float32", "float32 inside", "choice", "only moved", "float32 comes out"],
)
def test_float64_is_refused_whatever_else_is_in_the_model(draw: Callable[..., Any], live: Any) -> None:
    with pytest.raises(Unsupported, match="in float32, not in float64"):
        _compiled(live, _draws(draw), x="float64")


def test_a_choice_between_values_of_float64_is_refused(live: Any) -> None:
    """What it is compiled to calls itself u8, for its condition."""
    with pytest.raises(Unsupported, match="in float32, not in float64"):
        _compiled(live, node("Where", "c", "a", "b"), c="bool", a="float64", b="float64")


@pytest.mark.parametrize(("taken", "given"), [("float64", "float32"), ("float32", "float64")])
def test_a_conversion_that_was_asked_for_is_not_refused(taken: str, given: str, live: Any) -> None:
    launch, inputs = _compiled(live, _draws(lambda g, x: g.Cast(x, to=given)), x=taken)
    (output,) = launch()
    assert live.dtype(output) == given
    np.testing.assert_array_equal(live.to_numpy(output), live.to_numpy(inputs["x"]).astype(given))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_more_precision_than_was_asked_for_is_not_refused(dtype: str, live: Any) -> None:
    launch, _ = _compiled(live, _draws(lambda g, x: g.Cast(g.Exp(g.Cast(x, to="float32")), to=dtype)), x=dtype)
    assert live.dtype(launch()[0]) == dtype


def test_indices_may_be_int64(live: Any) -> None:
    launch, inputs = _compiled(live, node("Gather", "x", "i"), x="float32", i="int64")
    x, i = (live.to_numpy(tensor) for tensor in inputs.values())
    np.testing.assert_array_equal(live.to_numpy(launch()[0]), x[i])


@pytest.mark.parametrize("info", [INFO, THROUGHPUT], ids=["latency", "throughput"])
def test_a_launch_computes_anew_from_what_is_in_its_inputs(info: Any) -> None:
    live = info.load(threads=1)
    launch, inputs = _compiled(live, node("Exp", "x"), x="float32")
    for seed in range(5):
        live.copy_into(inputs["x"], live.tensor(_spec("float32"), 10 + seed))
        (output,) = launch()
        np.testing.assert_allclose(live.to_numpy(output), np.exp(live.to_numpy(inputs["x"])), rtol=1e-5)
        live.poison(output)


@pytest.mark.parametrize(
    ("info", "name"), [(INFO, "infer"), (THROUGHPUT, "start_async")], ids=["latency", "throughput"]
)
def test_a_launch_is_the_call_that_users_write(info: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the layer in Python that they pay for."""
    calls, public = [], getattr(ov.InferRequest, name)

    def counted(request: Any, **given: Any) -> Any:
        calls.append(given)
        return public(request, **given)

    monkeypatch.setattr(ov.InferRequest, name, counted)
    launch, _ = _compiled(live := info.load(threads=1), node("Exp", "x"), x="float32")
    launch()
    live.synchronize()
    assert calls == [{"share_outputs": True} if name == "infer" else {}]


def test_outputs_are_placed_beforehand(live: Any) -> None:
    launch, _ = _compiled(live, node("Exp", "x"), x="float32")
    first, second = launch()[0], launch()[0]
    assert first is second


def test_an_output_whose_shape_only_the_data_tells_is_taken_as_it_comes(live: Any) -> None:
    launch, inputs = _compiled(live, node("NonZero", "x"), x="float32")
    array = live.download(inputs["x"])
    for left in (3, 40):
        array[...] = 0
        array.reshape(-1)[:left] = 1
        assert live.to_numpy(launch()[0]).shape == (2, left)


def test_a_throughput_launch_is_one_request_that_is_waited_for_later(many: Any, live: Any) -> None:
    launch, inputs = _compiled(many, node("MatMul", "a", "b"), a="float32", b="float32")
    outputs = [launch()[0] for _ in range(10)]
    many.synchronize()
    a, b = (many.to_numpy(tensor) for tensor in inputs.values())
    assert (many.asynchronous, live.asynchronous) == (True, False)
    assert len(set(map(id, outputs))) == many.environment()["requests"]
    for output in outputs:
        np.testing.assert_allclose(many.to_numpy(output), a @ b, rtol=1e-4, atol=1e-5)


def test_what_it_reports_is_what_was_asked_for(live: Any, many: Any) -> None:
    assert live.environment()["threads"] == many.environment()["threads"] == 1
    assert (live.environment()["hint"], many.environment()["hint"]) == ("latency", "throughput")
    assert live.environment()["openvino"].startswith("20")


def test_more_threads_than_there_are_are_refused() -> None:
    with pytest.raises(Unsupported, match="4096 threads were asked for, OpenVINO takes"):
        _compiled(INFO.load(threads=4096), node("Exp", "x"), x="float32")


def test_what_is_compiled_is_told(live: Any) -> None:
    row = _draws(lambda g, x: g.Mul(x, g.Sigmoid(x)))
    compilation = _compiled(live, row, x="float32")[0].compilation
    assert compilation.cold > 0
    assert compilation.operators == ("Sigmoid", "Mul")
    assert len(compilation.kernels) == compilation.graphs == 1


def test_what_is_computed_while_compiling_is_refused(live: Any) -> None:
    with pytest.raises(Unsupported, match="while compiling: no call does any work"):
        _compiled(live, _draws(lambda g, x: g.ConstantOfShape(g.Shape(x))), x="float32")


def test_random_numbers_that_are_drawn_once_for_all_are_refused(live: Any) -> None:
    row = _draws(lambda g, x: g.Add(x, g.Sub(g.constant(1.0, "float32"), g.RandomUniform(dtype=1, shape=[8, 8]))))
    with pytest.raises(Unsupported, match="every call gives the same ones"):
        _compiled(live, row, x="float32")


def test_a_node_that_it_does_not_know_is_refused_in_its_own_words(live: Any) -> None:
    with pytest.raises(Unsupported, match=r"^OpenVINO [\d.]+: No conversion rule found for operations: Det-\d+$"):
        _compiled(live, node("Det", "x"), x="float32")


def test_what_is_no_model_is_refused(live: Any) -> None:
    with pytest.raises(Unsupported, match="takes models"):
        live.compile(lambda: None, {})


def test_there_is_no_backward_pass(live: Any) -> None:
    with pytest.raises(Unsupported, match="no automatic differentiation"):
        live.backward(lambda: None, [], 0)


def test_out_of_memory_is_told_from_other_errors(live: Any) -> None:
    assert live.classify(RuntimeError("std::bad_alloc")) == "oom"
    assert live.classify(RuntimeError("anything else")) is None


def test_a_wrong_row_is_caught(live: Any) -> None:
    op = operator("exp")
    case = Case.of("exp", op.complete(op.preset("small")), "forward")
    task = Task(case, "", "", Settings(1, "quick", EFFORTS["quick"]))
    with pytest.raises(WrongResult, match="off by more than"):
        verify(task, op, node("Sin", "x"), live)
    assert verify(task, op, node("Exp", "x"), live).checked == "full"


def test_a_graph_is_drawn_for_the_tensors_that_are_there(live: Any) -> None:
    built = Graph(lambda g, p, x: g.Relu(x), {})
    model = live.model(built, {"x": live.tensor(_spec("float16", (2, 3)), 0)})
    (value,) = model.graph.input
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [2, 3]


def test_its_use_is_not_reported() -> None:
    """OpenVINO would fork a process that sends a report, beside what is measured; on CI it does not by itself."""
    code = (
        "import os; forks = []; os.register_at_fork(before=lambda: forks.append(1))\n"
        "import opmark.frameworks.onnx.openvino, concurrent.futures.thread as threads\n"
        "threads._python_exit(); print(len(forks))"
    )
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
