"""Inputs and a launch for one task."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.families.callables import FrameworkCall
from opmark.errors import OutOfMemory, Unsupported
from opmark.plugin import Implementation
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Phase, Settings, Task
from opmark.worker.preparation import bind, case_bytes, gradient_names, prepare, refill, refuse_if_too_large

MATMUL = operator("matmul")
SMALL = MATMUL.complete({"M": 3, "N": 5, "K": 7})
(NUMPY,) = MATMUL.implementations_for("numpy")
(TORCH,) = MATMUL.implementations_for("torch")


def _task(phase: Phase = "forward", seed: int = 0, wrt: tuple[str, ...] = ()) -> Task:
    return Task(Case.of("matmul", SMALL, phase, wrt=wrt), "", "", Settings(1, "quick", EFFORTS["quick"], seed))


def test_a_forward_launch_computes_from_its_inputs(numpy_cpu: Any) -> None:
    prepared = prepare(SMALL, _task(), MATMUL, NUMPY, numpy_cpu)
    assert {name: array.shape for name, array in prepared.inputs.items()} == {"a": (3, 7), "b": (7, 5)}
    np.testing.assert_array_equal(prepared.launch(), prepared.inputs["a"] @ prepared.inputs["b"])
    assert tuple(prepared.seeds) == ()


def test_the_parameters_given_count_and_not_those_of_the_case(numpy_cpu: Any) -> None:
    """A case that is checked scaled down is prepared with other parameters than its own."""
    prepared = prepare({**SMALL, "M": 2}, _task(), MATMUL, NUMPY, numpy_cpu)
    assert prepared.launch().shape == (2, 5)


def test_a_seed_gives_the_same_data_again_and_another_seed_other_data(numpy_cpu: Any) -> None:
    first, again, other = (prepare(SMALL, _task(seed=seed), MATMUL, NUMPY, numpy_cpu).inputs["a"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_no_two_inputs_hold_the_same_numbers(numpy_cpu: Any) -> None:
    """Neither within a task nor where the next seed begins."""
    square = {**SMALL, "M": 4, "N": 4, "K": 4}
    arrays = [
        array
        for seed in (0, 1, 2)
        for array in prepare(square, _task(seed=seed), MATMUL, NUMPY, numpy_cpu).inputs.values()
    ]
    assert len({array.tobytes() for array in arrays}) == 6


def test_a_backward_launch_gives_a_gradient_for_each_input_that_has_one(torch_cpu: Any) -> None:
    prepared = prepare(SMALL, _task("backward"), MATMUL, TORCH, torch_cpu)
    a, b = prepared.inputs.values()
    (seed,) = prepared.seeds
    assert seed.shape == (3, 5)
    for found, expected in zip(prepared.launch(), (seed @ b.T, a.T @ seed), strict=True):
        torch.testing.assert_close(found, expected)


def test_an_input_without_a_gradient_is_left_out(torch_cpu: Any) -> None:
    embedding = operator("embedding")
    params = embedding.complete({"rows": 7, "dim": 3, "indices": 5})
    (implementation,) = embedding.implementations_for("torch")
    task = Task(Case.of("embedding", params, "backward"), "", "", Settings(1, "quick", EFFORTS["quick"]))
    prepared = prepare(params, task, embedding, implementation, torch_cpu)
    assert [tuple(gradient.shape) for gradient in prepared.launch()] == [(7, 3)]
    assert not prepared.inputs["indices"].requires_grad


def test_the_gradient_of_the_output_is_no_copy_of_an_input(torch_cpu: Any) -> None:
    square = {**SMALL, "M": 4, "N": 4, "K": 4}
    prepared = prepare(square, _task("backward"), MATMUL, TORCH, torch_cpu)
    (seed,) = prepared.seeds
    assert not any(torch.equal(seed, tensor) for tensor in prepared.inputs.values())


def test_a_forward_launch_keeps_no_graph(torch_cpu: Any) -> None:
    assert prepare(SMALL, _task(), MATMUL, TORCH, torch_cpu).launch().grad_fn is None


# Both phases in one step.


def test_a_step_computes_its_gradients_anew_from_its_inputs(torch_cpu: Any) -> None:
    prepared = prepare(SMALL, _task("both"), MATMUL, TORCH, torch_cpu)
    for value in (1.0, 2.0):
        prepared.inputs["a"].data.fill_(value)
        a, b = (tensor.detach() for tensor in prepared.inputs.values())
        (seed,) = prepared.seeds
        for found, expected in zip(prepared.launch(), (seed @ b.T, a.T @ seed), strict=True):
            torch.testing.assert_close(found, expected)


def test_a_step_can_be_made_again_and_again(torch_cpu: Any) -> None:
    launch = prepare(SMALL, _task("both"), MATMUL, TORCH, torch_cpu).launch
    first, *_ = (launch()[0] for _ in range(3))
    torch.testing.assert_close(launch()[0], first)


# Other data of the same kind.


def test_another_variant_has_other_inputs_of_the_same_kind(numpy_cpu: Any) -> None:
    square = {**SMALL, "M": 4, "N": 4, "K": 4}
    sets = [prepare(square, _task(), MATMUL, NUMPY, numpy_cpu, variant) for variant in range(4)]
    arrays = [array for made in sets for array in made.inputs.values()]
    assert {array.shape for array in arrays} == {(4, 4)}
    assert len({array.tobytes() for array in arrays}) == len(arrays)
    np.testing.assert_array_equal(sets[2].launch(), sets[2].inputs["a"] @ sets[2].inputs["b"])


def test_a_variant_is_the_same_every_time(numpy_cpu: Any) -> None:
    first, again = (prepare(SMALL, _task(), MATMUL, NUMPY, numpy_cpu, 1).inputs["a"] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_a_variant_of_a_backward_pass_begins_with_other_gradients(torch_cpu: Any) -> None:
    one, two = (prepare(SMALL, _task("backward"), MATMUL, TORCH, torch_cpu, variant) for variant in (0, 1))
    assert not torch.equal(one.seeds[0], two.seeds[0])


def test_a_variant_of_a_step_has_other_inputs(torch_cpu: Any) -> None:
    one, two = (prepare(SMALL, _task("both"), MATMUL, TORCH, torch_cpu, variant) for variant in (0, 1))
    assert not any(torch.equal(one.inputs[name], two.inputs[name]) for name in ("a", "b"))


@pytest.mark.parametrize("phase", ["forward", "both"])
def test_a_launch_computes_anew_what_its_tensors_are_refilled_with(phase: Phase, torch_cpu: Any) -> None:
    task = _task(phase)
    ours, other = (prepare(SMALL, task, MATMUL, TORCH, torch_cpu, variant) for variant in (0, 1))
    addresses = [tensor.data_ptr() for tensor in ours.inputs.values()]
    refill(SMALL, task, MATMUL, torch_cpu, ours, 1)
    for target, source in zip(ours.seeds, other.seeds, strict=True):
        torch_cpu.copy_into(target, source)
    assert [tensor.data_ptr() for tensor in ours.inputs.values()] == addresses
    found, expected = (made if isinstance(made, tuple) else (made,) for made in (ours.launch(), other.launch()))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("phase", ["forward", "backward", "both"])
def test_a_launch_can_be_bound_to_tensors_that_are_there(phase: Phase, torch_cpu: Any) -> None:
    ours = prepare(SMALL, _task(phase), MATMUL, TORCH, torch_cpu)
    again = bind(SMALL, _task(phase), MATMUL, TORCH, torch_cpu, ours.inputs)
    assert all(again.inputs[name] is tensor for name, tensor in ours.inputs.items())
    found, expected = (made if isinstance(made, tuple) else (made,) for made in (again.launch(), ours.launch()))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


# Gradients of some inputs only.


@pytest.mark.parametrize("phase", ["backward", "both"])
@pytest.mark.parametrize(("wrt", "shapes"), [((), [(3, 7), (7, 5)]), (("a",), [(3, 7)]), (("b",), [(7, 5)])])
def test_only_the_gradients_that_are_wanted_are_computed(
    phase: Phase, wrt: tuple[str, ...], shapes: list[tuple[int, int]], torch_cpu: Any
) -> None:
    task = _task(phase, wrt=wrt)
    prepared = prepare(SMALL, task, MATMUL, TORCH, torch_cpu)
    assert [tuple(gradient.shape) for gradient in prepared.launch()] == shapes
    wanted = gradient_names(task, MATMUL, SMALL)
    assert wanted == (wrt or ("a", "b"))
    assert {name for name, tensor in prepared.inputs.items() if tensor.requires_grad} == set(wanted)


class Memory:
    """All of a backend that the refusal asks for."""

    def __init__(self, free: int | None) -> None:
        self._free = free

    def available_bytes(self) -> int | None:
        return self._free


NEED = 4 * (3 * 7 + 7 * 5 + 3 * 5)


def test_a_set_of_data_is_inputs_and_outputs() -> None:
    assert case_bytes(SMALL, MATMUL) == NEED


def test_what_fits_is_not_refused() -> None:
    assert refuse_if_too_large(SMALL, MATMUL, Memory(NEED)) is None


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(OutOfMemory, match="need 284 B, 283 B are free"):
        refuse_if_too_large(SMALL, MATMUL, Memory(NEED - 1))


def test_where_nobody_knows_what_is_free_nothing_is_refused() -> None:
    assert refuse_if_too_large({**SMALL, "M": 10**15}, MATMUL, Memory(None)) is None


def test_nothing_is_allocated_to_find_out(numpy_cpu: Any) -> None:
    with pytest.raises(OutOfMemory):
        refuse_if_too_large({**SMALL, "M": 10**15}, MATMUL, numpy_cpu)


# Calls of a framework's own functions.


FOREIGN = dataclasses.replace(operator("matmul"), foreign=True)


def _foreign(live: Any, phase: Phase, call: Any, wrt: tuple[str, ...] = ()) -> Any:
    implementation = Implementation("torch", lambda p, **inputs: call(**inputs))
    return prepare(SMALL, _task(phase, wrt=wrt), FOREIGN, implementation, live)


def _call(a: Any, b: Any, **fields: Any) -> Any:
    call = FrameworkCall(lambda: {"y": [a @ b], "n": 3})
    for name, value in {"reads": [a, b], "leaves": [a, b], "described": "a, b", **fields}.items():
        setattr(call, name, value)
    return call


@pytest.mark.parametrize("phase", ["forward", "backward", "both"])
def test_what_a_call_takes_and_how_it_is_written_is_kept(phase: Phase, torch_cpu: Any) -> None:
    prepared = _foreign(torch_cpu, phase, _call)
    assert [id(tensor) for tensor in prepared.reads] == [id(tensor) for tensor in prepared.inputs.values()]
    assert prepared.called == "a, b"


def test_a_launch_of_the_catalogue_says_nothing_of_what_it_takes(numpy_cpu: Any) -> None:
    prepared = prepare(SMALL, _task(), MATMUL, NUMPY, numpy_cpu)
    assert (tuple(prepared.reads), prepared.called) == ((), "")


@pytest.mark.parametrize("phase", ["backward", "both"])
def test_a_call_goes_back_to_its_leaves_through_nested_outputs(phase: Phase, torch_cpu: Any) -> None:
    prepared = _foreign(torch_cpu, phase, _call)
    left, right = prepared.launch()
    (seed,) = prepared.seeds
    a, b = prepared.inputs.values()
    torch.testing.assert_close(left, seed @ b.detach().T)
    torch.testing.assert_close(right, a.detach().T @ seed)


def test_a_leaf_that_does_not_matter_has_no_gradient(torch_cpu: Any) -> None:
    def call(a: Any, b: Any) -> Any:
        return _call(a, b, leaves=[torch.rand(3), a])

    (gradient,) = _foreign(torch_cpu, "backward", call).launch()
    assert gradient.shape == (3, 7)


def test_gradients_that_are_named_are_those_of_the_inputs(torch_cpu: Any) -> None:
    (gradient,) = _foreign(torch_cpu, "backward", _call, wrt=("b",)).launch()
    assert gradient.shape == (7, 5)


@pytest.mark.parametrize(("wrt", "shapes"), [(("weights",), [(7, 5)]), (("a", "weights"), [(3, 7), (7, 5)])])
def test_the_weights_of_a_module_can_be_named(wrt: Any, shapes: Any, torch_cpu: Any) -> None:
    """The input itself gets no gradient, and so may be overwritten by the call."""

    def call(a: Any, b: Any) -> Any:
        return _call(a, b, weights=[b])

    prepared = _foreign(torch_cpu, "backward", call, wrt=wrt)
    assert [tuple(gradient.shape) for gradient in prepared.launch()] == shapes
    assert prepared.inputs["a"].requires_grad == ("a" in wrt)


def test_a_module_without_weights_has_no_backward_pass_for_them(torch_cpu: Any) -> None:
    with pytest.raises(Unsupported, match="the module has no weights"):
        _foreign(torch_cpu, "backward", _call, wrt=("weights",))


def test_a_call_without_leaves_has_no_backward_pass(torch_cpu: Any) -> None:
    with pytest.raises(Unsupported, match="nothing that goes in has a gradient"):
        _foreign(torch_cpu, "backward", lambda a, b: _call(a, b, leaves=()))


def test_what_is_built_is_built_where_the_backend_says(torch_cpu: Any) -> None:
    inside: list[bool] = []

    class Placing:
        def __getattr__(self, name: str) -> Any:
            return getattr(torch_cpu, name)

        @contextmanager
        def placing(self) -> Iterator[None]:
            inside.append(True)
            yield
            inside.append(False)

    def call(a: Any, b: Any) -> Any:
        assert inside == [True]
        return _call(a, b)

    _foreign(Placing(), "backward", call)
    assert inside == [True, False]
