"""Identical code against itself on this machine: how often sessions, single processes and runs in turns are called
different. Every such verdict is false.

    python -m benchmarks.aa_real --backend torch-cpu --sessions 6

It takes about a minute per session on a CPU. On a GPU, `--backend torch-cuda`.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import combinations
from pathlib import Path

import opmark
from benchmarks.common import table
from opmark.analysis.ranking import Contender, leads
from opmark.api.doctor import noise_floor
from opmark.api.result import open_store
from opmark.schema import Record
from opmark.schema.measurement import PREEMPTED

OPS = ("add", "exp", "softmax", "layer_norm", "matmul", "sum", "gelu", "transpose")
_DIFFERENT = ("faster", "slower")


def measure_sessions(db: Path, backend: str, sessions: int, processes: int) -> list[str]:
    """Measure the same cases in so many sessions; return the labels of the runs."""
    labels = [f"session {i}" for i in range(sessions)]
    for label in labels:
        opmark.run(list(OPS), size="small", backend=backend, effort="quick", processes=processes, label=label, db=db)
    return labels


def count_between_sessions(db: Path, labels: list[str], drift: float | None) -> tuple[int, int, int]:
    """Return the number of false verdicts, of undecided ones and of all, over all pairs of sessions."""
    found = [opmark.compare(a, b, db=db, drift=drift).counts() for a, b in combinations(labels, 2)]
    return (
        sum(one[word] for one in found for word in _DIFFERENT),
        sum(one["undecided"] for one in found),
        sum(sum(one.values()) for one in found),
    )


def count_single_processes(db: Path, labels: list[str], backend: str) -> tuple[int, int, int]:
    """Return how many pairs of single processes of a session have a leader by the rules of a ranking, how many differ
    by more than twice the noise floor, and how many pairs there are. Numbers that the scheduler made do not count."""
    noise = noise_floor(backend, db=db)
    led = naive = every = 0
    store = open_store(db)
    for run in [run for run in store.runs() if run.label in labels]:
        by_case: dict[str, list[Record]] = {}
        for record in store.records(run.id):
            found = record.measurement()
            if found and not any(caution.code == PREEMPTED for caution in found.cautions):
                by_case.setdefault(record.task.case.id, []).append(record)
        for records in by_case.values():
            for pair in combinations(records, 2):
                one, other = (Contender((record,), run.id, noise) for record in pair)
                found = pair[0].measurement()
                assert found is not None
                key = (found.quantity, found.cache)
                medians = [summary.median for contender in (one, other) if (summary := contender.summary(key))]
                floor = noise.floor_for(medians[0], *key) or 0.0
                every += 1
                naive += max(medians) > (1 + 2 * floor) * min(medians)
                led += leads(one, other, key) or leads(other, one, key)
    store.close()
    return led, naive, every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="torch-cpu")
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of `ab --same`")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "aa.db"
        labels = measure_sessions(db, given.backend, given.sessions, given.processes)
        body = []
        for name, drift in (("two sessions, `--drift 2%`", 0.02), ("two sessions, by default", None)):
            false, undecided, every = count_between_sessions(db, labels, drift)
            body.append([name, str(every), f"{false / every:.1%}", f"{undecided / every:.0%}"])
        led, naive, every = count_single_processes(db, labels, given.backend)
        body.append(["single processes, twice the noise floor", str(every), f"{naive / every:.1%}", ""])
        body.append(["single processes, `rank`", str(every), f"{led / every:.1%}", f"{1 - led / every:.0%}"])
        counts = opmark.ab(
            list(OPS), size="small", backend=given.backend, same=True, db=db, budget=given.budget
        ).counts()
        false, every = sum(counts[word] for word in _DIFFERENT), sum(counts.values())
        body.append(["`ab --same`", str(every), f"{false / every:.1%}", f"{counts['undecided'] / every:.0%}"])
    print(table(["identical code", "comparisons", "called different", "undecided"], body))


if __name__ == "__main__":
    main()
