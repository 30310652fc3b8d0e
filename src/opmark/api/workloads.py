"""Workloads from other systems and to them: `opmark import`, `opmark export --workload`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from opmark.errors import UnknownName, UserError
from opmark.hardware import sheet
from opmark.registry import operator as find_operator
from opmark.registry import operators_like, workload_exporters
from opmark.runner.intake import Intake, take_in
from opmark.runner.intake import complaints as complaints
from opmark.runner.intake import wishes as wishes
from opmark.schema import (
    Entry,
)
from opmark.schema.options import Source, split_names
from opmark.units import counted
from opmark.workloads import write
from opmark.workloads.expand import cases_of, expand


def read_workload(
    source: Source, *, seed: int = 0, phase: str | Sequence[str] = (), strict: bool = False, format: str = ""
) -> Intake:
    """A file or a folder, ours or foreign, as `opmark import` reads it. What it could not use is in `problems`."""
    return take_in(source, seed=seed, phases=split_names(phase), strict=strict, format=format)


def case_count(taken: Intake) -> int:
    """The number of cases of what was read; in a foreign file the same case counts as often as it stands there."""
    if taken.foreign:
        return len(taken.cases)
    return len(expand(taken.workload, find_operator, taken.where, operators_like))


def workload_text(taken: Intake, in_json: bool) -> str:
    """The workload in opmark's own format, as JSON or YAML."""
    whole = replace(taken.workload, cases=write.compact(taken.workload.cases))
    return write.json_text(whole) if in_json else write.yaml_text(whole)


def hardware_text(taken: Intake, in_json: bool) -> str:
    """The chips of a hardware file in opmark's own format, as JSON or YAML."""
    if taken.workload.cases:
        raise UserError(
            f"{taken.where}: holds both workloads and hardware, which go into different files", "import each on its own"
        )
    return sheet.json_text(taken.chips) if in_json else sheet.yaml_text(taken.chips)


def export_workload(source: Source, *, format: str, strict: bool = False) -> tuple[Mapping[str, str], Sequence[str]]:
    """A workload in another system's format: (texts by relative path, what is not in them or said otherwise)."""
    known = workload_exporters()
    if format not in known:
        raise UnknownName("format of workloads", format, known, "opmark list formats")
    taken = take_in(source, strict=strict)
    whole = replace(taken.workload, cases=[_with_gradients(entry) for entry in taken.workload.cases])
    cases = expand(whole, find_operator, taken.where, operators_like)
    files, unsaid = known[format].files(whole.name, cases)
    again = _again(whole.cases) if taken.foreign else 0
    twice = [f"{counted(again, 'case')} stood there before, and each is written once"] if again else []
    return files, [*(f"not imported: {problem}" for problem in taken.problems), *twice, *unsaid]


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
