"""Tensors that are made and not computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opmark.catalogue.operators.creation import OPERATORS, fits
from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

BY_NAME = {op.name: op for op in OPERATORS}


def _made(name: str, framework: str, **given: Any) -> Any:
    op = BY_NAME[name]
    params = op.complete(given)
    op.check_rules(params)
    return np.asarray(op.implementations_for(framework)[0].build(params)())


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_nothing_is_read_not_even_what_tells_the_shape(op: Operator) -> None:
    assert op.cost(op.complete(op.preset("small"))).bytes_read == 0


@pytest.mark.parametrize(
    ("name", "given", "cost"),
    [
        ("zeros", {"shape": [3, 4], "dtype": "float16"}, Cost(0, 0, 24)),
        ("full_like", {"shape": [3, 4]}, Cost(0, 0, 48)),
        ("fill", {"shape": [3, 4], "dtype": "uint8"}, Cost(0, 0, 12)),
        ("eye", {"rows": 3, "columns": 5}, Cost(0, 0, 60)),
        ("arange", {"elements": 7, "dtype": "int64"}, Cost(14, 0, 56)),  # a product and a sum each
        ("logspace", {"elements": 7}, Cost(21, 0, 28)),
    ],
)
def test_cost_by_hand(name: str, given: dict[str, Any], cost: Cost) -> None:
    assert BY_NAME[name].cost(BY_NAME[name].complete(given)) == cost


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("step", [1.0, 0.1, -0.3, 1e-3])
@pytest.mark.parametrize("elements", [1, 10, 997])
def test_a_sequence_has_as_many_elements_as_asked_for(framework: str, step: float, elements: int) -> None:
    made = _made("arange", framework, elements=elements, step=step, start=2.0)
    np.testing.assert_allclose(made, 2 + step * np.arange(elements), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_whole_numbers_can_count_down(framework: str) -> None:
    assert _made("arange", framework, elements=4, start=5.0, step=-2.0, dtype="int16").tolist() == [5, 3, 1, -1]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize(("rows", "columns"), [(2, 5), (5, 2), (3, 3)])
def test_ones_lie_on_the_diagonal_of_any_matrix(framework: str, rows: int, columns: int) -> None:
    np.testing.assert_array_equal(_made("eye", framework, rows=rows, columns=columns), np.eye(rows, columns))


def test_filling_changes_the_tensor_itself() -> None:
    op = BY_NAME["fill"]
    for x in (np.ones(3, np.float32), torch.ones(3)):
        framework = "numpy" if isinstance(x, np.ndarray) else "torch"
        made = op.implementations_for(framework)[0].build(op.complete({"shape": [3], "value": 7.0}), x=x)()
        assert made is x
        assert x.tolist() == [7.0, 7.0, 7.0]
    assert op.mutates == ("x",)


@pytest.mark.parametrize(
    ("name", "given", "blamed"),
    [
        ("full", {"shape": [2], "dtype": "uint8", "value": -1.0}, "value"),
        ("full", {"shape": [2], "dtype": "int8", "value": 128.0}, "value"),
        ("full", {"shape": [2], "dtype": "int32", "value": 0.5}, "value"),
        ("fill", {"shape": [2], "dtype": "float16", "value": 70000.0}, "value"),
        ("arange", {"elements": 3, "step": 0.0}, "step"),
        ("arange", {"elements": 3, "step": 0.5, "dtype": "int32"}, "step"),
        ("arange", {"elements": 3, "start": 0.5, "dtype": "int32"}, "start"),
        ("arange", {"elements": 40000, "dtype": "int16"}, "elements"),
        ("linspace", {"elements": 3, "stop": 1e5, "dtype": "float16"}, "stop"),
        ("logspace", {"elements": 3, "stop": 5.0, "dtype": "float16"}, "stop"),
        ("logspace", {"elements": 3, "start": 400.0, "dtype": "float64"}, "start"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_refused(name: str, given: dict[str, Any], blamed: str) -> None:
    op = BY_NAME[name]
    with pytest.raises(InvalidParameter, match=f"parameter `{blamed}` must"):
        op.check_rules(op.complete(given))


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [("int8", -128, 127), ("uint8", 0, 255), ("int16", -32768, 32767), ("float16", -65504, 65504)],
)
def test_a_type_holds_what_numpy_says(dtype: str, least: float, most: float) -> None:
    assert fits(dtype, least)
    assert fits(dtype, most)
    assert not fits(dtype, least - 1)
    assert not fits(dtype, most + 1)


@pytest.mark.parametrize(
    ("alias", "name"),
    [("Zeros", "zeros"), ("OnesLike", "ones_like"), ("Arange", "arange"), ("reset_arrays", "fill"), ("fill_", "fill")],
)
def test_names_of_other_systems_are_known(alias: str, name: str) -> None:
    assert operator(alias).name == name
