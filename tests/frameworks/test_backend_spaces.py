"""The knobs of backends: configurations drawn at random are verified like any implementation."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from spaces import configured_task

from opmark.plugin import Space
from opmark.plugin.registry import backend, backends, operator
from opmark.worker.task_runner import TaskRunner

pytestmark = [
    pytest.mark.tuning,
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),  # inductor uses it when it is imported
]

CASES = {
    "matmul": {"M": 32, "N": 32, "K": 32},
    "conv2d": {"batch": 2, "in_channels": 8, "image": [8, 8], "out_channels": 16},
}
IMPLEMENTATIONS = {
    "onnxruntime-cpu": "onnx",
    "openvino-cpu": "onnx",
    "torch-cpu": "torch",
    "torch-compile-cpu": "torch",
}
WITH_SPACE = {name for name, info in backends().items() if info.space}


def _space(name: str, op: str = "matmul") -> Space:
    known = operator(op)
    found = backend(name).find_space(known, known.complete(CASES[op]))
    assert found is not None
    return found


def test_which_backends_have_knobs() -> None:
    cuda = {"onnxruntime-cuda", "torch-cuda", "torch-compile-cuda"}
    assert {*IMPLEMENTATIONS, *cuda} == WITH_SPACE


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("name", sorted(WITH_SPACE))
def test_the_default_is_allowed_and_numbers_are_configurations(name: str, op: str) -> None:
    space = _space(name, op)
    assert space.why_not(space.default) is None
    drawn = space.draw(Random(0), 20)
    assert drawn
    assert all(space.index(space.at(i)) == i and space.why_not(space.at(i)) is None for i in drawn)


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_configurations_compute_what_the_reference_does(name: str, op: str) -> None:
    info = backend(name)
    if info.why_missing():
        pytest.skip(f"{info.requires} is not installed")
    live, space = info.load(1), _space(name, op)
    if live.why_unavailable():
        pytest.skip(str(live.why_unavailable()))
    runner = TaskRunner(info, live)
    drawn = [space.default, *(space.at(i) for i in space.draw(Random(1), 3 if info.compiles else 6))]
    for one in drawn:
        wanted = {**one, "threads": 1} if "threads" in one else one
        if space.why_not(wanted):
            continue
        record = runner.run(configured_task(op, CASES[op], name, IMPLEMENTATIONS[name], wanted))
        assert (record.status, record.reason) == ("ok", ""), wanted
    assert runner.run(configured_task(op, CASES[op], name, IMPLEMENTATIONS[name], {})).status == "ok"


def test_a_configuration_leaves_out_what_has_its_default_and_names_what_is_wrong() -> None:
    pytest.importorskip("onnxruntime")
    info = backend("onnxruntime-cpu")
    runner = TaskRunner(info, info.load(1))

    def outcome(**configuration: Any) -> tuple[str, str]:
        record = runner.run(configured_task("matmul", CASES["matmul"], info.name, "onnx", configuration))
        return record.status, record.reason

    assert outcome(threads=1, graph_level="basic") == ("ok", "")
    assert "this worker has 1 threads" in outcome(threads=2, graph_level="basic")[1]
    assert "did you mean" in outcome(graph_levl="basic")[1]
    assert "cannot be 'most'" in outcome(graph_level="most")[1]
    assert "a configuration must" in outcome(threads=1, inter_op_threads=2)[1]


def test_a_backend_without_knobs_says_so() -> None:
    info = backend("numpy-cpu")
    record = TaskRunner(info, info.load(1)).run(
        configured_task("matmul", CASES["matmul"], "numpy-cpu", "numpy", {"speed": 11})
    )
    assert "numpy-cpu has no knobs" in record.reason


def test_channels_last_is_the_same_tensor_in_another_order() -> None:
    torch = pytest.importorskip("torch")
    live = backend("torch-cpu").load(1)
    live.configure({"layout": "channels_last"})
    x, y = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    values = x.clone()
    assert live.operands("torch", {"x": x})["x"] is x
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(x, values)
    live.splice(x, y, 10, 100)
    assert torch.equal(x.flatten()[10:100], y.flatten()[10:100])
    assert torch.equal(x.flatten()[:10], values.flatten()[:10])
    live.configure({})
    assert live.operands("torch", {"x": values})["x"].is_contiguous()


def test_inductor_knows_every_option() -> None:
    pytest.importorskip("torch")
    from torch._inductor import config

    known = config.get_config_copy()
    for device in ("cpu", "cuda"):
        space = _space(f"torch-compile-{device}")
        assert {knob.name for knob in space.knobs} - {"threads"} <= known.keys()
        for knob in space.knobs:
            if knob.name != "threads":
                assert knob.usual == known[knob.name] or (knob.usual == 0 and known[knob.name] is None)
