"""Outputs that no call has written, and inputs that one has, on backends that know where their tensors lie."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from each_case import each_case

from opmark.errors import WrongResult
from opmark.plugin import Backend, HostBackend, Implementation, MemoryLayout, Operator
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import catalogue, operator
from opmark.schema import EFFORTS, PHASES, Case, Phase, Settings, Task
from opmark.worker.preparation import prepare
from opmark.worker.verify.memory import refuse_shared_memory
from opmark.worker.verify.outputs import as_tuple, verify

SETTINGS = Settings(1, "quick", EFFORTS["quick"])
LIVE = pytest.mark.parametrize("framework", ["numpy", "torch"])


def check(
    name: str, build: Callable[..., Any], live: Any, phase: Phase = "forward", framework: str = "torch", **given: Any
) -> None:
    op = operator(name)
    params = op.complete({**op.preset("small"), **given})
    task = Task(Case.of(name, params, phase), "", "", SETTINGS)
    verify(task, op, Implementation(framework, build), live)


@LIVE
def test_a_copy_that_is_its_input_is_wrong(framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    with pytest.raises(WrongResult, match=r"output 0 shares its memory with `x`.*declares `view`"):
        check("identity", lambda p, x: lambda: x, live, framework=framework)


@LIVE
def test_a_view_of_part_of_the_input_is_wrong_unless_the_operator_is_one(framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    op = operator("identity")
    stranger = dataclasses.replace(op, reference=lambda p, x: x[1:])
    task = Task(Case.of("identity", op.complete({"shape": [8, 8]}), "forward"), "", "", SETTINGS)
    part = Implementation(framework, lambda p, x: lambda: x[1:])
    with pytest.raises(WrongResult, match="shares its memory"):
        verify(task, stranger, part, live)
    verify(task, dataclasses.replace(stranger, view=True), part, live)


@LIVE
def test_an_output_whose_elements_are_one_and_the_same_is_wrong(framework: str, request: Any) -> None:
    def build(p: Any, x: Any) -> Any:
        return lambda: (torch if framework == "torch" else np).broadcast_to(x[:1] * 0, x.shape)

    op = dataclasses.replace(operator("exp"), reference=lambda p, x: np.zeros_like(x), result="constant")
    task = Task(Case.of("exp", op.complete({"shape": [8, 8]}), "forward"), "", "", SETTINGS)
    with pytest.raises(WrongResult, match="several of its elements are the same memory"):
        verify(task, op, Implementation(framework, build), request.getfixturevalue(f"{framework}_cpu"))


@LIVE
def test_two_outputs_in_the_same_memory_are_wrong(framework: str, request: Any) -> None:
    def build(p: Any, x: Any) -> Any:
        def launch() -> Any:
            made = x * 2
            return made, made

        return launch

    op = dataclasses.replace(operator("exp"), reference=lambda p, x: (2 * x, 2 * x))
    task = Task(Case.of("exp", op.complete({"shape": [8, 8]}), "forward"), "", "", SETTINGS)
    with pytest.raises(WrongResult, match="output 0 and output 1 share memory"):
        verify(task, op, Implementation(framework, build), request.getfixturevalue(f"{framework}_cpu"))


def test_outputs_that_lie_between_each_other_are_fine(torch_cpu: Backend) -> None:
    pairs = torch.zeros(5, 2)
    refuse_shared_memory([pairs[:, 0], pairs[:, 1]], {}, torch_cpu)
    with pytest.raises(WrongResult):
        refuse_shared_memory([pairs[:, 0], pairs[1:, :]], {}, torch_cpu)


def test_a_buffer_that_is_filled_at_every_call_is_fine(torch_cpu: Backend) -> None:
    def build(p: Any, x: Any) -> Any:
        out = torch.empty_like(x)
        return lambda: torch.exp(x, out=out)

    check("exp", build, torch_cpu)


class HandedOn(torch.autograd.Function):
    """A copy of x, with the incoming gradient itself for its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def test_a_gradient_that_is_the_incoming_one_is_wrong_unless_the_operator_says_so(torch_cpu: Backend) -> None:
    op = dataclasses.replace(operator("exp"), reference=lambda p, x: x)
    task = Task(Case.of("exp", op.complete({"shape": [8, 8]}), "backward"), "", "", SETTINGS)
    implementation = Implementation("torch", lambda p, x: lambda: HandedOn.apply(x))
    says = "gradient 0 shares its memory with `the gradient of output 0`.* declares `gradient_view`"
    with pytest.raises(WrongResult, match=says):
        verify(task, op, implementation, torch_cpu)
    verify(task, dataclasses.replace(op, gradient_view=True), implementation, torch_cpu)


