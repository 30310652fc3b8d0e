"""List operators, models, suites, backends, quantities, formats and chips: `opmark list`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opmark.api.keywords import typed
from opmark.catalogue.expansion import expand
from opmark.errors import UnknownName
from opmark.hardware.datasheets import datasheets, names
from opmark.models.zoo import zoo
from opmark.models.zoo.entry import ZooModel
from opmark.plugin import BackendInfo, Operator
from opmark.plugin.registry import backends as known_backends
from opmark.plugin.registry import (
    catalogue,
    datasets,
    exporters,
    importers,
    operators_like,
    tuning_formats,
    workload_exporters,
)
from opmark.plugin.registry import operator as find_operator
from opmark.schema import QUANTITIES, Availability, Quantity, Workload
from opmark.schema.machine import Peaks
from opmark.traces.exporters import TRACE_EXPORTERS


@typed
def list_(
    kind: str, category: str | None = None, *, probe: bool = False
) -> (
    Sequence[Operator]
    | Sequence[ZooModel]
    | Sequence[Workload]
    | Sequence[Availability]
    | Sequence[Quantity]
    | Sequence[Peaks]
):
    """List `ops` (of a category), `models`, `suites`, `quantities`, `chips`, or `backends` with the reason why one
    cannot run here. Metadata tells which backends are installed; with `probe` each is started, which takes seconds."""
    if kind == "ops":
        return operators(category)
    if kind == "models":
        return models()
    if kind == "backends":
        return backends_here(probe=probe)
    if kind == "suites":
        return suites()
    if kind == "quantities":
        return list(QUANTITIES.values())
    if kind in ("chips", "hardware"):
        return datasheets()
    raise UnknownName("listing", kind, ("ops", "models", "suites", "backends", "quantities", "chips"))


def operators(category: str | None = None) -> list[Operator]:
    """Return the operators of the catalogue, or of one category of it."""
    return [op for op in catalogue().values() if category in (None, op.category)]


def models() -> list[ZooModel]:
    """Return the models of the zoo, in the order of ByteMLPerf's purposes; no framework is imported."""
    order = ("regular", "popular", "sota", "structure")
    return sorted(zoo().values(), key=lambda one: order.index(one.purpose) if one.purpose in order else len(order))


def suites() -> Sequence[Workload]:
    from opmark.catalogue.workload_file import suites as shipped

    return shipped()


def case_count(workload: Workload) -> int | None:
    """Return the number of cases; None if only the framework knows it, because asking it takes seconds."""
    if any(":" in entry.op for entry in workload.cases):
        return None
    return len(expand(workload, find_operator, match=operators_like))


def backends() -> list[BackendInfo]:
    """Return every backend that is installed, whether it can run here or not."""
    return list(known_backends().values())


def backends_here(*, probe: bool = False) -> list[Availability]:
    """Return every backend, with the reason why it cannot run here: what metadata tells, or what starting it shows."""
    if probe:
        from opmark.runner.probe import probe as start_each

        return start_each()
    from opmark.runner.survey import survey

    return survey()


def data_sets() -> list[tuple[str, str]]:
    """Return every data set with its summary."""
    return [(name, one.summary) for name, one in datasets().items()]


def formats() -> list[tuple[str, str, str]]:
    """Return every file format: the command that reads or writes it, its name, and a summary."""
    kinds: tuple[tuple[str, Any], ...] = (
        ("import", importers()), ("export", exporters()), ("export -w", {**workload_exporters(), **TRACE_EXPORTERS}),
        ("tuned", tuning_formats()),
    )  # fmt: skip
    return [
        (f"opmark {command}", name, plugin.summary) for command, plugins in kinds for name, plugin in plugins.items()
    ]


def chips() -> list[tuple[Peaks, list[str]]]:
    """Return every chip that has a datasheet, with all of its names."""
    return [(peaks, list(names(peaks))) for peaks in datasheets()]
