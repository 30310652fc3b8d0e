"""quantize and dequantize."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.quantization import DEQUANTIZE, QUANTIZATION_OPERATORS, QUANTIZE
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

X = np.array([[-2.0, -0.5, 0.0], [0.26, 0.74, 2.0]], np.float32)
SCALE = np.array([0.01, 0.02, 0.04], np.float32)
GIVEN: dict[str, Any] = {"shape": [2, 3]}


def _run(op: Operator, params: dict[str, Any], *tensors: Any) -> Any:
    (implementation,) = op.implementations_for("torch")
    return implementation.build(params, *map(torch.from_numpy, tensors))().numpy()


@pytest.mark.parametrize("zero", [0, 7, -128])
def test_there_and_back_is_what_torch_has_for_training(zero: int) -> None:
    params = QUANTIZE.complete({**GIVEN, "zero_point": zero})
    x, scale, zeros = torch.from_numpy(X), torch.from_numpy(SCALE), torch.full((3,), zero, dtype=torch.int32)
    expected = torch.fake_quantize_per_channel_affine(x, scale, zeros, 1, -128, 127)
    back = _run(DEQUANTIZE, params, _run(QUANTIZE, params, X, SCALE), SCALE)
    np.testing.assert_allclose(back, expected, rtol=1e-6)


def test_what_does_not_fit_is_cut_off() -> None:
    numbers = _run(QUANTIZE, QUANTIZE.complete(GIVEN), X, SCALE)
    assert (numbers[0, 0], numbers[1, 2]) == (-128, 50)
    assert _run(QUANTIZE, QUANTIZE.complete({**GIVEN, "zero_point": 100}), X, SCALE)[1, 2] == 127


@pytest.mark.parametrize("op", QUANTIZATION_OPERATORS, ids=lambda op: op.name)
def test_a_case_of_int8_is_the_stored_one_of_0_8(op: Operator) -> None:
    stored = {**GIVEN, "per": "channel", "zero_point": 3, "dtype": "float32"}
    assert op.complete({**stored, "quantized_dtype": "int8"}) == stored
    op.check_rules(stored)
    assert op.cost(stored) == op.cost({**stored, "quantized_dtype": "int8"})


COSTS = [
    (QUANTIZE, {}, Cost(6, 12 + 12, 6)),
    (QUANTIZE, {"per": "tensor", "zero_point": 1}, Cost(12, 12 + 4, 6)),
    (DEQUANTIZE, {}, Cost(6, 6 + 12, 12)),
    (DEQUANTIZE, {"per": "tensor", "zero_point": 1}, Cost(12, 6 + 4, 12)),
]


@pytest.mark.parametrize(("op", "change", "cost"), COSTS)
def test_cost_by_hand(op: Operator, change: dict[str, Any], cost: Cost) -> None:
    assert op.cost(op.complete({**GIVEN, **change, "dtype": "float16"})) == cost


@pytest.mark.parametrize("op", QUANTIZATION_OPERATORS, ids=lambda op: op.name)
@pytest.mark.parametrize("zero", [-129, 128])
def test_a_zero_that_has_no_number_is_refused(op: Operator, zero: int) -> None:
    with pytest.raises(InvalidParameter, match="parameter `zero_point` must be a number of 8 bits"):
        op.check_rules(op.complete({**GIVEN, "zero_point": zero}))


@pytest.mark.parametrize(("name", "op"), [("quantize_per_tensor", QUANTIZE), ("DequantizeLinear", DEQUANTIZE)])
def test_names_of_other_systems_are_found(name: str, op: Operator) -> None:
    assert operator(name) is op


@pytest.mark.parametrize("op", QUANTIZATION_OPERATORS, ids=lambda op: op.name)
def test_8_bit_floats_have_no_zero_point(op: Operator) -> None:
    with pytest.raises(InvalidParameter, match="parameter `zero_point` must be 0 for float8_e4m3fn"):
        op.check_rules(op.complete({**GIVEN, "zero_point": 1, "quantized_dtype": "float8_e4m3fn"}))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_either_neighbour_of_a_number_is_accepted_and_no_other(kind: str) -> None:
    """Rounding to nearest is what torch's cast does; the next number after that is wrong."""
    params = QUANTIZE.complete({"shape": [1000], "per": "tensor", "quantized_dtype": kind})
    x, scale = np.random.default_rng(0).uniform(-1, 1, 1000), np.array([0.009])
    exact = QUANTIZE.reference(params, x=x, scale=scale)
    bits = torch.from_numpy(exact).float().to(getattr(torch, kind)).view(torch.uint8)
    assert QUANTIZE.observe is not None
    for moved in (0, 1):
        found = (bits + moved).view(getattr(torch, kind)).double().numpy()
        (seen,) = QUANTIZE.observe(params, found, x=x, scale=scale)
        assert np.mean(seen == exact) == (1.0 if moved == 0 else pytest.approx(0.0, abs=0.03))
