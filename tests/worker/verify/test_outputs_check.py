"""Verification of one task: what passes, what does not, and what is said about it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from opmark.errors import WrongResult
from opmark.plugin import Implementation, Operator
from opmark.plugin.registry import catalogue, operator
from opmark.schema import EFFORTS, Case, Phase, Settings, Task, Verification
from opmark.schema.tensor import INTS
from opmark.worker.verify import outputs as module
from opmark.worker.verify.outputs import compare_outputs, scale_down, too_large, verify

SETTINGS = Settings(1, "quick", EFFORTS["quick"])
Change = Callable[[Any], Any]


def _check(op: Operator, given: dict[str, Any], live: Any, implementation: Implementation,
           phase: Phase = "forward") -> Verification:  # fmt: skip
    params = op.complete(given)
    op.check_rules(params)
    return verify(Task(Case.of(op.name, params, phase), "", "", SETTINGS), op, implementation, live)


def _own(op: Operator, framework: str) -> Implementation:
    return op.implementations_for(framework)[0]


def _changed(op: Operator, framework: str, change: Change) -> Implementation:
    """The operator's own implementation, with its result changed."""

    def build(p: Any, **inputs: Any) -> Any:
        launch = _own(op, framework).build(p, **inputs)
        return lambda: change(launch())

    return Implementation(framework, build)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_right_result_comes_with_how_far_off_it_was(framework: str, request: Any) -> None:
    op, given = operator("matmul"), {"M": 17, "N": 5, "K": 100}
    found = _check(op, given, request.getfixturevalue(f"{framework}_cpu"), _own(op, framework))
    assert found.checked == "full"
    assert found.params is None
    assert found.tolerance == op.tolerance.bounds("float32", op.complete(given))
    assert found.max_abs_error is not None
    assert 0 < found.max_abs_error < 1e-4
    assert found.max_rel_error is not None
    assert found.max_rel_error > 0


def test_how_far_off_each_output_is_is_kept(torch_cpu: Any) -> None:
    op = operator("matmul")
    (numbers,) = _check(op, {"M": 17, "N": 5, "K": 100}, torch_cpu, _own(op, "torch")).numerics
    assert (numbers.elements, numbers.compared, numbers.nan) == (17 * 5, 17 * 5, 0)
    assert numbers.mean_abs is not None
    assert numbers.max_abs is not None
    assert 0 < numbers.mean_abs < numbers.max_abs
    assert numbers.cosine == pytest.approx(1.0)
    assert numbers.max_ulp is not None
    assert numbers.max_ulp >= 0.5  # rounding alone is half of one


def test_a_wrong_result_keeps_how_far_off_it_was(numpy_cpu: Any) -> None:
    op = operator("matmul")
    broken = _changed(op, "numpy", lambda c: np.where(np.arange(c.size).reshape(c.shape) == 3, np.nan, c * 2))
    with pytest.raises(WrongResult) as caught:
        _check(op, {"M": 4, "N": 5, "K": 10}, numpy_cpu, broken)
    (numbers,) = caught.value.verification.numerics
    assert (numbers.elements, numbers.compared, numbers.nan, numbers.nan_expected) == (20, 19, 1, 0)
    assert numbers.max_rel == pytest.approx(1.0, rel=1e-3)
    assert caught.value.verification.checked == "full"


def test_gradients_are_checked_too(torch_cpu: Any) -> None:
    op, given = operator("matmul"), {"M": 17, "N": 5, "K": 100}
    found = _check(op, given, torch_cpu, _own(op, "torch"), "backward")
    assert found.checked == "full"
    assert found.tolerance is not None
    assert found.max_rel_error is not None
    assert 0 < found.max_rel_error < found.tolerance[0]


