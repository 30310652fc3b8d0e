"""Workloads from other systems and to them: `opmark import`, `opmark export --workload`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from opmark.catalogue import workload_file
from opmark.catalogue.expansion import cases_of, expand
from opmark.errors import UserError
from opmark.hardware import datasheets as datasheets_module
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.registry import operators_like
from opmark.runner.workload_source import WorkloadSource, read_source
from opmark.schema import Entry
from opmark.schema.options import Source, split_names


def read_workload(
    source: Source, *, seed: int = 0, phase: str | Sequence[str] = (), strict: bool = False, format: str = ""
) -> WorkloadSource:
    """A file or a folder, ours or foreign, as `opmark import` reads it. What it could not use is in `problems`."""
    return read_source(source, seed=seed, phases=split_names(phase), strict=strict, format=format)


def case_count(taken: WorkloadSource) -> int:
    """The number of cases of what was read; in a foreign file the same case counts as often as it stands there."""
    if taken.foreign:
        return len(taken.cases)
    return len(expand(taken.workload, find_operator, taken.where, operators_like))


def workload_text(taken: WorkloadSource, in_json: bool) -> str:
    """The workload in opmark's own format, as JSON or YAML."""
    whole = replace(taken.workload, cases=workload_file.compact(taken.workload.cases))
    return workload_file.json_text(whole) if in_json else workload_file.yaml_text(whole)


def hardware_text(taken: WorkloadSource, in_json: bool) -> str:
    """The chips of a hardware file in opmark's own format, as JSON or YAML."""
    if taken.workload.cases:
        raise UserError(
            f"{taken.where}: holds both workloads and hardware, which go into different files", "import each on its own"
        )
    return datasheets_module.json_text(taken.chips) if in_json else datasheets_module.yaml_text(taken.chips)


def _again(entries: Sequence[Entry]) -> int:
    """Entries that bring no case which was not there before."""
    seen: set[str] = set()
    again = 0
    for entry in entries:
        ids = {case.id for case in cases_of(entry, find_operator)}
        again += ids <= seen
        seen |= ids
    return again


def _with_gradients(entry: Entry) -> Entry:
    """Which gradients an entry is about can be seen of a backward case alone."""
    missing = bool(entry.wrt) and "backward" not in entry.phases
    return replace(entry, phases=[*entry.phases, "backward"]) if missing else entry
