"""einsum."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from by_hand import costs_by_hand, refused_by_name
from torch.utils.flop_counter import FlopCounterMode

from opmark.catalogue.operators.products import EINSUM, letters
from opmark.schema import Cost

COSTS = [
    # 2 x 3 x 5 x 11 scores, each a sum of 7 products.
    (EINSUM, {"sizes": [2, 3, 5, 7, 11]}, Cost(4620, 4 * (210 + 462), 4 * 330), Cost(9240, 4 * 1002, 4 * 672)),
    # Forwards no sum at all; backwards products are added up along the letter that either input has not.
    (EINSUM, {"equation": "bi-bj-bij", "sizes": [2, 3, 5]}, Cost(30, 64, 120), Cost(120, 184, 64)),
    # Backwards no sum for a: its gradient is that of the result, scaled.
    (EINSUM, {"equation": "bi-b-bi", "sizes": [3, 5]}, Cost(15, 72, 60), Cost(45, 132, 72)),
]
REFUSED = [
    (EINSUM, {"equation": "ij-jk-ik", "sizes": [2, 3]}, "sizes"),
    (EINSUM, {"equation": "bi-bi-b", "sizes": [2, 3, 4]}, "sizes"),
    (EINSUM, {"equation": "ij,jk->ik", "sizes": [2, 3, 4]}, "equation"),
    (EINSUM, {"equation": "ij-jk", "sizes": [2, 3, 4]}, "equation"),
    (EINSUM, {"equation": "ii-ij-j", "sizes": [2, 3]}, "equation"),
    (EINSUM, {"equation": "ij-jk-i", "sizes": [2, 3, 4]}, "equation"),
    (EINSUM, {"equation": "ij-jk-ikl", "sizes": [2, 3, 4, 5]}, "equation"),
    (EINSUM, {"equation": "", "sizes": [2]}, "equation"),
]

test_cost_by_hand = costs_by_hand(COSTS)

test_what_cannot_be_is_refused_by_name = refused_by_name(REFUSED)


def test_sizes_are_in_the_order_of_the_letters() -> None:
    params = EINSUM.complete({"equation": "ij-kj-ik", "sizes": [2, 3, 5]})
    assert {name: spec.shape for name, spec in EINSUM.inputs(params).items()} == {"a": (2, 3), "b": (5, 3)}


@pytest.mark.parametrize("equation", ["bhqd-bhkd-bhqk", "bsd-dhk-bshk", "bshk-hkd-bsd", "ij-jk-ik", "ijk-klj-il"])
def test_torch_counts_as_many_operations(equation: str, torch_cpu: Any) -> None:
    params = EINSUM.complete({"equation": equation, "sizes": [2, 3, 5, 7, 11][: len(letters(equation))]})
    inputs = {name: torch_cpu.tensor(spec, i) for i, (name, spec) in enumerate(EINSUM.inputs(params).items())}
    (implementation,) = EINSUM.implementations_for("torch")
    with FlopCounterMode(display=False) as counter:
        implementation.build(params, **inputs)()
    assert EINSUM.cost(params).flops == counter.get_total_flops()


def test_the_reference_is_the_sum_that_the_equation_says() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3)
    expected = [sum(a[i, j] * b[i, j] for i in range(2)) for j in range(3)]
    np.testing.assert_array_equal(EINSUM.reference({"equation": "ij-ij-j"}, a=a, b=b), expected)


def test_every_equation_that_the_parameter_names_is_one() -> None:
    named = set(re.findall(r"[a-z]+-[a-z]+-[a-z]+", EINSUM.param("equation").doc))
    assert {"bhqd-bhkd-bhqk", "bij-bjk-bik", "bi-bj-bij"} < named
    for equation in named:
        EINSUM.check_rules(EINSUM.complete({"equation": equation, "sizes": [2] * len(letters(equation))}))
