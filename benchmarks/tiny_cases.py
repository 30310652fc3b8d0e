"""Time of 200 tiny cases, and agreement of their results with torch.utils.benchmark."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

import opmark
from benchmarks.common import OPMARK, Row, Shell
from opmark.runner.session import run_plan
from opmark.runner.supervisor import WorkerOptions

THREADS = 2
TIME_TARGET = 12.0
AGREEMENT = 0.05
SHORTEST = 20e-6
"""Seconds per call; below this the loops around the calls, which differ, matter too much."""
MIN_RUN_TIME = 0.05
TIMEOUT = 60.0
ROUNDS = 20
ENOUGH = 3
"""Comparisons that count, the same number for every case: stopping at the first good one would prove nothing."""


class Tiny(NamedTuple):
    op: str
    n: int

    def __str__(self) -> str:
        return f"{self.op} {self.n}x{self.n}"


CASES = [Tiny(op, round(4 + i * 252 / 99)) for op in ("add", "matmul") for i in range(100)]


class Comparison(NamedTuple):
    """A measurement of opmark between two of blocked_autorange, all within a fraction of a second."""

    before: float
    opmark: float
    after: float

    @property
    def ratio(self) -> float:
        return self.opmark / math.sqrt(self.before * self.after)

    @property
    def drift(self) -> float:
        return self.after / self.before


def rows(shell: Shell) -> list[Row]:
    took = run(shell, CASES)
    compared = [case for case in CASES if blocked_autorange(case) > SHORTEST]
    found = _compare(shell.folder, compared)
    name = "200 tiny cases from the shell to the output"
    return [
        Row(name, f"at most {TIME_TARGET:g} s", f"{took:.1f} s", took <= TIME_TARGET),
        _agreement(found),
        _yardstick(found),
    ]


def run(shell: Shell, cases: Collection[Tiny]) -> float:
    """Return the seconds that opmark takes for all cases, from the shell."""
    file = str(_workload(shell.folder, cases))
    options = ("--effort", "quick", "--backend", "torch-cpu", "--threads", str(THREADS), "--json")
    start = time.perf_counter()
    output = shell.run(OPMARK, "run", "-w", file, *options, "--db", str(shell.db))
    took = time.perf_counter() - start
    if len(output.splitlines()) != len(cases):
        raise RuntimeError(f"expected {len(cases)} records, got {len(output.splitlines())}")
    return took


def _workload(folder: Path, cases: Iterable[Tiny]) -> Path:
    params = {"add": lambda n: {"shape": [n, n]}, "matmul": lambda n: {"M": n, "N": n, "K": n}}
    entries = [{"op": op, "params": params[op](n)} for op, n in cases]
    file = folder / "tiny.json"
    file.write_text(json.dumps({"schema": 1, "name": "tiny", "cases": entries}))
    return file


def blocked_autorange(case: Tiny) -> float:
    """Return the median of the same call on similar data, by torch's own benchmark."""
    import torch
    from torch.utils.benchmark import Timer

    a, b = (torch.empty(case.n, case.n).uniform_(-1, 1) for _ in range(2))
    timer = Timer(f"torch.{case.op}(a, b)", globals={"torch": torch, "a": a, "b": b}, num_threads=THREADS)
    return float(timer.blocked_autorange(min_run_time=MIN_RUN_TIME).median)


def _compare(folder: Path, cases: Collection[Tiny]) -> dict[Tiny, list[Comparison]]:
    """Compare round by round until every case is decided."""
    found: dict[Tiny, list[Comparison]] = {case: [] for case in cases}
    for number in range(ROUNDS):
        left = [case for case, comparisons in found.items() if not _is_decided(comparisons)]
        if not left:
            break
        _say(f"  round {number + 1}: {len(left)} cases")
        for case, comparison in zip(left, _side_by_side(folder, left), strict=True):
            found[case].append(comparison)
    return found


def _side_by_side(folder: Path, cases: Collection[Tiny]) -> Iterator[Comparison]:
    plan = opmark.plan(workload=_workload(folder, cases), backend="torch-cpu", threads=THREADS, effort="quick")
    with closing(run_plan(plan, WorkerOptions(TIMEOUT, say=_say))) as records:
        for case in cases:
            before = blocked_autorange(case)
            record = next(records)
            if record.status != "ok":
                raise RuntimeError(f"{case}: {record.status}: {record.reason}")
            yield Comparison(before, median(record.measurements[0].samples), blocked_autorange(case))


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def _is_decided(comparisons: Collection[Comparison]) -> bool:
    return len(_valid(comparisons)) >= ENOUGH


def _valid(comparisons: Iterable[Comparison]) -> list[float]:
    """Return the ratios of comparisons in which blocked_autorange agreed with itself; otherwise the machine changed."""
    return [comparison.ratio for comparison in comparisons if _inside(comparison.drift)]


def _inside(ratio: float) -> bool:
    return abs(ratio - 1) <= AGREEMENT


def _agreement(found: Mapping[Tiny, list[Comparison]]) -> Row:
    ratios = {case: median(_valid(tried)) for case, tried in found.items() if _is_decided(tried)}
    undecided = len(found) - len(ratios)
    outside = sum(not _inside(_valid(found[case])[0]) for case in ratios)
    tried = sum(map(len, found.values()))
    counted = sum(len(_valid(comparisons)) for comparisons in found.values())
    inside = all(map(_inside, ratios.values()))
    return Row(
        f"opmark's median over `blocked_autorange`'s, for the {len(found)} of these above {SHORTEST * 1e6:g} µs",
        f"each within {100 * AGREEMENT:.0f} %",
        f"{_spread(ratios)}; {outside} outside at first, {undecided} undecided; "
        f"{counted} of {tried} comparisons on a steady machine",
        None if inside and undecided else inside,
    )


def _yardstick(found: Mapping[Tiny, list[Comparison]]) -> Row:
    drifts = {case: comparisons[0].drift for case, comparisons in found.items()}
    return Row("`blocked_autorange` over itself, a moment before", "", _spread(drifts), None)


def _spread(ratios: Mapping[Tiny, float]) -> str:
    if not ratios:
        return "nothing to compare"
    worst = max(ratios, key=lambda case: abs(ratios[case] - 1))
    inside = sum(map(_inside, ratios.values())) / len(ratios)
    return (
        f"median {median(ratios.values()):.3f}, worst {ratios[worst]:.3f} ({worst}), "
        f"{100 * inside:.0f} % within {100 * AGREEMENT:.0f} %"
    )
