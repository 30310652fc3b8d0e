"""matmul, batched_matmul, grouped_gemm, gemv, addmv, linear, addmm, baddbmm."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from by_hand import costs_by_hand
from torch.utils.flop_counter import FlopCounterMode

from opmark.catalogue.operators.gemm import (  # fmt: skip
    ADDMM,
    ADDMV,
    BADDBMM,
    BATCHED_MATMUL,
    GEMV,
    GROUPED_GEMM,
    GROUPED_GEMM_MIXED,
    LINEAR,
    LINEAR_NO_BIAS,
    MATMUL,
)
from opmark.errors import InvalidParameter, WrongResult
from opmark.plugin import Implementation, Operator
from opmark.plugin.registry import operator as find_operator
from opmark.schema import EFFORTS, PHASES, Case, Cost, Settings, Task
from opmark.worker.verify.outputs import verify

SHAPE = {"M": 2, "N": 5, "K": 3}

COSTS = [
    # 10 results of 3 products and 3 sums; a has 6 elements, b 15, c 10. Back: twice the work, reads a, b and dc.
    (MATMUL, {**SHAPE, "dtype": "float32"}, Cost(60, 84, 40), Cost(120, 124, 84)),
    (MATMUL, {**SHAPE, "dtype": "bfloat16"}, Cost(60, 42, 20), Cost(120, 62, 42)),
    (BATCHED_MATMUL, {"B": 7, **SHAPE, "dtype": "float64"}, Cost(420, 1176, 560), Cost(840, 1736, 1176)),
    # A bias is one more sum for each result and 5 more elements; its gradient adds up the 10 elements of dc.
    (LINEAR, {**SHAPE, "dtype": "float32"}, Cost(70, 104, 40), Cost(130, 124, 104)),
    (LINEAR_NO_BIAS, {**SHAPE, "dtype": "float32"}, Cost(60, 84, 40), Cost(120, 124, 84)),
    # The matrix that is added has 10 elements, unless it is added 0 times; its gradient is dc, which is there already.
    (ADDMM, {**SHAPE, "dtype": "float32"}, Cost(70, 124, 40), Cost(120, 124, 84)),
    (ADDMM, {**SHAPE, "beta": 0.0, "dtype": "float32"}, Cost(70, 84, 40), Cost(120, 124, 84)),
    (BADDBMM, {"B": 7, **SHAPE, "dtype": "float64"}, Cost(490, 1736, 560), Cost(840, 1736, 1176)),
    # 2 results of 3 products and 3 sums; back: 6 products for a, 6 products and sums for x.
    (GEMV, {"M": 2, "K": 3}, Cost(12, 36, 8), Cost(18, 44, 36)),
    (ADDMV, {"M": 2, "K": 3}, Cost(14, 44, 8), Cost(18, 44, 36)),
    # Products with 2, 1 and 4 rows, each with a matrix b of its own.
    (
        GROUPED_GEMM,
        {"M": [2, 1, 4], "N": 5, "K": 3},
        Cost(210, 4 * (21 + 45), 140),
        Cost(420, 4 * (21 + 45) + 140, 4 * (21 + 45)),
    ),
    # Products of 2x3 by 3x5 and of 1x4 by 4x1.
    (GROUPED_GEMM_MIXED, {"M": [2, 1], "N": [5, 1], "K": [3, 4]}, Cost(68, 116, 44), Cost(136, 160, 116)),
]

test_cost_by_hand = costs_by_hand(COSTS)


@pytest.mark.parametrize("op", [MATMUL, BATCHED_MATMUL, GROUPED_GEMM, GROUPED_GEMM_MIXED, LINEAR, ADDMM, BADDBMM])
def test_products_of_matrices_have_tfloat32(op: Operator) -> None:
    assert op.complete({**op.preset("small"), "dtype": op.param("dtype").check("tfloat32")})["dtype"] == "tfloat32"


@pytest.mark.parametrize("op", [MATMUL, BATCHED_MATMUL, GROUPED_GEMM, GROUPED_GEMM_MIXED, LINEAR, ADDMM, BADDBMM])
@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn", "float8_e5m2"])
def test_products_of_8_bit_numbers_are_named_where_they_are(op: Operator, kind: str) -> None:
    with pytest.raises(InvalidParameter, match=f'got `"{kind}"`') as caught:
        op.param("dtype").check(kind)
    found = re.search(r"`opmark run (\w+) -p dtype=(\w+)`", caught.value.hint or "")
    assert found
    assert find_operator(found[1]).param("dtype").check(found[2]) == kind


def test_every_product_of_a_mixed_group_has_sizes_of_its_own() -> None:
    with pytest.raises(InvalidParameter, match=r"parameter `K` must have as many sizes as M=\[2, 1\]"):
        GROUPED_GEMM_MIXED.check_rules(GROUPED_GEMM_MIXED.complete({"M": [2, 1], "N": [5, 1], "K": [3]}))


@pytest.mark.parametrize(
    ("op", "given"),
    [
        (MATMUL, {"M": 3, "N": 5, "K": 7}),
        (MATMUL, {"M": 1, "N": 1, "K": 1}),
        (BATCHED_MATMUL, {"B": 2, "M": 3, "N": 5, "K": 7}),
        (LINEAR_NO_BIAS, {"M": 3, "N": 5, "K": 7}),
    ],
)
def test_torch_counts_as_many_operations(op: Operator, given: dict[str, Any], torch_cpu: Any) -> None:
    params = op.complete(given)
    inputs = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for("torch")
    forward = implementation.build(params, **inputs)
    backward, _ = torch_cpu.backward(forward, list(inputs.values()), 0)
    for launch, phase in ((forward, "forward"), (backward, "backward")):
        with FlopCounterMode(display=False) as counter:
            launch()
        assert op.phase_cost(params, phase).flops == counter.get_total_flops()


@pytest.mark.parametrize("batch", [(), (4,)])
def test_the_reference_is_that_of_torch(batch: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    a, b = generator.uniform(-1, 1, (*batch, 3, 7)), generator.uniform(-1, 1, (*batch, 7, 5))
    op = BATCHED_MATMUL if batch else MATMUL
    expected = torch.matmul(torch.from_numpy(a), torch.from_numpy(b))
    np.testing.assert_allclose(op.reference({}, a=a, b=b), expected, rtol=1e-13, atol=1e-14)


def test_the_inputs_have_the_shapes_of_the_formula() -> None:
    params = BATCHED_MATMUL.complete({"B": 7, **SHAPE})
    assert {name: spec.shape for name, spec in BATCHED_MATMUL.inputs(params).items()} == {
        "a": (7, 2, 3),
        "b": (7, 3, 5),
    }
    params = MATMUL.complete(SHAPE)
    assert {name: spec.shape for name, spec in MATMUL.inputs(params).items()} == {"a": (2, 3), "b": (3, 5)}


def test_a_longer_sum_may_be_further_off() -> None:
    short, long = (MATMUL.tolerance.bounds("float32", {**SHAPE, "K": k})[1] for k in (256, 4096))
    assert short < long <= 4 * short


def test_a_single_result_that_happens_to_be_near_zero_is_not_called_wrong(torch_cpu: Any) -> None:
    """Its rounding errors are those of the terms that cancelled, not of their small sum."""
    params = MATMUL.complete({"M": 1, "N": 1, "K": 4096})
    (implementation,) = MATMUL.implementations_for("torch")
    for seed in range(100):
        settings = Settings(1, "quick", EFFORTS["quick"], seed)
        task = Task(Case.of("matmul", params, "forward"), "torch-cpu", "torch", settings)
        assert verify(task, MATMUL, implementation, torch_cpu).checked == "full"


def test_a_group_of_equal_products_costs_what_a_batch_of_them_does() -> None:
    group = GROUPED_GEMM.complete({"M": [4, 4, 4], "N": 5, "K": 3})
    assert GROUPED_GEMM.cost(group) == BATCHED_MATMUL.cost(BATCHED_MATMUL.complete({"B": 3, "M": 4, "N": 5, "K": 3}))


def test_a_group_has_a_result_for_every_height() -> None:
    params = GROUPED_GEMM.complete({"M": [2, 1, 4], "N": 5, "K": 3})
    inputs = {name: np.ones(spec.shape) for name, spec in GROUPED_GEMM.inputs(params).items()}
    results = GROUPED_GEMM.reference(params, **inputs)
    assert [result.shape for result in results] == [(2, 5), (1, 5), (4, 5)]
    assert all((result == 3).all() for result in results)


def test_factors_scale_the_product_and_what_is_added() -> None:
    params = ADDMM.complete({"M": 1, "N": 1, "K": 2, "alpha": 10.0, "beta": 0.5})
    c, a, b = np.array([[4.0]]), np.array([[1.0, 2.0]]), np.array([[3.0], [5.0]])
    assert ADDMM.reference(params, c=c, a=a, b=b) == [[2 + 130]]


@pytest.mark.parametrize(
    ("alias", "op"),
    [
        ("gemm", MATMUL), ("mm", MATMUL), ("Dot", MATMUL), ("linalg_gemm2", MATMUL), ("BatchDot", BATCHED_MATMUL),
        ("batch_gemm", BATCHED_MATMUL), ("group_gemm", GROUPED_GEMM), ("FullyConnected", LINEAR), ("Dense", LINEAR),
        ("linalg_gemm", ADDMM), ("mv", GEMV),
    ],
)  # fmt: skip
def test_the_names_of_other_systems_are_found(alias: str, op: Operator) -> None:
    assert find_operator(alias) is op


IN_TF32 = (MATMUL, BATCHED_MATMUL, GROUPED_GEMM, LINEAR, LINEAR_NO_BIAS, ADDMM, BADDBMM)


@pytest.mark.parametrize("op", IN_TF32, ids=lambda op: op.name)
def test_products_in_tf32_have_the_tensors_and_the_cost_of_float32(op: Operator) -> None:
    rounded, exact = (op.complete({**op.preset("small"), "dtype": dtype}) for dtype in ("tfloat32", "float32"))
    assert op.inputs(rounded) == op.inputs(exact)
    assert op.result_dtype(rounded) == "float32"
    for phase in PHASES:
        assert op.phase_cost(rounded, phase) == op.phase_cost(exact, phase)
        assert op.why_no_phase(rounded, phase) is None


class _Rounding:
    """A backend that computes in tfloat32, as far as it says."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live, name)

    def compute_in(self, dtype: str) -> None:
        assert dtype == "tfloat32"


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("bits", "right"), [(10, True), (7, False)])
def test_the_tolerance_of_tf32_is_that_of_10_bits(bits: int, right: bool, phase: Any, torch_cpu: Any) -> None:
    """Factors cut off after 10 bits of the fraction, as matrix units do it, are fine; after 7 bits they are not."""
    mask = ~((1 << 23 - bits) - 1)

    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return cut(a) @ cut(b)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            a, b = ctx.saved_tensors
            return cut(gradient) @ cut(b).T, cut(a).T @ cut(gradient)

    def cut(tensor: Any) -> Any:
        return (tensor.detach().contiguous().view(torch.int32) & mask).view(torch.float32)

    params = MATMUL.complete({"M": 96, "N": 64, "K": 256, "dtype": "tfloat32"})
    implementation = Implementation("torch", lambda p, a, b: lambda: Cut.apply(a, b))
    task = Task(Case.of("matmul", params, phase), "torch-cuda", "torch", Settings(1, "quick", EFFORTS["quick"], 0))
    with nullcontext() if right else pytest.raises(WrongResult):
        verify(task, MATMUL, implementation, _Rounding(torch_cpu))
    if right:
        exact = Task(Case.of("matmul", {**params, "dtype": "float32"}, phase), "torch-cpu", "torch", task.settings)
        with pytest.raises(WrongResult):
            verify(exact, MATMUL, implementation, torch_cpu)
