"""Workload and hardware files of other systems, read into opmark's own: `opmark import`."""

from __future__ import annotations

from msgspec.structs import replace

from opmark.api.keywords import typed
from opmark.catalogue import workload_file
from opmark.catalogue.expansion import expand
from opmark.errors import UserError
from opmark.hardware import datasheets as datasheets_module
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.registry import operators_like
from opmark.runner.workload_source import WorkloadSource, file_requests, problem_lines, read_source
from opmark.schema.options import Names, Source, split_names
from opmark.schema.progress import OnStep, ignore_step


@typed
def read_workload(
    source: Source,
    *,
    seed: int = 0,
    phase: Names = (),
    strict: bool = False,
    format: str = "",
    allow: Names = (),
    on_step: OnStep = ignore_step,
) -> WorkloadSource:
    """Read a file or a folder in opmark's format or in another system's. Parts that could not be used are listed in
    `problems`; `allow` names modules whose functions the file may call."""
    return read_source(
        source, seed=seed, phases=split_names(phase), strict=strict, format=format, allow=split_names(allow),
        on_step=on_step,
    )  # fmt: skip


def import_remarks(taken: WorkloadSource) -> list[str]:
    """Return one line per problem, per note of the importer, and per option that the file asks to be measured with."""
    return list(problem_lines(taken.problems, [*taken.notes, *file_requests(taken.asked)]))


def case_count(taken: WorkloadSource) -> int:
    """Return the number of cases; a case that a foreign file repeats is counted each time."""
    if taken.foreign:
        return len(taken.cases)
    return len(expand(taken.workload, find_operator, taken.where, operators_like))


def workload_text(taken: WorkloadSource, in_json: bool) -> str:
    """Return the workload in opmark's own format, as JSON or YAML."""
    whole = replace(taken.workload, cases=workload_file.compact(taken.workload.cases))
    return workload_file.json_text(whole) if in_json else workload_file.yaml_text(whole)


def hardware_text(taken: WorkloadSource, in_json: bool) -> str:
    """Return the chips of a hardware file in opmark's own format, as JSON or YAML."""
    if taken.workload.cases:
        raise UserError(
            f"{taken.where}: holds both workloads and hardware, which go into different files", "import each on its own"
        )
    return datasheets_module.json_text(taken.chips) if in_json else datasheets_module.yaml_text(taken.chips)
