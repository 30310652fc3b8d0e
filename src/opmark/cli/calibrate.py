"""opmark calibrate"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.cli.options import Db
from opmark.cli.output import console, print_json_lines


def calibrate(
    backend: Annotated[
        str | None, typer.Option(help="As in `opmark list backends`. [default: torch-cpu, or numpy-cpu]")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads to use. [default: all cores]")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a task may take.")] = 60.0,
    db: Db = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure this machine's peaks: bandwidth of memory and caches, FLOP/s by dtype, launch cost."""
    from opmark import api
    from opmark.hardware.datasheets import datasheet
    from opmark.report.machine import peaks_text

    peaks = api.calibrate(backend, threads=threads, timeout=timeout, db=db)
    if as_json:
        print_json_lines([peaks])
    else:
        console().print(peaks_text(peaks, datasheet(peaks.chip, peaks.threads)))
