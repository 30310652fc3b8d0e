"""Stored runs and workloads in the formats of other systems: `opmark export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from opmark.api.keywords import typed
from opmark.api.result import Result
from opmark.api.show import show
from opmark.catalogue.expansion import cases_of, expand
from opmark.errors import UnknownName, UserError
from opmark.plugin.registry import exporters, operators_like, workload_exporters
from opmark.plugin.registry import operator as find_operator
from opmark.runner.workload_source import read_source
from opmark.schema import Entry, Workload
from opmark.schema.options import Names, PathLike, Source, split_names
from opmark.traces.exporters import TRACE_EXPORTERS
from opmark.units import count_noun


@typed
def export(
    run: str | Result | None = None, *, format: str, db: PathLike | None = None
) -> Mapping[str, str] | Mapping[str, str | bytes]:
    """Return a run in another format: the content of each file by its relative path, bytes for Parquet."""
    known = exporters()
    if format not in known:
        raise UnknownName("format of results", format, known, "opmark list formats")
    return known[format].files((run if isinstance(run, Result) else show(run, db=db)).results())


@typed
def export_workload(
    source: Source, *, format: str, strict: bool = False, allow: Names = ()
) -> tuple[Mapping[str, str] | Mapping[str, str | bytes], Sequence[str]]:
    """Return a workload in another system's format, or a trace in another format: files by relative path, and one line
    per loss."""
    known = workload_exporters()
    if format in TRACE_EXPORTERS:
        return _export_trace(source, format)
    if format not in known:
        raise UnknownName("format of workloads", format, {**known, **TRACE_EXPORTERS}, "opmark list formats")
    taken = read_source(source, strict=strict, allow=split_names(allow))
    whole = replace(taken.workload, cases=[_with_gradients(entry) for entry in taken.workload.cases])
    cases = expand(whole, find_operator, taken.where, operators_like)
    files, unsaid = known[format].files(whole.name, cases)
    repetitions = _count_repetitions(whole.cases) if taken.foreign else 0
    twice = [f"{count_noun(repetitions, 'case')} stood there before, and each is written once"] if repetitions else []
    return files, [*(f"not imported: {problem}" for problem in taken.problems), *twice, *unsaid]


def _export_trace(source: Source, format: str) -> tuple[Mapping[str, str | bytes], Sequence[str]]:
    if isinstance(source, Mapping | Workload):
        raise UserError(f"--format {format} writes traces, and a workload is none", "give the file of a trace")
    return TRACE_EXPORTERS[format].files(Path(source))


def _count_repetitions(entries: Sequence[Entry]) -> int:
    """Count the entries all of whose cases stand in earlier entries."""
    known: set[str] = set()
    repetitions = 0
    for entry in entries:
        ids = {case.id for case in cases_of(entry, find_operator)}
        repetitions += ids <= known
        known |= ids
    return repetitions


def _with_gradients(entry: Entry) -> Entry:
    """Add the backward phase to an entry that names gradients: only a backward case carries them."""
    missing = bool(entry.wrt) and "backward" not in entry.phases
    return replace(entry, phases=[*entry.phases, "backward"]) if missing else entry
