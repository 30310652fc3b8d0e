"""Tests that the families share: tables of costs by hand, refused parameters, and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from opmark.errors import InvalidParameter
from opmark.plugin import Operator
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Cost


def costs_by_hand(rows: Sequence[Any]) -> Any:
    """Make a test from rows (operator, parameters, cost forward, cost backward)."""

    @pytest.mark.parametrize(("op", "given", "forward", "backward"), rows)
    def test_cost(op: Operator, given: dict[str, Any], forward: Cost | None, backward: Cost | None) -> None:
        params = op.complete(given)
        assert op.phase_cost(params, "forward") == forward
        assert op.phase_cost(params, "backward") == backward

    return test_cost


def refused_by_name(rows: Sequence[Any]) -> Any:
    """Make a test from rows (operator, parameters, the parameter to blame)."""

    @pytest.mark.parametrize(("op", "given", "blamed"), rows)
    def test_refused(op: Operator, given: dict[str, Any], blamed: str) -> None:
        with pytest.raises(InvalidParameter, match=f"parameter `{blamed}` must"):
            op.check_rules(op.complete(given))

    return test_refused


def names_found(rows: Sequence[Any]) -> Any:
    """Make a test from rows (name in another system, operator)."""

    @pytest.mark.parametrize(("alias", "op"), rows)
    def test_found(alias: str, op: Operator) -> None:
        assert find_operator(alias) is op

    return test_found
