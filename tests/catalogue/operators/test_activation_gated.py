"""glu, swiglu, geglu, reglu."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from opmark.catalogue.operators.activation import GATED_OPERATORS, GEGLU, GLU, REGLU, SWIGLU
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.schema import Cost

X = np.linspace(-3, 3, 24).reshape(3, 8)
FIRST, SECOND = torch.from_numpy(X).chunk(2, dim=-1)


@pytest.mark.parametrize(
    ("op", "flops", "backward_flops"), [(GLU, 4, 8), (SWIGLU, 4, 11), (GEGLU, 6, 12), (REGLU, 1, 2)]
)
def test_two_elements_are_read_for_one_that_is_written(op: Operator, flops: int, backward_flops: int) -> None:
    params = op.complete({"shape": [3, 8], "dtype": "float32"})
    assert op.phase_cost(params, "forward") == Cost(12 * flops, 96, 48)
    # Back: x and the gradient of 12 results in, the gradient of x out.
    assert op.phase_cost(params, "backward") == Cost(12 * backward_flops, 96 + 48, 96)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (GLU, FIRST * torch.sigmoid(SECOND)),
        (SWIGLU, functional.silu(FIRST) * SECOND),
        (GEGLU, functional.gelu(FIRST) * SECOND),
        (REGLU, torch.relu(FIRST) * SECOND),
    ],
)
def test_which_half_is_the_gate(op: Operator, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(op.reference({}, x=X), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("op", GATED_OPERATORS, ids=lambda op: op.name)
def test_a_row_that_has_no_halves_is_refused(op: Operator) -> None:
    op.check_rules(op.complete({"shape": [3, 6]}))
    with pytest.raises(InvalidParameter, match="parameter `shape` must have an even last axis"):
        op.check_rules(op.complete({"shape": [6, 3]}))
