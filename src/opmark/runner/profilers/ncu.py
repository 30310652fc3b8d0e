"""NVIDIA Nsight Compute: hardware counters of each kernel, from its CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opmark.plugin import Watched
from opmark.runner.profilers.program import default_options, find_program
from opmark.schema import KernelMetrics

FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes.sum",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
)
"""Default metrics: time, traffic, how busy memory and multiprocessors were."""

_ASK_FOR_METRICS = frozenset({"--metrics", "--set", "--section", "--section-folder", "--config-file"})
_MESSAGE = "=="
_KERNEL, _METRIC, _UNIT, _VALUE = "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"
_SHAPES = ("Grid Size", "Block Size")
_RANGES = ("Push/Pop_Range", "Start/Stop_Range", "Start/End_Range")
# Columns of the raw page that describe the machine or the launch again for every kernel; the file keeps them.
_DESCRIBES = ("device__", "nvlink__", "numa__", "c2clink__", "profiler__", "launch__")
_LAUNCH = frozenset(
    {"launch__registers_per_thread", "launch__shared_mem_per_block", "launch__waves_per_multiprocessor"}
)

Row = Mapping[str, str]


class Ncu:
    name = "ncu"
    summary = "NVIDIA Nsight Compute: counters of each kernel"

    def command(self, watched: Watched) -> Sequence[str]:
        args = list(watched.args)
        options: dict[str, Sequence[str]] = {
            "--log-file": [str(self.file(watched.stem))],
            "--csv": [],
            "--page": ["raw"],
            "--print-units": ["base"],
            "--target-processes": ["all"],
            "--nvtx": [],
        }
        if not any(arg.partition("=")[0] in _ASK_FOR_METRICS for arg in args):
            options["--metrics"] = [",".join(METRICS)]
        command = [find_program(self.name, watched.bin, FOLDERS), *default_options(options, args)]
        if "--nvtx-include" not in {arg.partition("=")[0] for arg in args}:
            # Push/pop ranges are those with a slash behind the name. Without a filter every kernel would be replayed.
            command += [part for name in watched.ranges for part in ("--nvtx-include", f"{name}/")]
        return [*command, *args, *watched.program]

    def file(self, stem: Path) -> Path:
        return stem.with_name(f"{stem.name}.csv")

    def read(self, stem: Path, ranges: Sequence[str]) -> Mapping[str, Sequence[KernelMetrics]]:
        found: dict[str, list[KernelMetrics]] = {}
        for name, kernel in kernels(self.file(stem), ranges):
            found.setdefault(name, []).append(kernel)
        return found


def kernels(path: Path, ranges: Sequence[str]) -> Iterator[tuple[str, KernelMetrics]]:
    """(range, kernel) in the order launched, from any page of it; kernels of no range are left out."""
    header, rows = _read_table(path)
    inside = re.compile(rf"(?<![\w])({'|'.join(map(re.escape, ranges))})(?![\w])")
    columns = [column for column in header if any(word in column for word in _RANGES)]
    if not columns:
        raise ValueError(f"{path} has no column of NVTX ranges")
    long = _METRIC in header
    for row in _read_details_page(rows) if long else _read_raw_page(rows):
        range_ = inside.search(" ".join(row.first[column] for column in columns))
        if range_:
            shapes = {shape.lower(): row.first[shape] for shape in _SHAPES if row.first.get(shape)}
            yield range_[1], KernelMetrics(row.first[_KERNEL], {**shapes, **row.metrics})


class _Launch:
    def __init__(self, first: Row) -> None:
        self.first = first
        self.metrics: dict[str, float | str] = {}

    def add(self, name: str, unit: str, text: str) -> None:
        if text:
            self.metrics[f"{name} [{unit}]" if unit else name] = _number(text)


def _read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The header and the rows of the CSV, without the messages around it."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    messages = [line.strip() for line in lines if line.startswith(_MESSAGE)]
    rows = list(csv.reader(line for line in lines if not line.startswith(_MESSAGE)))
    start = next((i for i, row in enumerate(rows) if _KERNEL in row), None)
    if start is None:
        warned = [line for line in messages if "ERROR" in line or "WARNING" in line]
        said = f"; it says: {' | '.join(warned[:3])}" if warned else ""
        raise ValueError(f"{path} holds no table of kernels{said}")
    header = rows[start]
    whole = [row for row in rows[start + 1 :] if row]
    if any(len(row) != len(header) for row in whole):
        raise ValueError(f"{path} breaks off, or has rows of another length than its header")
    return header, [dict(zip(header, row, strict=True)) for row in whole]


def _read_raw_page(rows: Sequence[Row]) -> Iterator[_Launch]:
    """Read the raw page: a line of units, then one line per kernel with one metric per column."""
    if not rows:
        return
    units = rows[0]
    if units[_KERNEL]:
        raise ValueError("expected a line of units below the header")
    for row in rows[1:]:
        launch = _Launch(row)
        for name, text in row.items():
            if "__" in name and (not name.startswith(_DESCRIBES) or name in _LAUNCH):
                launch.add(name, units[name], text)
        yield launch


def _read_details_page(rows: Sequence[Row]) -> Iterator[_Launch]:
    """Read the details page: one line per metric; the lines of a kernel share its number."""
    launches: dict[str, _Launch] = {}
    for row in rows:
        launch = launches.setdefault(f"{row.get('Process ID')} {row.get('ID')}", _Launch(row))
        launch.add(row[_METRIC], row.get(_UNIT, ""), row.get(_VALUE, ""))
    yield from launches.values()


def _number(text: str) -> float | str:
    """A number, whose thousands may be separated by commas, or the text."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text


NCU = Ncu()
