"""What there is: `opmark list`, `opmark describe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.catalogue.expansion import expand
from opmark.errors import UnknownName
from opmark.hardware.datasheets import datasheets, names
from opmark.plugin import Operator
from opmark.plugin.registry import catalogue, exporters, importers, operators_like, workload_exporters
from opmark.plugin.registry import operator as find_operator
from opmark.schema import QUANTITIES, Availability, Quantity, Workload
from opmark.schema.machine import Peaks


def list_(
    kind: str, category: str | None = None
) -> Sequence[Operator] | Sequence[Workload] | Sequence[Availability] | Sequence[Quantity] | Sequence[Peaks]:
    """List `ops` (of a category), `suites`, `quantities`, `hardware` or `backends`, each with whether it can run here
    and if not, why."""
    if kind == "ops":
        return operators(category)
    if kind == "backends":
        return backends_here()
    if kind == "suites":
        return suites()
    if kind == "quantities":
        return list(QUANTITIES.values())
    if kind == "hardware":
        return datasheets()
    raise UnknownName("listing", kind, ("ops", "suites", "backends", "quantities", "hardware"))


def operators(category: str | None = None) -> list[Operator]:
    """The operators of the catalogue, or of one category of it."""
    return [op for op in catalogue().values() if category in (None, op.category)]


def suites() -> Sequence[Workload]:
    from opmark.catalogue.workload_file import suites as shipped

    return shipped()


def case_count(workload: Workload) -> int | None:
    """The number of cases; None where only the framework can tell, and asking it takes seconds."""
    if any(":" in entry.op for entry in workload.cases):
        return None
    return len(expand(workload, find_operator, match=operators_like))


def backends_here() -> list[Availability]:
    """Every backend, and why it cannot run here if it cannot."""
    from opmark.runner.probe import probe

    return probe()


def formats() -> list[tuple[str, str, str]]:
    """Every format of files: the command that reads or writes it, its name, and what it is."""
    kinds: tuple[tuple[str, Any], ...] = (
        ("import", importers()), ("export", exporters()), ("export -w", workload_exporters())
    )  # fmt: skip
    return [
        (f"opmark {command}", name, plugin.summary) for command, plugins in kinds for name, plugin in plugins.items()
    ]


def chips() -> list[tuple[Peaks, list[str]]]:
    """Every chip that has a datasheet, with all names that it is known by."""
    return [(peaks, list(names(peaks))) for peaks in datasheets()]
