"""Nodes of an ONNX graph as operators of the catalogue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402 - where onnx is installed

from opmark.models.onnx_operators import _GraphTensors, _NoOperator, _operator_of  # noqa: E402 - needs onnx


def _operator(kind: str, axes: list[int] | None, *, given: str, **attributes: Any) -> Any:
    """Return what a reduction of 2x8x4x4 is, whose axes are an attribute, a constant or the result of a node."""
    if axes and given == "attribute":
        attributes["axes"] = axes
    constant = numpy_helper.from_array(np.array(axes or [], dtype=np.int64), "axes")
    node = helper.make_node(kind, ["x", "axes"] if axes and given != "attribute" else ["x"], ["y"], **attributes)
    nodes = [helper.make_node("Constant", [], ["axes"], value=constant), node] if given == "node" else [node]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8, 4, 4])]
    graph = helper.make_graph(nodes, "one", values, [], [constant] if given == "constant" else [])
    return _operator_of(node, _GraphTensors(graph))


@pytest.mark.parametrize("given", ["attribute", "constant", "node"])
def test_neighbouring_axes_of_a_reduction_are_one_axis(given: str) -> None:
    op, params = _operator("ReduceMean", [2, -1], given=given)
    assert (op, params) == ("reduce_mean", {"shape": [2, 8, 16], "axis": -1, "keepdims": True, "dtype": "float32"})
    _, params = _operator("ReduceSum", [1], given=given, keepdims=0)
    assert (params["shape"], params["axis"], params["keepdims"]) == ([2, 8, 4, 4], -3, False)
    _, params = _operator("ReduceMax", None, given=given)
    assert params["shape"] == [256]


def test_a_reduction_of_axes_that_are_apart_is_no_operator() -> None:
    with pytest.raises(_NoOperator, match="ReduceMean of 2x8x4x4"):
        _operator("ReduceMean", [0, 2], given="constant")


def test_a_reduction_that_does_nothing_without_axes_is_no_operator() -> None:
    with pytest.raises(_NoOperator, match="ReduceSum of 2x8x4x4"):
        _operator("ReduceSum", None, given="attribute", noop_with_empty_axes=1)
