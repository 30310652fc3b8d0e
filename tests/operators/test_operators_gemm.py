"""matmul, batched_matmul."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from opmark.operators.gemm import BATCHED_MATMUL, MATMUL
from opmark.runner.check import verify
from opmark.schema import EFFORTS, Case, Cost, Operator, Settings, Task

SHAPE = {"M": 2, "N": 5, "K": 3}

COSTS = [
    # 10 results of 3 products and 3 sums; a has 6 elements, b 15, c 10. Back: twice the work, reads a, b and dc.
    (MATMUL, {**SHAPE, "dtype": "float32"}, Cost(60, 84, 40), Cost(120, 124, 84)),
    (MATMUL, {**SHAPE, "dtype": "bfloat16"}, Cost(60, 42, 20), Cost(120, 62, 42)),
    (BATCHED_MATMUL, {"B": 7, **SHAPE, "dtype": "float64"}, Cost(420, 1176, 560), Cost(840, 1736, 1176)),
]


@pytest.mark.parametrize(("op", "given", "forward", "backward"), COSTS)
def test_cost_by_hand(op: Operator, given: dict[str, Any], forward: Cost, backward: Cost) -> None:
    params = op.complete(given)
    assert op.phase_cost(params, "forward") == forward
    assert op.phase_cost(params, "backward") == backward


@pytest.mark.parametrize(
    ("op", "given"),
    [
        (MATMUL, {"M": 3, "N": 5, "K": 7}),
        (MATMUL, {"M": 1, "N": 1, "K": 1}),
        (BATCHED_MATMUL, {"B": 2, "M": 3, "N": 5, "K": 7}),
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
    """Its rounding errors are those of the terms that cancelled, not of what is left of them."""
    params = MATMUL.complete({"M": 1, "N": 1, "K": 4096})
    (implementation,) = MATMUL.implementations_for("torch")
    for seed in range(100):
        settings = Settings(1, "quick", EFFORTS["quick"], seed)
        task = Task(Case.of("matmul", params, "forward"), "torch-cpu", "torch", settings)
        assert verify(task, MATMUL, implementation, torch_cpu).checked == "full"
