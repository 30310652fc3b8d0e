"""Diagonals and triangles."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import costs_by_hand, names_found, refused_by_name

from opmark.catalogue.operators.triangle import (  # fmt: skip
    DIAG,
    DIAG_EMBED,
    EXTRACT_TRIANGLE,
    MAKE_TRIANGLE,
    SUMLOGDIAG,
    TRACE,
    TRIL,
    TRIU,
    triangle_elements,
)
from opmark.schema import Cost

COSTS = [
    # 5 elements of 35 are read; backwards all others become zero.
    (DIAG, {"shape": [5, 7]}, Cost(0, 20, 20), Cost(0, 20, 140)),
    (DIAG_EMBED, {"shape": [2, 3], "k": 1}, Cost(0, 24, 128), None),
    (TRIL, {"shape": [3, 4]}, Cost(0, 24, 48), Cost(0, 24, 48)),
    (EXTRACT_TRIANGLE, {"batch": 2, "n": 3}, Cost(0, 48, 48), Cost(0, 48, 72)),
    (MAKE_TRIANGLE, {"batch": 2, "n": 3}, Cost(0, 48, 72), Cost(0, 48, 48)),
    (TRACE, {"n": 5}, Cost(5, 20, 4), Cost(0, 4, 100)),
    # A logarithm and a sum for each of 2 x 5; backwards a quotient.
    (SUMLOGDIAG, {"batch": 2, "n": 5}, Cost(20, 40, 8), Cost(10, 48, 200)),
]
REFUSED = [
    (DIAG, {"shape": [5]}, "shape"),
    (DIAG, {"shape": [5, 7], "k": 7}, "k"),
    (TRIU, {"shape": [5]}, "shape"),
    (TRIL, {"shape": [5]}, "shape"),
]
ALIASES = [
    ("linalg_extractdiag", DIAG), ("linalg_makediag", DIAG_EMBED), ("linalg_extracttrian", EXTRACT_TRIANGLE),
    ("linalg_maketrian", MAKE_TRIANGLE), ("linalg_sumlogdiag", SUMLOGDIAG),
]  # fmt: skip

test_cost_by_hand = costs_by_hand(COSTS)

test_what_cannot_be_is_refused_by_name = refused_by_name(REFUSED)

test_the_names_of_other_systems_are_found = names_found(ALIASES)


@pytest.mark.parametrize("k", range(-6, 9))
@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (2, 4, 4)])
@pytest.mark.parametrize("upper", [True, False])
def test_as_many_elements_are_read_as_are_kept(shape: tuple[int, ...], k: int, upper: bool) -> None:
    triangle = (np.triu if upper else np.tril)(np.ones(shape), k)
    assert triangle_elements({"shape": list(shape), "k": k}, upper=upper) == triangle.sum()


@pytest.mark.parametrize("upper", [True, False])
def test_a_triangle_that_is_taken_out_and_put_back_is_the_triangle(upper: bool) -> None:
    params = {"batch": 2, "n": 4, "upper": upper}
    x = np.arange(32.0).reshape(2, 4, 4)
    found = MAKE_TRIANGLE.reference(params, x=EXTRACT_TRIANGLE.reference(params, x=x))
    np.testing.assert_array_equal(found, np.triu(x) if upper else np.tril(x))
