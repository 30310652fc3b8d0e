"""What there is: `opmark list`, `opmark describe`."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.errors import UnknownName
from opmark.hardware.datasheets import datasheets
from opmark.registry import catalogue
from opmark.registry import operator as find_operator
from opmark.runner.probe import probe
from opmark.schema import (
    QUANTITIES,
    Availability,
    Operator,
    Quantity,
    Workload,
)
from opmark.schema.peaks import Peaks


def list_(
    kind: str, category: str | None = None
) -> Sequence[Operator] | Sequence[Workload] | Sequence[Availability] | Sequence[Quantity] | Sequence[Peaks]:
    """`ops` (of a category), `suites`, `quantities`, `hardware` or `backends`; of a backend, whether it can run here,
    and if not, why."""
    if kind == "ops":
        return [op for op in catalogue().values() if category in (None, op.category)]
    if kind == "backends":
        return probe()
    if kind == "suites":
        from opmark.workloads.load import suites

        return suites()
    if kind == "quantities":
        return list(QUANTITIES.values())
    if kind == "hardware":
        return datasheets()
    raise UnknownName("listing", kind, ("ops", "suites", "backends", "quantities", "hardware"))


def describe(op: str) -> Operator:
    return find_operator(op)
