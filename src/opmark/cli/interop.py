"""opmark param, opmark micro-perf, opmark opperf: the command lines of other systems, read by their own parsers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

DROP_INS = {
    "param": ("opmark.interop.param.command", "PARAM's run_benchmark, and its comms.py, with their options."),
    "micro-perf": ("opmark.interop.bytemicroperf.command", "ByteMicroPerf's launch.py, with its options."),
    "opperf": ("opmark.interop.opperf.command", "MXNet opperf's opperf.py, with its options."),
}
"""By command: the module whose `main` takes the arguments as written, and what it is."""


def drop_in(command: str, arguments: Sequence[str]) -> int:
    """The exit code. Without the parser of the other commands: it takes as long to import as theirs take to run."""
    code: int = import_module(DROP_INS[command][0]).main(arguments)
    return code
