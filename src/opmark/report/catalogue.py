"""The catalogue as a page: every operator by category, with the names that other systems have for it."""

from __future__ import annotations

from collections.abc import Iterable

from opmark.schema import Operator


def catalogue_page(operators: Iterable[Operator]) -> str:
    by_category: dict[str, list[Operator]] = {}
    for operator in operators:
        by_category.setdefault(operator.category, []).append(operator)
    sections = [_section(category, by_category[category]) for category in sorted(by_category)]
    return "\n".join([_HEAD.format(count=sum(map(len, by_category.values()))), *sections])


_HEAD = """# Operators

{count} operators. Names of other systems are in the last column: `opmark describe Convolution` finds them, and so does
`opmark run Convolution`.
`opmark describe NAME` tells parameters, sizes, rules, cost and tolerances. Written by `opmark list ops --markdown`.
"""


def _section(category: str, operators: list[Operator]) -> str:
    rows = [_row(operator) for operator in sorted(operators, key=lambda op: op.name)]
    head = [f"## {category}", "", "| operator | what it computes | phases | also called |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _row(operator: Operator) -> str:
    phases = "forward, backward" if operator.gradients else "forward"
    marks = [mark for mark, there in (("view", operator.view), ("in place", bool(operator.mutates))) if there]
    summary = operator.summary.replace("|", "\\|")
    return f"| `{operator.name}` | {summary} | {', '.join([phases, *marks])} | {', '.join(operator.aliases)} |"
