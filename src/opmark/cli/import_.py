"""opmark import"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.cli.output import split, write_out
from opmark.errors import UserError

if TYPE_CHECKING:
    from opmark.runner.intake import Intake


def import_(
    source: Annotated[Path, typer.Argument(help="A file of another system, or a folder of them.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write: .yaml or .json. [default: standard output]")
    ] = None,
    phase: Annotated[list[str] | None, typer.Option(help="forward, backward, both; not the file's own.")] = None,
    seed: Annotated[int, typer.Option(help="Of values that the file leaves to chance.")] = 0,
    format: Annotated[
        str, typer.Option("-f", "--format", help="As in `opmark list formats`. [default: recognised by its content]")
    ] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Stop if a part of it is not understood.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of YAML.")] = False,
) -> None:
    """A foreign workload or hardware file as one of opmark's own. Exit code 1: a part of it was not understood."""
    from opmark import api
    from opmark.runner.intake import complaints, wishes
    from opmark.units import counted

    taken = api.read_workload(source, seed=seed, phase=split(phase or []), strict=strict, format=format)
    for line in complaints(taken.problems, [*taken.notes, *wishes(taken.asked)]):
        api.talk(line)
    in_json = as_json or (output is not None and output.suffix == ".json")
    write_out(_hardware(taken, in_json) if taken.chips else _workload(taken, in_json), output)
    what = counted(len(taken.chips), "chip") if taken.chips else counted(_cases(taken), "case")
    where = f" in {output}" if output else ""
    api.talk(f"{what} of {taken.foreign or 'opmark'}{where}")
    if taken.problems:
        api.talk(f"{counted(len(taken.problems), 'part')} not imported")
        raise typer.Exit(1)


def _cases(taken: Intake) -> int:
    from opmark.registry import operator, operators_like
    from opmark.workloads.expand import expand

    return len(taken.cases) if taken.foreign else len(expand(taken.workload, operator, taken.where, operators_like))


def _workload(taken: Intake, in_json: bool) -> str:
    from msgspec.structs import replace

    from opmark.workloads import write

    whole = replace(taken.workload, cases=write.compact(taken.workload.cases))
    return write.json_text(whole) if in_json else write.yaml_text(whole)


def _hardware(taken: Intake, in_json: bool) -> str:
    from opmark.hardware import sheet

    if taken.workload.cases:
        raise UserError(
            f"{taken.where}: holds both workloads and hardware, which go into different files", "import each on its own"
        )
    return sheet.json_text(taken.chips) if in_json else sheet.yaml_text(taken.chips)
