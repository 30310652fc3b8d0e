"""opmark doctor"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.cli.options import Db
from opmark.cli.output import console, print_json_lines


def doctor(
    aa: Annotated[
        bool, typer.Option("--aa", help="Measure identical code against itself, and store the noise floor.")
    ] = False,
    backend: Annotated[str | None, typer.Option(help="For --aa. [default: torch-cpu, or numpy-cpu]")] = None,
    processes: Annotated[int, typer.Option(help="For --aa: fresh processes, an even number.")] = 10,
    db: Db = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    if aa:
        _print_noise_floor(backend, processes, db, as_json=as_json)
        return
    from opmark.api.doctor import doctor as examine
    from opmark.report.console.machine import diagnosis_text

    diagnosis = examine(db=db)
    if as_json:
        print_json_lines([diagnosis])
    else:
        console().print(diagnosis_text(diagnosis))


def _print_noise_floor(backend: str | None, processes: int, db: str | None, *, as_json: bool) -> None:
    from opmark.api.doctor import measure_noise
    from opmark.api.progress import StepProgress
    from opmark.report.console.machine import noise_text

    with StepProgress("doctor --aa") as progress:
        floor, journals = measure_noise(backend, processes, db, progress.say, progress.step)
    if as_json:
        print_json_lines([floor])
    else:
        console().print(noise_text(floor))
    if journals:
        raise typer.Exit(1)
