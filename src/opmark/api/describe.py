from __future__ import annotations

from opmark.plugin import Operator
from opmark.plugin.registry import operator as find_operator


def describe(op: str) -> Operator:
    return find_operator(op)
