"""Operators x backends: counted by category as a table, one by one as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from opmark.schema.coverage import Matrix
from opmark.units import counted


def matrix_view(found: Matrix) -> dict[str, Any]:
    return {
        "operators": len(found.operators),
        "runs": found.runs,
        "backends": {
            name: {
                "forward": len(found.forward(name)),
                "backward": len(found.backward(name)),
                "verified_forward": len(found.verified(name, "forward")),
                "verified_backward": len(found.verified(name, "backward")),
            }
            for name in found.backends
        },
        "details": msgspec.to_builtins(found.operators),
    }


Columns = dict[str, list[str]]
"""Backends by the head of their column."""


def matrix_text(found: Matrix) -> Group:
    columns = _columns(found)
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))  # ten heads and more have to fit
    table.add_column("category", no_wrap=True)
    for head in ("all", *columns):
        table.add_column(head.replace("-", "-\n"), justify="right", overflow="fold", vertical="bottom")
    categories: dict[str, set[str]] = {}
    for one in found.operators:
        categories.setdefault(one.category, set()).add(one.op)
    for name in sorted(categories):
        table.add_row(name, str(len(categories[name])), *_counts(columns, found.forward, categories[name]))
    everything = {one.op for one in found.operators}
    for name, total, of in _totals(found):
        table.add_row(Text(name, style="bold"), total, *_counts(columns, of, everything))
    return Group(table, Text(), *map(Text, _legend(found, columns)))


def _columns(found: Matrix) -> Columns:
    """One for backends that differ only in their device and have the same operators."""
    alike: dict[tuple[str, frozenset[str], bool], list[str]] = {}
    for name, plain in found.backends.items():
        alike.setdefault((plain, found.forward(name), name in found.differentiate), []).append(name)
    plains = [plain for plain, _, _ in alike]
    return {(plain if plains.count(plain) == 1 else names[0]): names for (plain, _, _), names in alike.items()}


def _counts(columns: Columns, of: Callable[[str], frozenset[str]], among: set[str]) -> Iterator[str]:
    """What any of the backends of a column has."""
    for names in columns.values():
        number = len(among.intersection(frozenset().union(*map(of, names))))
        yield str(number) if number else "-"


def _totals(found: Matrix) -> Iterator[tuple[str, str, Callable[[str], frozenset[str]]]]:
    yield "forward", str(len(found.operators)), found.forward
    if found.runs:
        yield "  verified", "", lambda backend: found.verified(backend, "forward")
    yield "backward", str(sum(one.differentiable for one in found.operators)), found.backward
    if found.runs:
        yield "  verified", "", lambda backend: found.verified(backend, "backward")


def _legend(found: Matrix, columns: Columns) -> Iterator[str]:
    yield "columns: " + ", ".join(_backends(head, names) for head, names in columns.items())
    if found.runs:
        yield f"verified: in {counted(found.runs, 'stored run')}, on any of the backends of a column"
    else:
        yield "no stored runs; `opmark run --op '*' --size small --effort quick --backend NAME` tries every operator"


def _backends(head: str, names: Sequence[str]) -> str:
    return head if names == [head] else f"{head} ({', '.join(name.removeprefix(f'{head}-') for name in names)})"
