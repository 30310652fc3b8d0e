"""TVM: what it compiles, for a CPU and, unseen, for a GPU, and what of it is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from opmark.errors import Unsupported, WrongResult
from opmark.frameworks.onnx.implementations._graph import graph, node
from opmark.frameworks.tvm.targets import lower_graph
from opmark.plugin import Implementation
from opmark.plugin.registry import backend, operator
from opmark.schema import EFFORTS, Case, Settings, Task, TensorSpec
from opmark.schema.tensor import is_float
from opmark.worker.verify.outputs import verify

pytestmark = pytest.mark.frameworks

INFO = backend("tvm-cpu")
CUDA = backend("tvm-cuda")


@pytest.fixture(scope="module")
def live() -> Iterator[Any]:
    """As in a worker: when its threads start, TVM binds them, and the one that asked, to cores of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_BIND_THREADS", "0")
        patch.setenv("TVM_NUM_THREADS", "1")
        yield INFO.load(threads=1)


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
    assert array.shape == (200, 3)
    assert len(np.unique(array)) > 1


def test_a_launch_computes_anew_from_what_is_in_its_inputs(live: Any) -> None:
    launch, inputs = _compiled(live, node("MatMul", "a", "b"), a="float32", b="float32")
    for seed in range(3):
        live.copy_into(inputs["a"], live.tensor(_spec("float32"), 10 + seed))
        a, b = (live.to_numpy(tensor) for tensor in inputs.values())
        output = launch()
        np.testing.assert_allclose(live.to_numpy(output), a @ b, rtol=1e-4, atol=1e-5)
        live.poison(output)
        assert np.isnan(live.to_numpy(output)).all()


def test_several_outputs_are_a_tuple(live: Any) -> None:
    launch, inputs = _compiled(live, _draws(lambda g, x: g.TopK(x, [3], outputs=2)), x="float32")
    values, places = map(live.to_numpy, launch())
    x = live.to_numpy(inputs["x"])
    np.testing.assert_array_equal(values, -np.sort(-x)[:, :3])
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), values)


def test_what_is_compiled_is_told(live: Any) -> None:
    compilation = _compiled(live, _draws(lambda g, x: g.Mul(x, g.Sigmoid(x))), x="float32")[0].compilation
    assert compilation.cold > 0
    assert compilation.operators == ("Sigmoid", "Mul")
    assert compilation.kernels == ("fused_tir_sigmoid_multiply",)
    assert all(type(name) is str for name in compilation.kernels)
    assert compilation.graphs == 1


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda g, x: g.Det(x), r"^TVM [\w.]+: OpNotImplemented: .*Det$"),
        (lambda g, x: g.NonZero(x), r"leaves it to NumPy \(relax.run.nonzero\)"),
        (lambda g, x: g.Identity(x), "no call does any work"),
        (lambda g, x: g.ConstantOfShape(g.Shape(x)), "no call does any work"),
    ],
)
def test_what_tvm_does_not_compute_is_refused(draw: Any, words: str, live: Any) -> None:
    with pytest.raises(Unsupported, match=words):
        _compiled(live, _draws(draw), x="float32")


def test_it_compiles_for_a_gpu_that_is_not_there() -> None:
    """DLight gives every kernel its threads; without, the code would not be legal."""
    import tvm

    live = CUDA.load(threads=1)
    row = _draws(lambda g, a, b: g.Softmax(g.MatMul(a, b)))
    inputs = {name: INFO.load(1).tensor(_spec("float32", (64, 64)), 0) for name in "ab"}
    lowered = lower_graph(live.model(row.build({}, **inputs), inputs), live.target)
    source = tvm.compile(lowered, target=live.target).mod.imports[0].imports[0].inspect_source()
    assert source.count("__global__") >= 2
    assert "threadIdx.x" in source


def test_without_a_gpu_the_backend_for_it_says_so() -> None:
    import tvm

    if tvm.cuda(0).exist:
        pytest.skip("there is one")
    assert "finds no CUDA device" in str(CUDA.load(threads=1).why_unavailable())


def _in_a_fresh_process(code: str, **environ: str) -> Any:
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, check=True, capture_output=True, timeout=120
    )
    return json.loads(told.stdout)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_threads_are_what_was_asked_for_and_torch_is_left_out() -> None:
    code = (
        "import json, sys; from opmark.plugin.registry import backend; live = backend('tvm-cpu').load(2)\n"
        "print(json.dumps([live.why_unavailable(), live.environment()['threads'], 'torch' in sys.modules]))"
    )
    assert _in_a_fresh_process(code, TVM_NUM_THREADS="2", TVM_BIND_THREADS="0") == [None, 2, False]
    reason, told, _ = _in_a_fresh_process(code, TVM_NUM_THREADS="1", TVM_BIND_THREADS="0")
    assert told == 1
    assert "2 threads were asked for, TVM runs 1" in reason


def test_what_it_reports(live: Any) -> None:
    told = live.environment()
    assert (told["schedule"], told["threads"]) == ("none", 1)
    assert told["tvm-ffi"]
    assert '"kind":"llvm"' in told["target"]


def test_there_is_no_backward_pass(live: Any) -> None:
    with pytest.raises(Unsupported, match="no automatic differentiation"):
        live.backward(lambda: None, [], 0)


def test_out_of_memory_is_told_from_other_errors(live: Any) -> None:
    assert live.classify(RuntimeError("CUDA: out of memory")) == "oom"
    assert live.classify(RuntimeError("anything else")) is None


def test_a_wrong_row_is_caught(live: Any) -> None:
    op = operator("exp")
    case = Case.of("exp", op.complete(op.preset("small")), "forward")
    task = Task(case, "", "", Settings(1, "quick", EFFORTS["quick"]))
    with pytest.raises(WrongResult, match="off by more than"):
        verify(task, op, node("Sin", "x"), live)
    assert verify(task, op, node("Exp", "x"), live).checked == "full"
