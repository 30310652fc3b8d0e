"""Records of a study whose law is known: `opmark factors` has measured nothing here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from opmark.analysis.factors import SESSION
from opmark.plugin.registry import operator
from opmark.schema import EFFORTS, Case, Measurement, Record, Resources, Run, Settings, Task

Law = Callable[[int, int, str], float]
"""Seconds of a call by size, number of threads and element type."""
SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048)
THREADS = (1, 2, 3, 4, 6, 8, 12, 16)
TYPES = ("float32", "float64")
RUN = Run("20300101-000000-00000001", "2030-01-01T00:00:00.000+00:00", "p", 1, "study", session=f"{SESSION}1")


def saturating(size: int, threads: int, dtype: str) -> float:
    """The time grows with the size, threads help up to 6, and float64 takes twice as long for large sizes only."""
    work = size**2 * (2 if dtype == "float64" and size > 256 else 1)
    return 1e-9 * work / min(threads, 6)


def record(
    size: int, threads: int, dtype: str, process: int, seconds: float, joules: float = 0.0, **settings: Any
) -> Record:
    known = operator("matmul")
    params = known.complete({"M": size, "N": size, "K": size, "dtype": dtype})
    case = Case.of("matmul", params, "forward")
    task = Task(case, "torch-cpu", "torch", Settings(threads, "quick", EFFORTS["quick"], process=process, **settings))
    measured = [Measurement("latency", "warm", "virtual", [seconds] * 7, 1, 0.0, 1, 0.1, "precise")]
    if joules:
        measured.append(Measurement("energy", "warm", "energy counter", [joules], 1, 0.0, 1, 0.1, "precise"))
    started = f"2030-01-01T00:{process:02d}:00.000+00:00"
    return Record(task, "ok", "", tuple(measured), known.cost(params), started=started, duration=0.1)


def study_records(
    law: Law, noise: float = 0.01, processes: int = 4, seed: int = 0, watts: float = 0.0
) -> Iterator[Record]:
    """The curves through 256, 4 threads and float32, and the corners of every pair."""
    chance = random.Random(seed)
    points = [(size, 4, "float32") for size in SIZES] + [(256, threads, "float32") for threads in THREADS]
    points += [(256, 4, "float64")]
    points += [(size, threads, "float32") for size in (16, 2048) for threads in (1, 16)]
    points += [(size, 4, "float64") for size in (16, 2048)] + [(256, threads, "float64") for threads in (1, 16)]
    for process in range(processes):
        slower = chance.lognormvariate(0, 0.03)
        for point in dict.fromkeys(points):
            seconds = law(*point) * slower * chance.lognormvariate(0, noise)
            yield record(*point, process, seconds, watts * seconds)


def placed(process: int, placement: str, seconds: float) -> Record:
    resources = Resources(placement, (0, 1)) if placement != "free" else None
    return record(256, 2, "float32", process, seconds, resources=resources)
