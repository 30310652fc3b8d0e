"""The gradient of embedding_bag and the optimizer's step in one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.embedding_update import OPERATORS
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

SGD, ADAGRAD = OPERATORS
SIZES: dict[str, Any] = {"rows": 10, "dim": 4, "bags": 3, "pooling": 2}
every_operator = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)


def test_cost_by_hand() -> None:
    # 6 lookups touch 10 (1 - 0.9^6) = 4.69 of 10 rows of 4 floats: in and out; 3 gradients, 6 indices and 3 offsets in.
    # 6 rows are added up, and 5 make a step of 2 operations an element.
    assert SGD.cost(SGD.complete(SIZES)) == Cost(24 + 40, 80 + 48 + 72, 80)
    # And a state of 4 bytes a row; 3 operations more an element, 4 a row.
    assert ADAGRAD.cost(ADAGRAD.complete(SIZES)) == Cost(64 + 60 + 20, 200 + 20, 80 + 20)


def test_no_more_rows_are_touched_than_there_are() -> None:
    assert SGD.cost(SGD.complete({**SIZES, "rows": 2})).bytes_written == 2 * 16


@every_operator
def test_the_state_of_16_bit_rows_has_32_bits(op: Operator) -> None:
    specs = op.inputs(op.complete({**SIZES, "dtype": "bfloat16"}))
    assert specs["state"].dtype == "float32" if "state" in specs else op is SGD


def test_the_step_is_that_of_autograd_and_sgd() -> None:
    params = SGD.complete({**SIZES, "lr": 0.5})
    generator = np.random.default_rng(0)
    weight, grad = torch.tensor(generator.random((10, 4)), requires_grad=True), generator.random((3, 4))
    indices, offsets = torch.tensor([1, 1, 1, 4, 9, 4]), torch.tensor([0, 2, 4])
    start = weight.detach().numpy().copy()
    torch.nn.functional.embedding_bag(indices, weight, offsets, mode="sum").backward(torch.from_numpy(grad))
    torch.optim.SGD([weight], lr=0.5).step()
    found = SGD.reference(params, weight=start, grad=grad, indices=indices.numpy(), offsets=offsets.numpy())
    np.testing.assert_allclose(found, weight.detach(), rtol=1e-12)


def test_a_row_that_was_looked_up_twice_makes_one_step_with_both_gradients() -> None:
    params = ADAGRAD.complete({"rows": 2, "dim": 2, "bags": 2, "pooling": 1, "lr": 1.0, "eps": 0.0})
    arrays: dict[str, Any] = {
        "weight": np.zeros((2, 2)), "grad": np.array([[1.0, 1.0], [2.0, 2.0]]), "indices": np.array([1, 1]),
        "offsets": np.array([0, 1]), "state": np.array([5.0, 7.0]),
    }  # fmt: skip
    weight, state = ADAGRAD.reference(params, **arrays)
    assert state.tolist() == [5, 7 + 9]  # the mean square of 3 and 3
    assert weight.tolist() == [[0, 0], [-0.75, -0.75]]


@every_operator
def test_rows_that_were_not_looked_up_stay(op: Operator, torch_cpu: Any) -> None:
    params = op.complete(SIZES)
    for implementation in op.implementations_for("torch"):
        inputs = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(op.inputs(params).items())}
        others = [row for row in range(10) if row not in inputs["indices"]]
        before = {name: inputs[name][others].clone() for name in op.mutates}
        implementation.build(params, **inputs)()
        assert all(torch.equal(inputs[name][others], before[name]) for name in op.mutates)


@every_operator
def test_gains_are_told_against_the_dense_one(op: Operator) -> None:
    assert [i.label for i in op.implementations_for("torch")] == ["dense", "sparse"]


@pytest.mark.parametrize(("alias", "op"), [("EXACT_SGD", SGD), ("EXACT_ROWWISE_ADAGRAD", ADAGRAD)])
def test_fbgemms_optimizers_are_found_by_their_names(alias: str, op: Operator) -> None:
    assert operator(alias).name == op.name
