"""opmark param, opmark micro-perf, opmark opperf: the command lines of other systems, read by their own parsers."""

from __future__ import annotations

from typing import Any

import typer

AS_WRITTEN: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}


def param(context: typer.Context) -> None:
    """PARAM's run_benchmark; all its options, `opmark param -h` lists them."""
    from opmark.compat.param.command import main

    raise typer.Exit(main(context.args))


def micro_perf(context: typer.Context) -> None:
    """ByteMicroPerf's launch.py; all its options, `opmark micro-perf -h` lists them."""
    from opmark.compat.micro_perf.command import main

    raise typer.Exit(main(context.args))


def opperf(context: typer.Context) -> None:
    """MXNet opperf's opperf.py; all its options, `opmark opperf -h` lists them."""
    from opmark.compat.opperf.command import main

    raise typer.Exit(main(context.args))
