"""Where it ran: the facts of each environment as a column, those that differ marked."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from opmark.analysis.rows import RunView
from opmark.report.html.text import fact
from opmark.schema.peaks import chip
from opmark.units import counted

_FIRST = ("backend", "device", "gpu", "chip", "cpu", "machine", "system", "python", "opmark")
"""What a reader looks for, before the rest in the order in which it was found out."""


class FactRow(NamedTuple):
    name: str
    values: list[str]
    differs: bool


class Facts(NamedTuple):
    heads: list[str]
    rows: list[FactRow]


def facts_of(run_view: RunView) -> Facts:
    """A column a kind of environment, named by its backend, with how many items ran there."""
    used = Counter(row.environment for row in run_view.rows if row.environment in run_view.environments)
    columns = [run_view.environments[key] for key in used]
    names = dict.fromkeys((*_FIRST, *(name for facts in columns for name in facts)))
    rows = []
    for name in names:
        values = [fact(name, facts.get(name)) for facts in columns]
        if any(values):
            rows.append(FactRow(fact("", name), values, len(set(values)) > 1))
    named = [fact("", facts.get("backend") or chip(facts)) for facts in columns]
    return Facts([f"{name} ({counted(used[key], 'case')})" for name, key in zip(named, used, strict=True)], rows)


def machines(run_view: RunView) -> str:
    named = (fact("", facts.get("machine")) for facts in run_view.environments.values())
    return ", ".join(dict.fromkeys(filter(None, named)))


def chips(run_view: RunView) -> str:
    return ", ".join(dict.fromkeys(fact("", chip(facts)) for facts in run_view.environments.values()))
