"""Who computes an operator on every backend, and what was passed over for it: the order of overrides, made visible."""

from __future__ import annotations

from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from opmark.interfaces import BackendInfo
from opmark.registry import backends, candidates, implementations
from opmark.report.tables import plain_table
from opmark.schema import Implementation, Operator

OURS = "opmark"


class Step(NamedTuple):
    """A framework whose implementations a backend takes, if none before it has any."""

    framework: str
    found: tuple[Implementation, ...]
    taken: bool


def steps(operator: Operator, info: BackendInfo) -> list[Step]:
    known, taken = candidates(operator, info.frameworks), implementations(operator, info)
    found = [(name, tuple(one for one in known if one.framework == name)) for name in info.frameworks]
    return [Step(name, ones, bool(taken) and taken == ones) for name, ones in found]


def implementations_table(operator: Operator) -> Table:
    table = plain_table("backend", "implementations", "looked for in", "passed over")
    for info in backends().values():
        order = steps(operator, info)
        chosen = next((i for i, step in enumerate(order) if step.taken), len(order))
        taken = ", ".join(map(_named, order[chosen].found)) if chosen < len(order) else ""
        runs = _lack(operator, info) or taken or ("none" if info.computes else "any")
        over = ", ".join(_named(one) for step in order[chosen + 1 :] for one in step.found)
        table.add_row(Text(info.name), Text(runs), Text(", then ".join(info.frameworks)), Text(over))
    return table


def _named(one: Implementation) -> str:
    """With the distribution that brings it, where that is a stranger."""
    return one.label if one.source == OURS else f"{one.label} ({one.source})"


def _lack(operator: Operator, info: BackendInfo) -> str:
    """Where it is known beforehand that its engine does not take the operator."""
    return f"none: {info.lacks[operator.name]}" if operator.name in info.lacks else ""
