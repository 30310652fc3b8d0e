"""NVIDIA Nsight Systems: which kernels and copies ran when, from its SQLite export."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from opmark.plugin import Watched
from opmark.runner.profilers.program import default_options, find_program
from opmark.schema import KernelMetrics

FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-systems/bin")

_RANGES = """
SELECT COALESCE(NVTX_EVENTS.text, StringIds.value), NVTX_EVENTS.start, NVTX_EVENTS."end"
FROM NVTX_EVENTS LEFT JOIN StringIds ON StringIds.id = NVTX_EVENTS.textId
WHERE NVTX_EVENTS."end" IS NOT NULL ORDER BY NVTX_EVENTS.start
"""

# What ran on the device, with the call that launched it: the ids of these are counted anew in every process.
_LAUNCHED = """
SELECT launch.start, {name}, work.start, work."end", {more}
FROM {table} AS work JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS launch ON launch.correlationId = work.correlationId
AND launch.globalTid / 0x1000000 = work.globalPid / 0x1000000 {names}
"""
_NAMES = "LEFT JOIN StringIds AS name ON name.id = work.demangledName"
_SHAPE = "{0}X || ' x ' || {0}Y || ' x ' || {0}Z"
# Table -> (its name for a kernel, more of its columns by the names that they get here, what to join)
_WORK: dict[str, tuple[str, dict[str, str], str]] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "name.value",
        {
            "grid size": _SHAPE.format("work.grid"),
            "block size": _SHAPE.format("work.block"),
            "registers per thread": "work.registersPerThread",
        },
        _NAMES,
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("'copy'", {"bytes [byte]": "work.bytes"}, ""),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("'fill'", {"bytes [byte]": "work.bytes"}, ""),
}


class Nsys:
    name = "nsys"
    summary = "NVIDIA Nsight Systems: a timeline of calls, kernels and copies"

    def command(self, watched: Watched) -> Sequence[str]:
        options: dict[str, Sequence[str]] = {
            "--trace": ["cuda,nvtx"],
            "--export": ["sqlite"],
            "--force-overwrite": ["true"],
            "--output": [str(watched.stem)],
        }
        short = {"-t": "--trace", "-o": "--output", "-f": "--force-overwrite"}
        given = [short.get(arg, arg) for arg in watched.args]
        chosen = default_options(options, given)
        return [find_program(self.name, watched.bin, FOLDERS), "profile", *chosen, *watched.args, *watched.program]

    def file(self, stem: Path) -> Path:
        return stem.with_name(f"{stem.name}.nsys-rep")

    def read(self, stem: Path, ranges: Sequence[str]) -> Mapping[str, Sequence[KernelMetrics]]:
        path = stem.with_name(f"{stem.name}.sqlite")
        if not path.exists():
            others = sorted(other.name for other in stem.parent.glob(f"{stem.name}.*"))
            raise ValueError(f"expected {path}, found {', '.join(others) or 'nothing'}")
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as export:
                return _by_range(export, frozenset(ranges))
        except sqlite3.Error as error:
            raise ValueError(f"{path}: {error}") from None


def _by_range(export: sqlite3.Connection, ranges: frozenset[str]) -> dict[str, list[KernelMetrics]]:
    """Kernels and copies by the range that was open when they were launched, whichever thread did it."""
    tables = {name for (name,) in export.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "NVTX_EVENTS" not in tables:
        raise ValueError("it recorded no NVTX range")
    spans = [span for span in export.execute(_RANGES) if span[0] in ranges]
    launched = (row for table in sorted(_WORK.keys() & tables) for row in _launched(export, table))
    work = sorted(launched, key=lambda row: row[:2])
    found: dict[str, list[KernelMetrics]] = {}
    for name, start, end in spans:
        for began, kernel in [(began, kernel) for called, began, kernel in work if start <= called <= end]:
            metrics = {"start [ns]": float(began - start), **kernel.metrics}
            found.setdefault(name, []).append(KernelMetrics(kernel.name, metrics))
    return found


def _launched(export: sqlite3.Connection, table: str) -> Iterator[tuple[int, int, KernelMetrics]]:
    """(time of the launch, time of the start, kernel) for each row of a table."""
    name, more, names = _WORK[table]
    query = _LAUNCHED.format(name=name, table=table, more=", ".join(more.values()), names=names)
    for launched, called, start, end, *values in export.execute(query):
        more_metrics = {key: _plain_value(value) for key, value in zip(more, values, strict=True) if value is not None}
        yield launched, start, KernelMetrics(called or "", {"duration [ns]": float(end - start), **more_metrics})


def _plain_value(value: object) -> float | str:
    return float(value) if isinstance(value, int | float) else str(value)


NSYS = Nsys()
