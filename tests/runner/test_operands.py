"""Tensors of one framework, implementations of another: the backend says how these see its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from opmark.errors import Unsupported
from opmark.frameworks.numpy.backend import NumpyBackend
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.schema import EFFORTS, Case, Settings, Task, TensorSpec
from opmark.worker.preparation import prepare
from opmark.worker.verify.outputs import verify


class Boxed:
    """No array for anybody who does not open it."""

    def __init__(self, array: Any) -> None:
        self.array = array


class BoxingBackend(NumpyBackend):
    """A device whose tensors are its own; what runs on it sees them as arrays."""

    def tensor(self, spec: TensorSpec, seed: int) -> Boxed:
        return Boxed(super().tensor(spec, seed))

    def operands(self, framework: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: box.array for name, box in inputs.items()} if framework == "numpy" else inputs

    def download(self, tensor: Any) -> Any:
        return super().download(tensor.array if isinstance(tensor, Boxed) else tensor)


def _task() -> Task:
    operator = find_operator("softmax")
    case = Case.of("softmax", operator.complete(operator.preset("small")), "forward")
    return Task(case, "numpy-cpu", "numpy", Settings(1, "quick", EFFORTS["quick"]))


def test_an_implementation_of_another_framework_gets_the_memory_as_it_takes_it() -> None:
    operator, task = find_operator("softmax"), _task()
    (implementation,) = operator.implementations_for("numpy")
    backend = BoxingBackend(find_backend("numpy-cpu"), 1)
    assert verify(task, operator, implementation, backend).checked == "full"
    prepared = prepare(task.case.params, task, operator, implementation, backend)
    prepared.inputs["x"].array.fill(0)
    assert (prepared.launch() == 1 / 256).all(), "the launch and the backend hold the same memory"


def test_a_backend_that_does_not_say_how_another_framework_takes_its_tensors_leaves_it_out() -> None:
    operator, task = find_operator("softmax"), _task()
    (implementation,) = operator.implementations_for("numpy")
    info = replace(find_backend("numpy-cpu"), name="npu", framework="npu", also=("numpy",))
    with pytest.raises(Unsupported, match="npu does not say how numpy takes its tensors"):
        prepare(task.case.params, task, operator, implementation, NumpyBackend(info, 1))
