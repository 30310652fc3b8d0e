"""Products of 8-bit numbers, counted as torch counts them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from opmark.catalogue.operators._quantization import FP8, Exact8, multiply
from opmark.catalogue.operators.quantization import (
    QUANT_BATCHED_MATMUL,
    QUANT_GEMM_OPERATORS,
    QUANT_GROUP_GEMM_REDUCE_SUM,
    QUANT_GROUPED_GEMM,
    QUANT_MATMUL,
)
from opmark.errors import InvalidParameter, Unsupported
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost
from opmark.schema.tensor import FLOATS8

SIZES: dict[str, Any] = {"num_tokens": 6, "sp_size": 2, "hidden_size": 16, "new_hidden_size": 5}

COSTS = [
    # 3 tokens: 48 + 80 bytes of operands, 3 + 5 scales.
    (QUANT_MATMUL, {}, Cost(2 * 3 * 16 * 5, 48 + 80 + 4 * 8, 2 * 15)),
    (QUANT_MATMUL, {"has_bias": True}, Cost(2 * 3 * 16 * 5, 48 + 80 + 4 * 8 + 4 * 5, 2 * 15)),
    # Two groups of the same; the sum is written once.
    (QUANT_GROUP_GEMM_REDUCE_SUM, {}, Cost(2 * 2 * 3 * 16 * 5, 2 * (48 + 80 + 4 * 8), 2 * 15)),
    # Two products of the same; products of 1 and 3 rows.
    (QUANT_BATCHED_MATMUL, {}, Cost(2 * 2 * 3 * 16 * 5, 2 * (48 + 80 + 4 * 8), 2 * 30)),
    (QUANT_GROUPED_GEMM, {}, Cost(2 * 4 * 16 * 5, 64 + 160 + 4 * (4 + 10), 2 * 20)),
]
GIVEN = {
    "quant_batched_matmul": {"B": 2, "M": 3, "N": 5, "K": 16},
    "quant_grouped_gemm": {"M": [1, 3], "N": 5, "K": 16},
}
WITH_TOKENS = (QUANT_MATMUL, QUANT_GROUP_GEMM_REDUCE_SUM)


@pytest.mark.parametrize(("op", "change", "cost"), COSTS)
@pytest.mark.parametrize("dtype", ["int8", *FLOATS8])
def test_cost_by_hand(op: Operator, change: dict[str, Any], cost: Cost, dtype: str) -> None:
    assert (
        op.cost(op.complete({**GIVEN.get(op.name, SIZES), **change, "dtype": dtype, "out_dtype": "bfloat16"})) == cost
    )


def _launch(op: Operator, params: dict[str, Any], live: Any) -> Any:
    tensors = {name: live.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for("torch")
    return implementation.build(params, **tensors)


@pytest.mark.parametrize("op", QUANT_GEMM_OPERATORS, ids=lambda op: op.name)
def test_torch_counts_as_many_operations(op: Operator, torch_cpu: Any) -> None:
    params = op.complete({**GIVEN.get(op.name, SIZES), "dtype": FP8})
    launch = _launch(op, params, torch_cpu)
    with FlopCounterMode(display=False) as counter:
        launch()
    assert op.cost(params).flops == counter.get_total_flops()


def test_operands_are_neither_zero_nor_of_one_sign(torch_cpu: Any) -> None:
    for spec in QUANT_MATMUL.inputs(QUANT_MATMUL.complete(QUANT_MATMUL.preset("small"))).values():
        if spec.dtype == "int8":
            values = torch_cpu.tensor(spec, 0).float()
            assert (float(values.min()), float(values.max())) == (-127, 127)
            assert abs(float(values.mean())) < 3


def test_a_group_is_a_product_of_its_own(torch_cpu: Any) -> None:
    params = QUANT_GROUP_GEMM_REDUCE_SUM.complete({**SIZES, "out_dtype": "float32"})
    specs = QUANT_GROUP_GEMM_REDUCE_SUM.inputs(params)
    tensors = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(specs.items())}
    x, xs, w, ws = (tensors[name].double() for name in ("x", "x_scale", "weight", "w_scale"))
    expected = sum((x[i] * xs[i, :, None]) @ (w[i] * ws[i, :, None]).T for i in range(2))
    (implementation,) = QUANT_GROUP_GEMM_REDUCE_SUM.implementations_for("torch")
    torch.testing.assert_close(implementation.build(params, **tensors)().double(), expected, rtol=1e-5, atol=1e-3)


def test_where_a_device_has_no_such_product_it_says_why(monkeypatch: pytest.MonkeyPatch, torch_cpu: Any) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("torch._scaled_mm is only supported on newer devices\nand a long trace")

    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    with pytest.raises(Unsupported, match=r"_scaled_mm does not multiply .* only supported on newer devices$"):
        _launch(QUANT_MATMUL, QUANT_MATMUL.complete({**SIZES, "dtype": FP8}), torch_cpu)


def test_sizes_that_a_device_cannot_multiply_are_named() -> None:
    """This uses a fake device, as only shapes matter."""
    x, weight = torch.empty(4, 12, dtype=torch.int8, device="meta"), torch.empty(8, 12, dtype=torch.int8, device="meta")
    with pytest.raises(Unsupported, match="multiples of 8, got K=12 and N=8"):
        multiply({"dtype": "int8", "out_dtype": "float32"}, x, weight)


def test_few_rows_are_padded_where_a_device_wants_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []

    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        rows.append(len(x))
        return torch.empty(len(x), weight.shape[1], dtype=torch.int32, device="meta")

    monkeypatch.setattr(torch, "_int_mm", product)
    weight = torch.empty(8, 16, dtype=torch.int8, device="meta")
    for count in (1, 16, 17, 40):
        x = torch.empty(count, 16, dtype=torch.int8, device="meta")
        scales = torch.empty(count, device="meta"), torch.empty(8, device="meta")
        result = multiply({"dtype": "int8", "out_dtype": "float32"}, x, weight)(x, scales[0], weight, scales[1])
        assert result.shape == (count, 8)
    assert rows == [24, 24, 17, 40]


def test_8_bit_inputs_do_not_loosen_what_is_allowed() -> None:
    assert Exact8().bounds(FP8, {}) == Exact8().bounds("float16", {})
    assert Exact8().bounds("float32", {})[0] == pytest.approx(1e-5)


@pytest.mark.parametrize("op", WITH_TOKENS, ids=lambda op: op.name)
def test_fewer_tokens_than_ranks_are_refused(op: Operator) -> None:
    with pytest.raises(InvalidParameter, match="parameter `sp_size` must be at most num_tokens=1"):
        op.check_rules(op.complete({**SIZES, "num_tokens": 1}))


def test_names_of_other_systems_are_found() -> None:
    assert operator("moe_quant_matmul") is QUANT_MATMUL


@pytest.mark.parametrize("op", QUANT_GEMM_OPERATORS, ids=lambda op: op.name)
def test_weights_for_float8_e5m2_are_of_the_type_that_matrix_units_multiply_it_with(op: Operator) -> None:
    specs = op.inputs(op.complete({**GIVEN.get(op.name, SIZES), "dtype": "float8_e5m2"}))
    types = {name.rstrip("0123456789"): spec.dtype for name, spec in specs.items()}
    assert (types["x"], types["weight"]) == ("float8_e5m2", FP8)
