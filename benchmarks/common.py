"""Helpers for benchmarks: rows of the table, opmark from the shell, and waiting for a quiet machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from opmark.schema import Measurement

OPMARK = str(Path(sys.executable).with_name("opmark"))

_QUIET = 0.05
"""Share of the cores that other processes may take on a quiet machine."""
_QUIET_SECONDS = 3.0
"""Seconds for which the machine has to be quiet."""
_PATIENCE = 60.0
"""Seconds after which waiting for a quiet machine ends."""


class Row(NamedTuple):
    what: str
    target: str
    measured: str
    reached: bool | None
    """Whether the target was met; None if there is no target, or the machine was too busy to tell."""


class Shell:
    """Runs commands as a user would, but with a store and a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "benchmarks.db"
        self.environ = {**os.environ, "XDG_CACHE_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
        self.environ.pop("OPMARK_DB", None)
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed opmark has compiled modules, too

    def run(self, *command: str, codes: Sequence[int] = (0,)) -> str:
        """Return the standard output of a command; its other output is printed only if it fails."""
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True)
        if done.returncode not in codes:
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def time(self, *command: str) -> float:
        start = time.perf_counter()
        self.run(*command)
        return time.perf_counter() - start


class Bystanders:
    """Measures the share of all cores that other processes took since the start, without ours and our children."""

    def __init__(self) -> None:
        self._start = self._now()

    def share(self) -> float:
        wall, busy, own = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return max(0.0, busy - own) / (wall * (os.cpu_count() or 1))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        return time.perf_counter(), sum(times[:8]) - idle, sum(os.times()[:4])


def wait_for_quiet() -> None:
    """Wait until other processes leave the cores idle for a while, or until a time limit."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        bystanders = Bystanders()
        time.sleep(_QUIET_SECONDS)
        if bystanders.share() < _QUIET:
            return


def inside_the_clock(measurement: Measurement) -> float:
    """Return the seconds inside of timed sections, over warm-up and all samples."""
    timed = sum(sample + measurement.overhead for sample in measurement.samples) * measurement.calls
    return timed + measurement.warmup_time


def markdown(rows: Sequence[Row]) -> str:
    lines = ["| what | target | measured | reached |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.target} | {row.measured} | {_verdict(row)} |" for row in rows]
    return "\n".join(lines)


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body))


def _verdict(row: Row) -> str:
    if row.reached is None:
        return "undecided" if row.target else ""
    return "yes" if row.reached else "**no**"
