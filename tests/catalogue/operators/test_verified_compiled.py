"""Verification finds right what torch.compile compiles; test_verified.py is about all else, and about wrong results."""

from __future__ import annotations

import pytest
from each_case import each_case
from right_ones import OPERATORS, check_found_right, right_ones
from verifier import Unchanged

from opmark.plugin import Operator

pytestmark = pytest.mark.frameworks

COMPILED = [op for op in OPERATORS if right_ones(op, compiled=True)]


@pytest.mark.parametrize("op", COMPILED, ids=lambda op: op.name)
def test_right_results_are_found_right(op: Operator, unchanged: Unchanged, request: pytest.FixtureRequest) -> None:
    unchanged.skip_known(op)
    verdicts = request.getfixturevalue("verifier").verdicts(op.name, compiled=True)
    with each_case() as case:
        for right in right_ones(op, compiled=True):
            with case(*right):
                check_found_right([found for found in verdicts if tuple(found["key"]) == right])
    unchanged.remember(op)
