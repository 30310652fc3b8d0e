"""Any other profiler: a command line of the user's own, and a simple format that it may write."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from opmark.plugin import Watched
from opmark.runner.profilers.program import find_program
from opmark.schema import KernelMetrics

_COLUMNS = ("range", "kernel")


class Command:
    name = "command"
    summary = "a command line of your own: --profiler-command"

    def command(self, watched: Watched) -> Sequence[str]:
        """{program} alone becomes its words; inside of a longer word, as for `sh -c`, one quoted text. More arguments
        go behind the first word."""
        words: list[str] = []
        for word in shlex.split(watched.template):
            if word == "{program}":
                words += watched.program
            else:
                text = word.replace("{program}", shlex.join(watched.program))
                words.append(text.replace("{output}", str(watched.stem)))
        first, *rest = words
        return [find_program(first, watched.bin or first, ()), *watched.args, *rest]

    def file(self, stem: Path) -> Path:
        """The first file that it wrote; files that can be read come first."""
        written = sorted(path for path in stem.parent.glob(f"{stem.name}*") if path.is_file())
        readable = [path for path in written if path.suffix in _READERS]
        return next(iter([*readable, *written]), stem)

    def read(self, stem: Path, ranges: Sequence[str]) -> Mapping[str, Sequence[KernelMetrics]] | None:
        path = self.file(stem)
        if path.suffix not in _READERS or not path.exists():
            return None
        found: dict[str, list[KernelMetrics]] = {}
        for name, kernel in _READERS[path.suffix](path):
            if name in ranges:
                found.setdefault(name, []).append(kernel)
        return found


def _read_csv(path: Path) -> list[tuple[str, KernelMetrics]]:
    """Read one kernel per line; the columns besides `range` and `kernel` are metrics."""
    with path.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path}, line 1: expected the columns range and kernel, got {reader.fieldnames}")
        found = []
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"{path}, line {reader.line_num}: expected as many values as columns")
            metrics = {key: _parse_value(text) for key, text in row.items() if key not in _COLUMNS and text}
            found.append((row["range"], KernelMetrics(row["kernel"], metrics)))
    return found


def _read_json(path: Path) -> list[tuple[str, KernelMetrics]]:
    """Read lists of kernels by range."""
    try:
        kernels = msgspec.json.decode(path.read_bytes(), type=dict[str, list[KernelMetrics]])
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: expected lists of {{name, metrics}} by range: {error}") from None
    return [(name, kernel) for name, listed in kernels.items() for kernel in listed]


_READERS = {".csv": _read_csv, ".json": _read_json}


def _parse_value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


COMMAND = Command()
