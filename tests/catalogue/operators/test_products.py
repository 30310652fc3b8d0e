"""tensordot, khatri_rao, kron, bilinear, multi_dot."""

from __future__ import annotations

import numpy as np
from by_hand import costs_by_hand, refused_by_name

from opmark.catalogue.operators.products import BILINEAR, KHATRI_RAO, KRON, MULTI_DOT, TENSORDOT
from opmark.schema import Cost

COSTS = [
    # 2 x 3 results, each a sum of 4 x 5 products; a has 40 elements, b 60.
    (TENSORDOT, {"M": [2], "N": [3], "K": [4, 5]}, Cost(240, 400, 24), Cost(480, 424, 400)),
    # 2 x 3 rows of 5 columns.
    (KHATRI_RAO, {"M": 2, "L": 3, "N": 5}, Cost(30, 100, 120), Cost(120, 220, 100)),
    (KRON, {"M": 2, "N": 3, "P": 5, "Q": 7}, Cost(210, 164, 840), Cost(840, 1004, 164)),
    # 2 x 3 results: 4 x 5 products and sums with x, 5 with y, a bias.
    (BILINEAR, {"B": 2, "O": 3, "I": 4, "J": 5}, Cost(306, 4 * 81, 24), Cost(6 * 134, 4 * 87, 4 * 81)),
    # (a b) c takes 2 (2 3 4 + 2 4 5) operations, a (b c) 2 (3 4 5 + 2 3 5).
    (MULTI_DOT, {"sizes": [2, 3, 4, 5]}, Cost(128, 4 * 38, 40), Cost(256, 4 * 48, 4 * 38)),
    (MULTI_DOT, {"sizes": [5, 4, 3, 2]}, Cost(128, 4 * 38, 40), Cost(256, 4 * 48, 4 * 38)),
]
REFUSED = [(MULTI_DOT, {"sizes": [2, 3, 4]}, "sizes"), (MULTI_DOT, {"sizes": [2, 3, 4, 5, 6]}, "sizes")]

test_cost_by_hand = costs_by_hand(COSTS)

test_what_cannot_be_is_refused_by_name = refused_by_name(REFUSED)


def test_a_column_of_khatri_and_rao_is_the_kronecker_product_of_the_columns() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random((4, 3)), generator.random((2, 3))
    found = KHATRI_RAO.reference({"N": 3}, a=a, b=b)
    for n in range(3):
        np.testing.assert_allclose(found[:, n], np.kron(a[:, n], b[:, n]))


def test_a_bilinear_form_by_hand() -> None:
    x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]])
    weight, bias = np.array([[[1.0, 0.0], [0.0, 10.0]]]), np.array([0.5])
    assert BILINEAR.reference({}, x=x, y=y, weight=weight, bias=bias) == [[1 * 3 + 2 * 10 * 5 + 0.5]]
