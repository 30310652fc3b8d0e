"""Share of the time of a run that is measurement."""

from __future__ import annotations

import opmark
from benchmarks.common import Row, Shell, inside_the_clock
from benchmarks.tiny_cases import CASES, run


def rows(shell: Shell) -> list[Row]:
    wall = run(shell, CASES)
    records = opmark.show(db=shell.db).records
    measuring = sum(inside_the_clock(m) for record in records for m in record.measurements)
    tasks = sum(record.duration for record in records)
    parts = {
        "warm-up and samples": measuring,
        "inputs, verification and memory": tasks - measuring,
        "start, store and output": wall - tasks,
    }
    text = ", ".join(f"{name} {part:.1f} s ({100 * part / wall:.0f} %)" for name, part in parts.items())
    return [Row(f"where the {wall:.1f} s of a run of the 200 tiny cases go", "", text, None)]
