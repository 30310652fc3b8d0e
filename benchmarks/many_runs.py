"""Makes a store of many simulated runs quickly: rows are encoded once and used again for every run.

    python -m benchmarks.many_runs many.db --runs 200 --cases 10000

Every run has the same cases. Each record is one of a few variants, which differ by half a percent: histories have
noise, and a third of the cases got slower by a twentieth half-way.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from opmark.schema import Record, Run
from opmark.store.record_codec import case_row, to_row
from opmark.store.sql import open_sql

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from showcase import CPU, GPU, Again, Maker, fill

SHARED = 20
"""One case in 20 is measured by a second backend too."""
BROKEN = 500
"""One case in 500 fails."""
VARIANTS = 4
SLOWER = 1.05
_OPS = ("matmul", "add", "exp", "softmax", "relu", "sum")
_DTYPES = ("float32", "float16")
_WIDTHS = (64, 256, 1024, 4096)


def records(cases: int, factor: float = 1.0) -> Iterator[Record]:
    """Yield the records of one run, each of another case; the times of every third case are multiplied by `factor`."""
    maker = Maker(7)
    for number in range(cases):
        op, dtype = _OPS[number % len(_OPS)], _DTYPES[number // len(_OPS) % len(_DTYPES)]
        width = _WIDTHS[number // 12 % len(_WIDTHS)]
        shape = {"M": 16 + number, "N": width, "K": width} if op == "matmul" else {"shape": [16 + number, width]}
        params = {**shape, "dtype": dtype}
        if number % BROKEN == BROKEN - 1:
            yield maker.failed(op, params, "torch-cpu", "error", f"RuntimeError: the {number}th of them is broken")
            continue
        own = factor if number % 3 == 0 else 1.0
        backend, where = ("torch-cuda", GPU) if number // 6 % 2 else ("torch-cpu", CPU)
        yield maker.record(op, params, backend, where, factor=own)
        if number % SHARED == 0:
            yield maker.record(op, params, "jax-cpu", CPU, factor=1.3 * own)


def run_of(number: int, tasks: int, label: str = "nightly") -> Run:
    """Return the run of a night, counted from the first of 2030."""
    year, day = 2030 + number // 336, number % 336
    started = f"{year}-{day // 28 + 1:02}-{day % 28 + 1:02}T02:00:00.000+00:00"
    return Run(f"{started[:10].replace('-', '')}-020000-{number:08x}", started, "many", tasks, label,
               command="opmark run --suite many", version="0.8.0", revision=f"{number:040x}")  # fmt: skip


def fill_many(db: str | Path, runs: int, cases: int) -> list[Run]:
    """Fill a store and return its runs, the oldest first."""
    fill(db, [])  # the machines
    before, after = (list(records(cases, factor)) for factor in (1.0, SLOWER))
    known = [case_row(case) for case in {r.task.case.id: r.task.case for r in before}.values()]
    packed = {True: _variants(after), False: _variants(before)}
    made, chance = [], random.Random(1)
    with closing(open_sql(db, create=True)) as store:
        for number in range(runs):
            run = run_of(number, len(before))
            store.begin(run)
            own = {"run_id": run.id, "started": run.started}
            variants = packed[number >= runs // 2]
            rows = [{**chance.choice(choices), **own} for choices in zip(*variants, strict=True)]
            store.extend_packed(list(known), rows)
            made.append(run)
    return made


def _variants(found: list[Record]) -> list[list[dict[str, Any]]]:
    return [[to_row("", Again(seed).again(record, 0)) for record in found] for seed in range(VARIANTS)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_runs", description=__doc__)
    parser.add_argument("db", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--cases", type=int, default=10_000)
    arguments = parser.parse_args()
    if arguments.db.exists():
        parser.error(f"{arguments.db} is there already")
    made = fill_many(arguments.db, arguments.runs, arguments.cases)
    print(f"{len(made)} runs in {arguments.db}, {arguments.db.stat().st_size / 1e6:,.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
