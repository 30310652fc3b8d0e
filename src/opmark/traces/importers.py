"""Importers of traces: `opmark import step.json` and `opmark run -w step.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from opmark.models.calls import release_recognition
from opmark.schema import Imported
from opmark.traces.reading import read_trace, times_of, trace_format
from opmark.traces.workload import workload_of_trace


class TraceImporter(NamedTuple):
    """Reads traces of one format: each distinct call is an entry, with how often and how long it ran."""

    name: str
    summary: str

    def recognises(self, path: Path, data: Any) -> bool:
        return False  # a file is recognised by its first bytes; it may be too large to be parsed for that

    def takes_file(self, path: Path, head: bytes) -> bool:
        return trace_format(path, head) == self.name

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        if (trace := times_of(path)) is not None:
            return Imported(notes=(f"{path}: holds the times of {trace.name}, which is imported with them",))
        return workload_of_trace(read_trace(path))

    def release(self) -> None:
        release_recognition()


EXECUTION_TRACE = TraceImporter("execution-trace", "execution traces of PyTorch, also with the profiler's times beside")
CHROME_TRACE = TraceImporter("chrome-trace", "Chrome traces of torch's profiler (Kineto) with shapes")
