"""ONNX Runtime: memory that stays bound, kernels that are named, and what it leaves to others is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("onnxruntime")

from opmark.errors import Unsupported
from opmark.frameworks.onnx.implementations._graph import Graph
from opmark.plugin import Launch, draw_values
from opmark.plugin.registry import backend
from opmark.schema import TensorSpec

pytestmark = pytest.mark.frameworks

INFO = backend("onnxruntime-cpu")
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
FIRST, SECOND = 1, 2


@pytest.fixture(scope="module")
def live() -> Any:
    return INFO.load(threads=2)


def _compiled(live: Any, draw: Callable[..., Any], **inputs: Any) -> Launch:
    launch: Launch = live.compile(Graph(draw, {}), inputs)
    return launch


def _x(live: Any, dtype: str = "float32", seed: int = FIRST) -> Any:
    return live.tensor(TensorSpec((4, 8), dtype), seed)


def test_new_data_in_the_same_tensors_gives_a_new_result_in_the_same_memory(live: Any) -> None:
    x = _x(live)
    launch = _compiled(live, lambda g, p, x: g.Neg(x), x=x)
    before = launch()
    first, address = live.to_numpy(before), before.value.data_ptr()
    live.copy_into(x, _x(live, seed=SECOND))
    after = launch()
    assert after.value.data_ptr() == address
    np.testing.assert_array_equal(live.to_numpy(after), -live.to_numpy(_x(live, seed=SECOND)))
    assert (first != live.to_numpy(after)).any()


def test_a_call_writes_all_of_an_output_that_was_poisoned(live: Any) -> None:
    x = _x(live)
    launch = _compiled(live, lambda g, p, x: g.Exp(x), x=x)
    live.poison(launch())
    assert np.isfinite(live.to_numpy(launch())).all()


def test_an_output_whose_size_depends_on_the_data_follows_the_data(live: Any) -> None:
    x = _x(live)
    launch = _compiled(live, lambda g, p, x: g.Compress(x, g.Reshape(g.Greater(x, 0.0), [-1])), x=x)
    for seed in (FIRST, SECOND):
        live.copy_into(x, _x(live, seed=seed))
        values = live.to_numpy(x)
        np.testing.assert_array_equal(live.to_numpy(launch()), values[values > 0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_tensor_holds_the_same_values_in_every_floating_point_type(live: Any, dtype: str) -> None:
    tensor = _x(live, dtype)
    assert live.dtype(tensor) == dtype
    found = live.to_numpy(tensor)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, draw_values(TensorSpec((4, 8), dtype), FIRST), atol=0.13)


def test_every_output_of_several_is_given(live: Any) -> None:
    launch = _compiled(live, lambda g, p, x: (g.Neg(x), g.Greater(x, 0.0), x), x=_x(live))
    assert [live.dtype(output) for output in launch()] == ["float32", "bool", "float32"]


def test_an_input_that_no_node_reads_does_no_harm(live: Any) -> None:
    launch = _compiled(live, lambda g, p, x, other: g.Abs(x), x=_x(live), other=_x(live, "int64"))
    assert (live.to_numpy(launch()) >= 0).all()


def test_the_record_of_compiling_names_the_nodes_and_what_became_of_them(live: Any) -> None:
    launch: Any = _compiled(live, lambda g, p, x: g.Mul(x, g.Sigmoid(x)), x=_x(live))
    assert launch.compilation.operators == ("Sigmoid", "Mul")
    assert launch.compilation.kernels == ("QuickGelu",)
    assert launch.compilation.cold > 0


def test_casts_that_were_put_around_a_node_are_told_apart(live: Any) -> None:
    """There is no kernel for 16 bits: it is computed in float32."""
    launch: Any = _compiled(live, lambda g, p, x: g.Sin(x), x=_x(live, "float16"))
    assert launch.compilation.kernels == ("Cast (inserted)", "Sin", "Cast (inserted)")


def test_a_model_that_is_computed_beforehand_is_refused(live: Any) -> None:
    with pytest.raises(Unsupported, match="no kernel is left"):
        _compiled(live, lambda g, p, x: g.ConstantOfShape(g.Shape(x)), x=_x(live))


def test_a_node_that_another_provider_computes_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    live: Any = INFO.load(threads=1)
    monkeypatch.setattr(live, "_provider", "CUDAExecutionProvider")
    with pytest.raises(Unsupported, match="CUDAExecutionProvider has no kernel for Neg"):
        _compiled(live, lambda g, p, x: g.Neg(x), x=_x(live))


def test_nodes_of_a_whole_model_may_fall_back_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    live: Any = INFO.load(threads=1)
    x = live.tensor(TensorSpec((8, 8), "float32"), FIRST)
    built: Any = Graph(lambda g, p, x: g.Neg(g.MatMul(g.MatMul(x, x), x)), {})
    monkeypatch.setattr(type(built), "may_fall_back", True, raising=False)
    profiled = live._profiled
    left = {"Neg": "CPUExecutionProvider"}

    def on_two_devices(data: bytes, inputs: Any) -> Any:
        events = profiled(data, inputs)
        for event in events:
            event["args"]["provider"] = left.get(event["args"]["op_name"], "CUDAExecutionProvider")
        return events

    monkeypatch.setattr(live, "_profiled", on_two_devices)
    monkeypatch.setattr(live, "_provider", "CUDAExecutionProvider")
    told = live.compile(built, {"x": x}).compilation
    assert (told.coverage.operators, told.coverage.taken, told.coverage.fallback) == (3, 2, {"Neg": 1})
    assert told.coverage.flops in (1.0, None)  # a graph that is built node by node states no shapes inside
    assert told.export is None


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_a_type_without_a_kernel_or_without_a_node_is_skipped(live: Any, dtype: str) -> None:
    with pytest.raises(Exception, match=r"Tan") as caught:
        _compiled(live, lambda g, p, x: g.Tan(x), x=_x(live, dtype))
    assert live.classify(caught.value) == "skipped"


def test_a_mistake_in_a_model_is_an_error_and_not_skipped(live: Any) -> None:
    with pytest.raises(Exception, match="MatMul") as caught:
        _compiled(live, lambda g, p, x: g.MatMul(x, x), x=_x(live))
    assert live.classify(caught.value) is None


@pytest.mark.parametrize("threads", [1, 3])
def test_a_session_has_as_many_threads_as_were_asked_for(threads: int) -> None:
    """The one that calls is one of them."""
    live: Any = INFO.load(threads)
    assert live.environment()["threads"] == threads
    before = _thread_ids()
    launch = _compiled(live, lambda g, p, x: g.Neg(x), x=_x(live))
    assert len(_thread_ids() - before) == threads - 1
    del launch


def _thread_ids() -> set[int]:
    """Not how many: one of an earlier test may end meanwhile."""
    return {thread.id for thread in psutil.Process().threads()}


def test_there_is_no_way_back(live: Any) -> None:
    with pytest.raises(Unsupported, match="no automatic differentiation"):
        live.backward(lambda: None, [], 0)


def test_a_build_without_the_provider_is_said_to_be_one() -> None:
    reason = backend("onnxruntime-cuda").load(threads=1).why_unavailable()
    assert reason is None or "CUDAExecutionProvider" in reason
