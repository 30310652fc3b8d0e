"""Traces in formats of others: `opmark export -w step.json --format chakra`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from opmark.traces.chakra import write_chakra
from opmark.traces.execution_trace import write_execution_trace
from opmark.traces.reading import read_ranks
from opmark.traces.trace import ProgramTrace


class TraceExporter(NamedTuple):
    """Writes a trace in another format, a file for each rank."""

    name: str
    summary: str
    ending: str
    write: Callable[[ProgramTrace], str | bytes]

    def files(self, path: Path) -> tuple[Mapping[str, str | bytes], list[str]]:
        """Return the files by name, and a line for each part of the trace that could not be read."""
        traces = read_ranks(path)
        stem = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".et")
        names = [f"{stem}.{one.rank}" if len(traces) > 1 else stem for one in traces]
        files = {f"{name}{self.ending}": self.write(one) for name, one in zip(names, traces, strict=True)}
        return files, [f"not read: {problem}" for one in traces for problem in one.problems]


TRACE_EXPORTERS = {
    one.name: one
    for one in (
        TraceExporter("chakra", "execution traces of MLCommons Chakra, a .et file for each rank", ".et", write_chakra),
        TraceExporter(
            "param-et",
            "execution traces of PyTorch, as PARAM's replay reads them",
            ".json",
            write_execution_trace,
        ),
    )
}
