"""ONNX models that are too large for one message of protobuf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from opmark.frameworks.onnx import engine
from opmark.plugin.registry import backend as find_backend

WEIGHT = np.random.default_rng(0).standard_normal((64, 32)).astype("float32")
SHAPE = np.array([2, 16], "int64")


class Built:
    """A model of a product and a reshape, whose target is a small weight."""

    def model(self, inputs: Any) -> Any:
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Reshape", ["z", "shape"], ["y"])],
            "graph",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 64])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 16])],
            [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(SHAPE, "shape")],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_small_models_are_bytes() -> None:
    model = Built().model({})
    with engine.serialized(model) as data:
        assert data == model.SerializeToString()


def test_large_models_are_files_with_their_weights_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_MOST_BYTES", 1000)
    model = Built().model({})
    before = model.SerializeToString()
    with engine.serialized(model) as data:
        assert isinstance(data, str)
        folder = Path(data).parent
        assert Path(data).stat().st_size < WEIGHT.nbytes
        again = onnx.load(data)
        onnx.checker.check_model(data)
    assert not folder.exists()
    assert model.SerializeToString() == before
    for one, other in zip(model.graph.initializer, again.graph.initializer, strict=True):
        assert np.array_equal(numpy_helper.to_array(one), numpy_helper.to_array(other))


@pytest.mark.parametrize("name", ["onnxruntime-cpu", "openvino-cpu", "tvm-cpu"])
def test_engines_run_large_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_MOST_BYTES", 1000)
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    backend = find_backend(name).load(threads=1)
    x = np.random.default_rng(1).standard_normal((1, 64)).astype("float32")
    launch = backend.compile(Built(), {"x": backend.upload(x, "float32")})
    found = launch()
    output = backend.download(found[0] if isinstance(found, tuple) else found)
    assert np.allclose(output, (x @ WEIGHT).reshape(2, 16), rtol=1e-4, atol=1e-4)
