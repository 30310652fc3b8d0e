"""Nodes of an ONNX graph as operators of the catalogue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402 - where onnx is installed

from opmark.models.onnx_operators import _GraphTensors, _NoOperator, _operator_of  # noqa: E402 - needs onnx


def _operator(kind: str, axes: list[int] | None, *, as_input: bool, **attributes: Any) -> Any:
    """Return what a reduction of 2x8x4x4 is."""
    constants = [numpy_helper.from_array(np.array(axes, dtype=np.int64), "axes")] if as_input and axes else []
    if axes and not as_input:
        attributes["axes"] = axes
    node = helper.make_node(kind, ["x", "axes"] if constants else ["x"], ["y"], **attributes)
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8, 4, 4])]
    graph = helper.make_graph([node], "one", values, [], constants)
    return _operator_of(node, _GraphTensors(graph))


@pytest.mark.parametrize("as_input", [False, True])
def test_neighbouring_axes_of_a_reduction_are_one_axis(as_input: bool) -> None:
    op, params = _operator("ReduceMean", [2, -1], as_input=as_input)
    assert (op, params) == ("reduce_mean", {"shape": [2, 8, 16], "axis": -1, "keepdims": True, "dtype": "float32"})
    _, params = _operator("ReduceSum", [1], as_input=as_input, keepdims=0)
    assert (params["shape"], params["axis"], params["keepdims"]) == ([2, 8, 4, 4], -3, False)
    _, params = _operator("ReduceMax", None, as_input=as_input)
    assert params["shape"] == [256]


def test_a_reduction_of_axes_that_are_apart_is_no_operator() -> None:
    with pytest.raises(_NoOperator, match="ReduceMean of 2x8x4x4"):
        _operator("ReduceMean", [0, 2], as_input=True)
