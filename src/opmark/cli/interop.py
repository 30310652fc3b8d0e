"""opmark param, micro-perf, general-perf, opperf, opbench: command lines of other systems with their own parsers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

FOREIGN_COMMANDS = {
    "param": ("opmark.interop.param.command", "PARAM's run_benchmark, and its comms.py, with their options."),
    "micro-perf": ("opmark.interop.bytemicroperf.command", "ByteMicroPerf's launch.py, with its options."),
    "general-perf": (
        "opmark.interop.general_perf.command",
        "ByteMLPerf's launch.py for whole models, with its options.",
    ),
    "opperf": ("opmark.interop.opperf.command", "MXNet opperf's opperf.py, with its options."),
    "opbench": ("opmark.interop.opbench.command", "OpBench's op_performance_collector.py, with its options."),
}
"""By command: the module whose `main` takes the arguments as written, and a summary."""


def run_foreign_command(command: str, arguments: Sequence[str]) -> int:
    """Run another system's command line and return its exit code. typer is not needed: importing it would take as long
    as running the command."""
    code: int = import_module(FOREIGN_COMMANDS[command][0]).main(arguments)
    return code
