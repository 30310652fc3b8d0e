"""opmark import"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opmark.api.requests import talk
from opmark.cli.options import Allow
from opmark.cli.output import split, write_out


def import_(
    source: Annotated[Path, typer.Argument(help="A file of another system, or a folder of them.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write: .yaml or .json. [default: standard output]")
    ] = None,
    phase: Annotated[list[str] | None, typer.Option(help="forward, backward, both; instead of the file's own.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of values that the file leaves to chance.")] = 0,
    format: Annotated[
        str, typer.Option("-f", "--format", help="As in `opmark list formats`. [default: recognised by its content]")
    ] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Stop if a part of it is not understood.")] = False,
    allow: Allow = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of YAML.")] = False,
) -> None:
    from opmark.api.import_ import case_count, hardware_text, import_remarks, read_workload, workload_text
    from opmark.api.progress import StepProgress
    from opmark.units import count_noun

    with StepProgress("import", measures=False) as progress:
        workload = read_workload(
            source, seed=seed, phase=split(phase or []), strict=strict, format=format, allow=split(allow or []),
            on_step=progress.step,
        )  # fmt: skip
    for line in import_remarks(workload):
        talk(line)
    in_json = as_json or (output is not None and output.suffix == ".json")
    write_out(hardware_text(workload, in_json) if workload.chips else workload_text(workload, in_json), output)
    what = count_noun(len(workload.chips), "chip") if workload.chips else count_noun(case_count(workload), "case")
    where = f" in {output}" if output else ""
    talk(f"{what} of {workload.foreign or 'opmark'}{where}")
    if workload.problems:
        talk(f"{count_noun(len(workload.problems), 'part')} not imported")
        raise typer.Exit(1)
