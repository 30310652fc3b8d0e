"""Every operator of the ONNX tables, run by ONNX Runtime and verified in a worker; and how models are built."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from outcomes import covered, outcomes

pytest.importorskip("onnxruntime")

from opmark.api.run import run
from opmark.errors import Unsupported
from opmark.frameworks.onnx.implementations._graph import Graph, element_type, graph, node
from opmark.plugin import Implementation
from opmark.plugin.registry import backend, catalogue, implementation_tables
from opmark.schema import Case, Record, Settings, Task
from opmark.schema.task import EFFORTS
from opmark.worker.task_runner import TaskRunner

pytestmark = pytest.mark.frameworks

BACKEND = "onnxruntime-cpu"
QUICK = replace(EFFORTS["quick"], warmup=0, samples=1)
# One operator for each way to write an implementation.
NARROW = ("exp", "mul", "gelu", "softmax", "layer_norm", "matmul", "conv2d", "max_pool2d", "reduce_sum", "cast",
          "concat", "rms_norm", "scaled_dot_product_attention", "upsample_bilinear2d", "lstm_cell")  # fmt: skip


def _table() -> dict[str, tuple[Implementation, ...]]:
    return implementation_tables(backend(BACKEND).frameworks)


@pytest.fixture(scope="module")
def forward() -> dict[str, list[Record]]:
    return outcomes(BACKEND)


def _failed(records: list[Record]) -> dict[str, str]:
    """Return the reasons of failures by operator."""
    return {
        record.task.case.op: f"{record.status}: {record.reason or (record.verification and record.verification.after)}"
        for record in records
        if record.status != "ok" or record.verification is None or record.verification.after != "same"
    }


@pytest.mark.timeout(900)
def test_every_row_computes_what_the_reference_says_also_after_timing(forward: dict[str, list[Record]]) -> None:
    assert sorted(forward) == sorted(covered(BACKEND))
    assert _failed([record for records in forward.values() for record in records]) == {}


def test_most_of_the_catalogue_is_there() -> None:
    assert len(covered(BACKEND)) >= 360


def test_every_row_says_what_was_compiled(forward: dict[str, list[Record]]) -> None:
    for name, (record, *_) in forward.items():
        compilation = record.compilation
        assert compilation is not None, name
        assert compilation.cold > 0, name
        assert compilation.cached is None, name  # a session has no cache
        assert compilation.operators, name
        assert compilation.kernels, name


def test_a_row_that_names_a_node_has_it_in_its_model(forward: dict[str, list[Record]]) -> None:
    for name, (record, *_) in forward.items():
        (row,) = _table()[name]
        assert record.compilation is not None
        assert not row.path or row.path.removeprefix("onnx.") in record.compilation.operators, name


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_are_right_or_skipped_with_a_reason(dtype: str) -> None:
    found = run(NARROW, backend=BACKEND, size="small", samples=1, warmup=0, processes=1, threads=2, db=":memory:",
                    params={"dtype": [dtype]}, say=lambda _: None).records  # fmt: skip
    ran = [record for record in found if record.status != "skipped"]
    assert _failed(ran) == {}
    assert len(ran) >= len(NARROW) // 2
    assert all(record.reason for record in found if record.status == "skipped")


CHOSEN: dict[str, dict[str, Any]] = {
    "batch_norm": {"training": False},
    "adaptive_avg_pool2d": {"image": [28, 28], "out": [7, 7]},
    "lstm": {"layers": 2, "bidirectional": True},
    "gru": {"layers": 2, "bidirectional": True},
    "scaled_dot_product_attention": {"kv_heads": 2, "causal": True},
    "flash_attention": {"block_size": 16},
    "cross_entropy": {"label_smoothing": 0.1},
    "quantize": {"per": "tensor", "zero_point": 3},
    "rotary_embedding": {"rope_dim": 32, "rope_offset": 16},
    "diag_embed": {"k": -2},
    "rot90": {"k": 3},
    "tile": {"reps": [2, 1, 3]},
    "space_to_depth": {"order": "dcr"},
    "unique": {"inverse": True, "counts": True},
    "embedding_bag": {"weighted": True},
    "max_pool2d": {"padding": 1, "dilation": 2, "kernel": [3, 3]},
    "avg_pool2d": {"padding": 1, "count_include_pad": False},
    "grid_sample": {"align_corners": True, "padding_mode": "border"},
    "addmm": {"alpha": 0.5, "beta": 2.0},
    "kthvalue": {"keepdims": True},
}
REFUSED: dict[str, dict[str, Any]] = {
    "lrn": {"size": 4},
    "lp_pool2d": {"norm_type": 1.5},
    "embedding_bag": {"lengths": "random"},
    "flash_attention": {"q_lens": [3, 4]},
    "quant_matmul": {"dtype": "float8_e4m3fn"},
    "leaky_relu": {"dtype": "float64"},
}


@pytest.fixture(scope="module")
def bench() -> TaskRunner:
    return TaskRunner(info := backend(BACKEND), info.load(threads=2))


def _one(bench: TaskRunner, name: str, given: dict[str, Any]) -> Record:
    operator = catalogue()[name]
    params = operator.complete({**operator.preset("small"), **given})
    operator.check_rules(params)
    return bench.run(Task(Case.of(name, params, "forward"), BACKEND, "onnx", Settings(2, "quick", QUICK)))


@pytest.mark.parametrize("name", CHOSEN)
def test_a_row_minds_its_parameters(bench: TaskRunner, name: str) -> None:
    assert _failed([_one(bench, name, CHOSEN[name])]) == {}


@pytest.mark.parametrize("name", REFUSED)
def test_what_onnx_cannot_say_is_skipped_with_the_reason(bench: TaskRunner, name: str) -> None:
    record = _one(bench, name, REFUSED[name])
    assert (record.status, bool(record.reason)) == ("skipped", True)


def test_a_wrong_row_is_caught(bench: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_table(), "exp", (node("Cos", "x"),))
    record = _one(bench, "exp", {})
    assert record.status == "wrong"
    assert "elements are off" in record.reason


# -- how models are built


def _model(draw: Any, dtype: str = "float32") -> Any:
    return Graph(draw, {}).model({"x": ((4, 8), dtype)})


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int8"])
def test_a_number_has_the_type_of_the_tensor_that_it_meets(dtype: str) -> None:
    model = _model(lambda g, p, x: g.Where(g.Greater(x, 1), g.Neg(x), 2), dtype)
    assert [constant.data_type for constant in model.graph.initializer] == [element_type(dtype)] * 2


def test_a_number_keeps_all_digits_of_its_type() -> None:
    from onnx import numpy_helper

    for dtype in ("float64", "float32", "float16"):
        (constant,) = _model(lambda g, p, x: g.Mul(x, 0.1), dtype).graph.initializer
        assert numpy_helper.to_array(constant) == np.dtype(dtype).type(0.1)


def test_a_list_is_one_of_whole_numbers() -> None:
    (constant,) = _model(lambda g, p, x: g.Reshape(x, [8, 4])).graph.initializer
    assert constant.data_type == element_type("int64")


def test_types_are_known_of_what_a_node_gives() -> None:
    seen = {}

    def draw(g: Any, p: Any, x: str) -> Any:
        values, places = g.TopK(x, [2], outputs=2)
        made = {"cast": g.Cast(x, to="float16"), "truth": g.Equal(x, x), "values": values, "places": places}
        seen.update({name: g.dtype(one) for name, one in made.items()})
        return values

    _model(draw)
    assert seen == {"cast": "float16", "truth": "bool", "values": "float32", "places": "int64"}


def test_a_number_of_a_node_that_32_bits_do_not_hold_is_refused_for_float64() -> None:
    _model(lambda g, p, x: g.LeakyRelu(x, alpha=0.1))
    _model(lambda g, p, x: g.LeakyRelu(x, alpha=0.25), "float64")
    with pytest.raises(Unsupported, match=r"alpha=0.1 of ONNX's LeakyRelu"):
        _model(lambda g, p, x: g.LeakyRelu(x, alpha=0.1), "float64")


def test_an_output_is_named_without_a_node_for_it_where_one_node_makes_it() -> None:
    assert [made.op_type for made in _model(lambda g, p, x: g.Neg(x)).graph.node] == ["Neg"]
    assert [made.op_type for made in _model(lambda g, p, x: (x, x)).graph.node] == ["Identity"] * 2

    def twice(g: Any, p: Any, x: str) -> Any:
        y = g.Neg(x)
        return y, g.Abs(y)

    assert [made.op_type for made in _model(twice).graph.node] == ["Neg", "Abs", "Identity"]


def test_models_are_valid_by_the_rules_of_onnx() -> None:
    """Each engine also accepts some invalid models."""
    from onnx import checker, shape_inference

    for name in NARROW:
        operator = catalogue()[name]
        params = operator.complete(operator.preset("small"))
        (row,) = _table()[name]
        inputs = {key: (spec.shape, spec.dtype) for key, spec in operator.inputs(params).items()}
        checker.check_model(shape_inference.infer_shapes(row.build(params).model(inputs)), full_check=True)


def test_no_framework_is_needed_to_read_the_tables() -> None:
    import subprocess
    import sys

    code = (
        "import sys, opmark.plugin.registry as r; len(r.implementation_tables()) or 1 / 0; print('onnx' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ}, check=True)
    assert said.stdout.strip() == "False"


def test_a_row_of_several_nodes_names_none() -> None:
    assert graph(lambda g, p, x: x).path == ""
    assert node("Neg", "x").path == "onnx.Neg"
