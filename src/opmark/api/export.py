from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from opmark.api.import_ import _again, _with_gradients
from opmark.api.result import Result
from opmark.api.show import show
from opmark.catalogue.expansion import expand
from opmark.errors import UnknownName
from opmark.plugin.registry import exporters, operators_like, workload_exporters
from opmark.plugin.registry import operator as find_operator
from opmark.runner.workload_source import read_source
from opmark.schema.options import PathLike, Source
from opmark.units import count_noun


def export(
    run: str | Result | None = None, *, format: str, db: PathLike | None = None
) -> Mapping[str, str] | Mapping[str, str | bytes]:
    """A run, stored or just made, in another format: texts by relative path (of Parquet, bytes)."""
    known = exporters()
    if format not in known:
        raise UnknownName("format of results", format, known, "opmark list formats")
    return known[format].files((run if isinstance(run, Result) else show(run, db=db)).results())


def export_workload(source: Source, *, format: str, strict: bool = False) -> tuple[Mapping[str, str], Sequence[str]]:
    """A workload in another system's format: (texts by relative path, what is not in them or said otherwise)."""
    known = workload_exporters()
    if format not in known:
        raise UnknownName("format of workloads", format, known, "opmark list formats")
    taken = read_source(source, strict=strict)
    whole = replace(taken.workload, cases=[_with_gradients(entry) for entry in taken.workload.cases])
    cases = expand(whole, find_operator, taken.where, operators_like)
    files, unsaid = known[format].files(whole.name, cases)
    again = _again(whole.cases) if taken.foreign else 0
    twice = [f"{count_noun(again, 'case')} stood there before, and each is written once"] if again else []
    return files, [*(f"not imported: {problem}" for problem in taken.problems), *twice, *unsaid]