WRONG: dict[str, Change] = {
    "a tenth too large": lambda c: c * np.float32(1.1),
    "one element off": lambda c: c + np.eye(*c.shape, dtype=c.dtype) * (np.arange(c.shape[1]) == 2),
    "transposed": lambda c: c.T,
    "a row short": lambda c: c[:-1],
    "an axis more": lambda c: c[None],
    "not a number": lambda c: np.where(np.arange(c.size).reshape(c.shape) == 3, np.nan, c),
    "infinite": lambda c: np.where(np.arange(c.size).reshape(c.shape) == 3, np.inf, c),
    "rows exchanged": lambda c: c[::-1],
    "zeros": lambda c: c * 0,
    "two outputs": lambda c: (c, c),
    "an empty result": lambda c: c[:0],
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_result_is_found_wrong(what: str, numpy_cpu: Any) -> None:
    op = operator("matmul")
    with pytest.raises(WrongResult):
        _check(op, {"M": 5, "N": 7, "K": 3}, numpy_cpu, _changed(op, "numpy", WRONG[what]))


def test_a_wrong_result_says_where_and_by_how_much(numpy_cpu: Any) -> None:
    op = operator("add")

    def change(result: Any) -> Any:
        result[3, 1] += 5
        return result

    with pytest.raises(WrongResult, match=r"1 of 35 elements .* worst at \[3, 1\].* off by 5"):
        _check(op, {"shape": [5, 7]}, numpy_cpu, _changed(op, "numpy", change))


@pytest.mark.parametrize("step", [1, -1, 64, 127, -127, -128])
def test_an_integer_that_is_off_by_anything_is_wrong(step: int, numpy_cpu: Any) -> None:
    """-128 has no positive counterpart in int8."""
    op = operator("add")
    with pytest.raises(WrongResult):
        _check(op, {"shape": [5, 7], "dtype": "int8"}, numpy_cpu, _changed(op, "numpy", lambda c: c + np.int8(step)))


@pytest.mark.parametrize("dtype", INTS)
def test_one_integer_that_is_off_by_one_is_wrong(dtype: str, numpy_cpu: Any) -> None:
    op = operator("add")

    def change(result: Any) -> Any:
        result[0, 0] -= 1
        return result

    with pytest.raises(WrongResult, match=r"1 of 35 elements"):
        _check(op, {"shape": [5, 7], "dtype": dtype}, numpy_cpu, _changed(op, "numpy", change))


@pytest.mark.parametrize(
    ("dtype", "returned"), [("float32", "float64"), ("float32", "float16"), ("float16", "float32")]
)
def test_a_result_of_another_element_type_is_wrong(dtype: str, returned: str, numpy_cpu: Any) -> None:
    """It is other work than was asked for: more or fewer bytes are written."""
    op = operator("exp")
    with pytest.raises(WrongResult, match=returned):
        _check(op, {"shape": [5, 7], "dtype": dtype}, numpy_cpu, _changed(op, "numpy", lambda c: c.astype(returned)))


@pytest.mark.parametrize(("name", "dtype"), [("topk", "int32"), ("sort", "int16"), ("reduce_max", "float32")])
def test_places_of_another_element_type_are_wrong(name: str, dtype: str, torch_cpu: Any) -> None:
    op = operator(name)
    change = _changed(op, "torch", lambda outputs: (outputs[0], outputs[1].to(getattr(torch, dtype))))
    with pytest.raises(WrongResult, match=f"output 1 is {dtype}, expected int64"):
        _check(op, dict(op.preset("small")), torch_cpu, change)


def test_a_backend_may_count_places_in_another_type(torch_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(torch_cpu), "index_dtypes", ("int64", "int32"))
    op = operator("topk")
    change = _changed(op, "torch", lambda outputs: (outputs[0], outputs[1].int()))
    _check(op, dict(op.preset("small")), torch_cpu, change)


def test_a_further_output_has_the_type_of_the_first_unless_the_operator_says_otherwise(torch_cpu: Any) -> None:
    op = operator("moments")
    change = _changed(op, "torch", lambda outputs: (outputs[0], outputs[1].double()))
    with pytest.raises(WrongResult, match="output 1 is float64, expected float32"):
        _check(op, dict(op.preset("small")), torch_cpu, change)


WRONG_AT_EDGES: dict[str, Change] = {
    "half up": lambda x: torch.floor(x + 0.5),
    "half away": lambda x: torch.sign(x) * torch.floor(x.abs() + 0.5),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("what", WRONG_AT_EDGES)
def test_rounding_that_is_wrong_at_halves_only_is_found(what: str, dtype: str, torch_cpu: Any) -> None:
    op = operator("round")
    implementation = Implementation("torch", lambda p, x: lambda: WRONG_AT_EDGES[what](x))
    with pytest.raises(WrongResult):
        _check(op, {"shape": [64, 64], "dtype": dtype}, torch_cpu, implementation)


def test_a_sign_that_is_wrong_at_zero_only_is_found(torch_cpu: Any) -> None:
    implementation = Implementation("torch", lambda p, x: lambda: torch.where(x < 0, -1.0, 1.0))
    with pytest.raises(WrongResult):
        _check(operator("sign"), {"shape": [64, 64]}, torch_cpu, implementation)


class Scaled(torch.autograd.Function):
    """exp with a gradient that is too large by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        y = torch.exp(x)
        ctx.save_for_backward(y)
        ctx.factor = factor
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (y,) = ctx.saved_tensors
        return gradient * y * ctx.factor, None


def _exp_with(factor: float) -> Implementation:
    return Implementation("torch", lambda p, x: lambda: Scaled.apply(x, factor))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("factor", [0.5, 1.1, -1.0, 0.0, float("nan")])
def test_a_gradient_with_a_wrong_factor_is_found_wrong(factor: float, dtype: str, torch_cpu: Any) -> None:
    given = {"shape": [33, 17], "dtype": dtype}
    assert _check(operator("exp"), given, torch_cpu, _exp_with(1.0), "backward").checked == "full"
    assert _check(operator("exp"), given, torch_cpu, _exp_with(factor)).checked == "full"
    with pytest.raises(WrongResult, match="gradient of `x`"):
        _check(operator("exp"), given, torch_cpu, _exp_with(factor), "backward")


# The element type whose rounding is allowed for: the coarsest that is involved. Integers are exact.
ALLOWED = [
    ("float64", "float64", 1e-12),
    ("float64", "bfloat16", 1.6e-2),
    ("bfloat16", "float64", 1.6e-2),
    ("float32", "float16", 2e-3),
    ("float32", "int8", 1e-5),
    ("int8", "float32", 1e-5),
    ("int64", "int8", 0.0),
]


@pytest.mark.parametrize(("dtype", "to", "relative"), ALLOWED)
def test_the_coarsest_element_type_says_how_much_is_allowed(
    dtype: str, to: str, relative: float, torch_cpu: Any
) -> None:
    op = operator("cast")
    found = _check(op, {"shape": [5, 7], "dtype": dtype, "to": to}, torch_cpu, _own(op, "torch"))
    assert found.tolerance is not None
    assert found.tolerance[0] == pytest.approx(relative)


def test_what_an_implementation_raises_is_not_hidden(numpy_cpu: Any) -> None:
    def build(p: Any, **inputs: Any) -> Any:
        raise NotImplementedError("not on this chip")

    with pytest.raises(NotImplementedError, match="not on this chip"):
        _check(operator("exp"), {"shape": [3]}, numpy_cpu, Implementation("numpy", build))


def test_a_list_of_outputs_is_as_good_as_a_tuple(numpy_cpu: Any) -> None:
    op = operator("topk")
    found = _check(op, {"shape": [5, 7], "k": 3}, numpy_cpu, _changed(op, "numpy", list))
    assert found.max_abs_error == 0


class Watched:
    """A backend that notes the largest tensor that it was asked for."""

    def __init__(self, live: Any) -> None:
        self._live, self.largest = live, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live, name)

    def tensor(self, spec: Any, seed: int) -> Any:
        self.largest = max(self.largest, spec.elements)
        return self._live.tensor(spec, seed)


LARGE = [
    op
    for op in catalogue().values()
    if op.implementations_for("numpy") and too_large(op, op.complete(op.preset("large")))
]


def _typical_of(ops: Sequence[Operator]) -> list[Operator]:
    """One of each module, and one of each mark in it: what differs in no more than its function is checked alike."""
    found: dict[object, Operator] = {}
    for op in ops:
        marks = (op.view, bool(op.mutates), op.result, op.partial, op.observe is not None)
        found.setdefault((op.reference.__module__, op.inputs.__module__, op.cost.__module__, marks), op)
    return list(found.values())


def test_the_large_presets_are_too_large_to_check_in_full() -> None:
    assert {op.name for op in LARGE} >= {"matmul", "conv2d", "scaled_dot_product_attention", "softmax", "embedding"}


def _single(op: Operator) -> dict[str, str]:
    """float32 where the operator has it: NumPy lacks some of the others."""
    return {param.name: "float32" for param in op.params if param.kind == "dtype" and "float32" in param.choices}


@pytest.mark.parametrize("op", _typical_of(LARGE), ids=lambda op: op.name)
def test_a_case_of_which_no_part_can_be_checked_is_checked_scaled_down_and_says_so(
    op: Operator, numpy_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "plan_check", lambda task, operator: None)
    params = op.complete({**op.preset("large"), **_single(op)})
    before = copy.deepcopy(params)
    task = Task(Case.of(op.name, params, "forward"), "", "", SETTINGS)
    live = Watched(numpy_cpu)
    found = verify(task, op, _own(op, "numpy"), live)
    assert found.checked == "scaled"
    assert found.params is not None
    assert task.case.params == before
    op.check_rules(found.params)
    assert not too_large(op, found.params)
    assert live.largest == max((spec.elements for spec in op.inputs(found.params).values()), default=0)
    for param in op.params:
        if param.kind not in ("size", "shape", "count", "counts"):
            assert found.params.get(param.name) == params.get(param.name)
    assert found.max_abs_error is not None


def test_a_wrong_result_is_found_in_a_case_that_was_scaled_down(
    numpy_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "plan_check", lambda task, operator: None)
    op = operator("matmul")
    with pytest.raises(WrongResult):
        _check(op, dict(op.preset("large")), numpy_cpu, _changed(op, "numpy", lambda c: c * 2))


def test_a_scaled_down_convolution_is_still_the_same_kind_of_convolution(
    numpy_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A depthwise one stays depthwise, and the kernel stays: they choose the algorithm."""
    op = operator("conv2d")
    depthwise = {
        "batch": 32, "in_channels": 1024, "out_channels": 1024, "groups": 1024, "image": [56, 56], "kernel": [3, 3],
        "stride": 2,
    }  # fmt: skip
    monkeypatch.setattr(module, "plan_check", lambda task, operator: None)
    found = _check(op, depthwise, numpy_cpu, _own(op, "numpy"))
    assert found.checked == "scaled"
    assert found.params is not None
    assert found.params["groups"] == found.params["in_channels"] == found.params["out_channels"] > 1
    assert (found.params["kernel"], found.params["stride"]) == ([3, 3], 2)
    assert min(found.params["image"]) >= 3


@pytest.mark.parametrize("length", [2048, 8192, 32768])
@pytest.mark.parametrize("kv_heads", [0, 4])
def test_a_long_causal_attention_is_scaled_down_to_what_can_be_checked(length: int, kv_heads: int) -> None:
    """Its two lengths are tied by a rule; the reference holds all scores of a head at once, in float64."""
    op = operator("scaled_dot_product_attention")
    params = op.complete(
        {"batch": 4, "heads": 16, "q_len": length, "kv_len": length, "head_dim": 128, "kv_heads": kv_heads,
         "causal": True}
    )  # fmt: skip
    scaled = scale_down(op, params)
    op.check_rules(scaled)
    assert not too_large(op, scaled)
    assert scaled["causal"]
    scores = scaled["batch"] * scaled["heads"] * scaled["q_len"] * scaled["kv_len"]
    assert scores <= 10_000_000


# The marks of an operator.


def _exp(**marks: Any) -> Operator:
    return dataclasses.replace(operator("exp"), **marks)


def test_an_input_that_the_launch_changes_is_looked_at_before_it_did(numpy_cpu: Any) -> None:
    op = dataclasses.replace(operator("add"), mutates=("x",))
    implementation = Implementation("numpy", lambda p, x, y: lambda: np.add(x, y, out=x))
    given = {"shape": [5, 7], "dtype": "int64"}
    assert _check(op, given, numpy_cpu, implementation).max_abs_error == 0


def test_an_input_that_should_have_been_changed_and_was_not_is_wrong(numpy_cpu: Any) -> None:
    op = _exp(reference=lambda p, x: 2 * x, mutates=("x",))
    with pytest.raises(WrongResult):
        _check(op, {"shape": [5, 7]}, numpy_cpu, Implementation("numpy", lambda p, x: lambda: x))


DRAWN = _exp(
    reference=lambda p, x: np.array([0.5]), observe=lambda p, y, x: np.array([np.round(np.mean(y), 1)]), result="random"
)


@pytest.mark.parametrize(("low", "right"), [(0.0, True), (0.5, False)])
def test_of_what_is_drawn_is_compared_what_can_be(low: float, right: bool, numpy_cpu: Any) -> None:
    generator = np.random.default_rng(1)
    implementation = Implementation("numpy", lambda p, x: lambda: (low + generator.random(x.shape)).astype(np.float32))
    if right:
        assert _check(DRAWN, {"shape": [200, 200]}, numpy_cpu, implementation).checked == "full"
        return
    with pytest.raises(WrongResult):
        _check(DRAWN, {"shape": [200, 200]}, numpy_cpu, implementation)


def _zero_or_double(p: Any, gradients: Any, seeds: Any, x: Any) -> Any:
    """Of a dropout by half: what came through came through twice."""
    (found,), (seed,) = gradients, seeds
    return [(found, np.where(found == 0, 0, 2 * seed))]


@pytest.mark.parametrize(("factor", "right"), [(2.0, True), (1.0, False), (2.001, False)])
def test_gradients_that_what_was_drawn_decides_about_are_compared_as_the_operator_says(
    factor: float, right: bool, torch_cpu: Any
) -> None:
    op = _exp(observe_gradients=_zero_or_double, result="random")

    def build(p: Any, x: Any) -> Any:
        return lambda: x * (torch.rand_like(x) > 0.5) * factor

    if right:
        found = _check(op, {"shape": [33, 17]}, torch_cpu, Implementation("torch", build), "backward")
        assert found.checked == "full"
        assert found.tolerance == op.tolerance.bounds("float32", op.complete({"shape": [33, 17]}))
        return
    with pytest.raises(WrongResult):
        _check(op, {"shape": [33, 17]}, torch_cpu, Implementation("torch", build), "backward")


def test_a_reference_that_is_not_numpys_is_said(numpy_cpu: Any) -> None:
    for by, said in (("NumPy", ""), ("torch", "torch")):
        op = _exp(reference_by=by)
        assert _check(op, {"shape": [5]}, numpy_cpu, _own(op, "numpy")).reference == said


@pytest.mark.parametrize(("steps", "right"), [(0.49, True), (0.9, False)])
def test_numbers_near_zero_are_rounded_to_the_steps_of_their_type(steps: float, right: bool) -> None:
    """A softmax over half a million numbers has results of 2e-6, where float16 has steps of 6e-8."""
    softmax = operator("softmax")
    params = softmax.complete({"shape": [4, 524288], "dtype": "float16"})
    expected = np.full((4, 64), 6.0e-7)
    found = expected + steps * 2.0**-24
    if right:
        compare_outputs(softmax, params, [found], [expected])
    else:
        with pytest.raises(WrongResult):
            compare_outputs(softmax, params, [found], [expected])