def _changes_first(p: Any, x: Any, y: Any) -> Any:
    def launch() -> Any:
        made = x + y
        x[0] += 1
        return made

    return launch


@LIVE
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_an_input_that_a_call_changes_without_a_word_is_wrong(dtype: str, framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    with pytest.raises(WrongResult, match=r"changes its input `x` in 7 of 35 elements"):
        check("add", _changes_first, live, framework=framework, shape=[5, 7], dtype=dtype)


def test_an_input_that_a_backward_pass_changes_is_wrong(torch_cpu: Backend) -> None:
    class Spoils(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.x = x.detach()
            ctx.save_for_backward(torch.exp(x))
            return torch.exp(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            ctx.x.data.zero_()
            return gradient * ctx.saved_tensors[0]

    with pytest.raises(WrongResult, match="changes its input `x`"):
        check("exp", lambda p, x: lambda: Spoils.apply(x), torch_cpu, "backward")


class Copying(HostBackend):
    """A backend whose tensors are read by copying them."""

    def upload(self, array: Any, dtype: str) -> Any:
        return array

    def download(self, tensor: Any) -> Any:
        return tensor.copy()


def test_memory_that_is_not_known_passes(numpy_cpu: Backend) -> None:
    copying = Copying(find_backend("numpy-cpu"), 1)
    x = np.zeros(4)
    assert copying.layout(x) is None
    refuse_shared_memory([x], {"x": x}, copying)
    with pytest.raises(WrongResult):
        refuse_shared_memory([x], {"x": x}, numpy_cpu)


def test_empty_outputs_share_nothing(numpy_cpu: Backend) -> None:
    x = np.zeros((4, 0))
    refuse_shared_memory([x], {"x": x}, numpy_cpu)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_the_layout_of_a_tensor_is_that_of_its_memory(dtype: str, torch_cpu: Backend) -> None:
    made = torch.zeros(3, 4, dtype=getattr(torch, dtype)).T
    size = made.element_size()
    assert torch_cpu.layout(made) == MemoryLayout(made.data_ptr(), (4, 3), (size, 4 * size), size)


def test_jax_arrays_are_known_by_their_memory() -> None:
    pytest.importorskip("jax")
    live = find_backend("jax-cpu").load(1)
    x = live.upload(np.arange(8.0), "float64")
    other = live.upload(np.arange(8.0), "float64")
    with pytest.raises(WrongResult):
        refuse_shared_memory([x.value], {"x": x}, live)
    refuse_shared_memory([other.value], {"x": x}, live)


# No operator of the catalogue is refused.


@LIVE
def test_every_operator_has_outputs_of_its_own_or_says_that_they_are_views(framework: str, request: Any) -> None:
    live = request.getfixturevalue(f"{framework}_cpu")
    with each_case() as case:
        for op in catalogue().values():
            params = op.complete({**op.preset("small"), **_single(op)})
            for implementation in () if op.ranks or op.device_only else op.implementations_for(framework)[:1]:
                for phase in PHASES[:2] if framework == "torch" else PHASES[:1]:
                    if op.why_no_phase(params, phase) is None:
                        with case(op.name, implementation.label, phase):
                            check_own_memory(op, params, phase, implementation, live)


def check_own_memory(op: Operator, params: Any, phase: Phase, implementation: Implementation, live: Backend) -> None:
    task = Task(Case.of(op.name, params, phase), "", "", SETTINGS)
    prepared = prepare(params, task, op, implementation, live)
    outputs = as_tuple(prepared.launch())
    if phase == "forward" and not op.view:
        others = {name: tensor for name, tensor in prepared.inputs.items() if name not in op.mutates}
        refuse_shared_memory(outputs, others, live)
    if phase == "backward" and not op.gradient_view:
        refuse_shared_memory(outputs, prepared.inputs, live, "gradient")


def _single(op: Operator) -> dict[str, str]:
    """float32 where the operator has it: NumPy lacks some of the others."""
    return {param.name: "float32" for param in op.params if param.kind == "dtype" and "float32" in param.choices}
