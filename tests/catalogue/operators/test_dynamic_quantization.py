"""Operators that round rows to 8 bits with a scale of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opmark.catalogue.operators.dynamic_quantization import ADD_RMS_NORM, HEAD_RMS_NORM, OPERATORS, SCALE, SWIGLU
from opmark.errors import InvalidParameter, WrongResult
from opmark.plugin import Operator
from opmark.schema import Cost
from opmark.worker.verify.outputs import check_outputs

PLAIN: dict[str, Any] = {"num_tokens": 3, "hidden_size": 8}
HEADS: dict[str, Any] = {"num_tokens": 3, "heads": 2, "head_dim": 4}
every_operator = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)


def _given(op: Operator) -> dict[str, Any]:
    return HEADS if op is HEAD_RMS_NORM else PLAIN


# 24 elements in 3 rows: 24 bytes and 3 scales out.
COSTS = [
    (SCALE, {}, Cost(2 * 24, 2 * 24 + 4 * 8, 24 + 12)),
    (ADD_RMS_NORM, {}, Cost(7 * 24, 2 * (48 + 8) + 4 * 8, 24 + 12)),
    (ADD_RMS_NORM, {"add_residual": False}, Cost(6 * 24, 2 * (24 + 8) + 4 * 8, 24 + 12)),
    (ADD_RMS_NORM, {"output_mode": "res"}, Cost(7 * 24, 2 * (48 + 8) + 4 * 8, 24 + 12 + 48)),
    (ADD_RMS_NORM, {"output_mode": "both"}, Cost(7 * 24, 2 * (48 + 8) + 4 * 8, 24 + 12 + 2 * 48)),
    (HEAD_RMS_NORM, {}, Cost(6 * 24, 2 * (24 + 4) + 4 * 8, 24 + 12)),
    (SWIGLU, {}, Cost(6 * 24, 2 * 48 + 4 * 8, 24 + 12)),
]


@pytest.mark.parametrize(("op", "change", "cost"), COSTS)
def test_cost_by_hand(op: Operator, change: dict[str, Any], cost: Cost) -> None:
    assert op.cost(op.complete({**_given(op), **change, "dtype": "bfloat16"})) == cost


def _outputs(op: Operator, params: dict[str, Any], live: Any, framework: str) -> tuple[Any, dict[str, Any]]:
    tensors = {name: live.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
    (implementation,) = op.implementations_for(framework)
    outputs = implementation.build(params, **tensors)()
    arrays = {name: live.to_numpy(tensor) for name, tensor in tensors.items()}
    return tuple(np.array(live.to_numpy(output)) for output in outputs), arrays


@every_operator
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_rows_differ_and_the_largest_of_each_is_127(op: Operator, framework: str, request: Any) -> None:
    """The input is rounded, not the factors: constant rows are a known mistake."""
    live = request.getfixturevalue(f"{framework}_cpu")
    (numbers, scale), _ = _outputs(op, op.complete(_given(op)), live, framework)
    assert (np.abs(numbers.astype(int)).max(axis=-1) == 127).all()
    assert all(len(set(row)) > 2 for row in numbers.tolist())
    assert len(set(scale.tolist())) == 3


@every_operator
def test_a_number_that_is_one_off_is_wrong(op: Operator, numpy_cpu: Any) -> None:
    params = op.complete(_given(op))
    outputs, arrays = _outputs(op, params, numpy_cpu, "numpy")
    check_outputs(op, params, outputs, arrays)
    small = np.unravel_index(np.abs(outputs[0].astype(int)).argmin(), outputs[0].shape)
    outputs[0][small] += 1
    with pytest.raises(WrongResult, match="output 0"):
        check_outputs(op, params, outputs, arrays)


LARGEST = {"float8_e4m3fn": 448, "float8_e5m2": 57344}


@every_operator
@pytest.mark.parametrize("kind", LARGEST)
def test_rows_of_float8_reach_the_largest_number_and_are_checked_to_half_a_step(
    op: Operator, kind: str, torch_cpu: Any
) -> None:
    params = op.complete({**_given(op), "quantized_dtype": kind})
    outputs, arrays = _outputs(op, params, torch_cpu, "torch")
    numbers, scale = outputs
    assert (np.abs(numbers).max(axis=-1) == LARGEST[kind]).all()
    check_outputs(op, params, outputs, arrays)
    with pytest.raises(WrongResult, match="output 1"):
        check_outputs(op, params, (numbers, scale * 1.01), arrays)
    at = np.unravel_index(np.abs(numbers).argmax(), numbers.shape)
    numbers[at] *= 0.75  # at least a step from the nearest number
    with pytest.raises(WrongResult, match="output 0"):
        check_outputs(op, params, outputs, arrays)


@every_operator
def test_stored_cases_of_before_there_was_a_choice_keep_their_parameters(op: Operator) -> None:
    stored = op.complete(_given(op))
    assert "quantized_dtype" not in stored
    assert op.complete({**stored, "quantized_dtype": "int8"}) == stored
    assert (op.result_dtype(stored), op.cost(stored)) == ("int8", op.cost({**stored, "quantized_dtype": "float8_e5m2"}))


@every_operator
def test_a_scale_that_is_a_hundredth_off_is_wrong(op: Operator, numpy_cpu: Any) -> None:
    params = op.complete(_given(op))
    (numbers, scale), arrays = _outputs(op, params, numpy_cpu, "numpy")
    with pytest.raises(WrongResult, match="output 1"):
        check_outputs(op, params, (numbers, scale * 1.01), arrays)


@every_operator
def test_ranks_share_the_tokens(op: Operator) -> None:
    shared = op.complete({**_given(op), "num_tokens": 7, "sp_size": 2})
    assert op.cost(shared) == op.cost(op.complete(_given(op)))
    with pytest.raises(InvalidParameter, match="parameter `sp_size`"):
        op.check_rules(op.complete({**_given(op), "num_tokens": 1, "sp_size": 2}))


def test_there_is_no_sum_to_put_out_without_a_residual() -> None:
    for mode in ("res", "both"):
        with pytest.raises(InvalidParameter, match=f"parameter `output_mode` must not be {mode} without a residual"):
            ADD_RMS_NORM.check_rules(ADD_RMS_NORM.complete({**PLAIN, "add_residual": False, "output_mode": mode}))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_all_four_outputs(framework: str, request: Any) -> None:
    params = ADD_RMS_NORM.complete({**PLAIN, "output_mode": "both"})
    live = request.getfixturevalue(f"{framework}_cpu")
    outputs, arrays = _outputs(ADD_RMS_NORM, params, live, framework)
    numbers, scale, added, normed = outputs
    np.testing.assert_allclose(added, arrays["x"] + arrays["residual"], rtol=1e-6)
    np.testing.assert_allclose(numbers * scale[:, None], normed * arrays["smooth"], atol=0.51 * scale.max())
