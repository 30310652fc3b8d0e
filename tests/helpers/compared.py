"""Made-up figures for tests of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from opmark.analysis.compared_side import ComparedSide
from opmark.analysis.comparison import compare
from opmark.api.result import open_store
from opmark.schema import EFFORTS, Case, Environment, Measurement, Record, Run, Settings, Status, Task
from opmark.schema.comparison import Compared
from opmark.schema.machine import Floor, NoiseFloor
from opmark.schema.record import Figure

HERE = {"cpu": "a processor", "cores": 2, "threads": 2, "device": "cpu", "torch": "2.11", "backend": "torch-cpu"}
QUIET = (0.999, 1.0, 1.001, 1.0005, 0.9995)
"""Five processes that hardly differ."""


def case_of(op: str = "exp", size: int = 4, **more: Any) -> Case:
    return Case.of(op, {"shape": [size], "dtype": "float32", **more}, "forward")


def figures(
    medians: Sequence[float],
    case: Case | None = None,
    *,
    run: str = "run-a",
    backend: str = "torch-cpu",
    implementation: str = "torch",
    threads: int = 2,
    quantity: str = "latency",
    cache: Any = "warm",
    status: Status = "ok",
    environment: str = "here",
    cycles: Sequence[float] | None = None,
    cautions: tuple[str, ...] = (),
) -> list[Figure]:
    """One a process."""
    which = case or case_of()
    return [
        Figure(
            run, which.id, which.op, backend, implementation, threads, process, status, environment, "2030-01-01",
            quantity, cache, value, cycles[process] if cycles else None, cautions,
        )
        for process, value in enumerate(medians)
    ]  # fmt: skip


def failed(case: Case | None = None, status: Status = "error", process: int = 0, **more: Any) -> Figure:
    which = case or case_of()
    given = {"run": "run-a", "backend": "torch-cpu", "implementation": "torch", "threads": 2, **more}
    return Figure(
        given["run"], which.id, which.op, given["backend"], given["implementation"], given["threads"], process, status,
        "", "2030-01-01",
    )  # fmt: skip


def side(
    found: Sequence[Figure],
    name: str = "A",
    *,
    run: str | None = None,
    session: str = "",
    facts: Mapping[str, Any] | None = None,
    floor: float = 0.0,
    reason: str = "",
) -> ComparedSide:
    own = Run(run or f"run-{name.lower()}", "2030-01-01", "plan", len(found), session=session)
    noise = {"here": noise_of(floor)} if floor else {}
    return ComparedSide(
        name, own, found, {"here": dict(HERE if facts is None else facts)}, noise, why=lambda way: reason
    )


def noise_of(between: float) -> NoiseFloor:
    return NoiseFloor("a processor", "torch-cpu", 2, "", 10, 1, [Floor("exp", "", 1e-3, between, 0.0)])


def both(a: Sequence[Figure], b: Sequence[Figure], *cases: Case, **options: Any) -> Compared:
    """Two runs of the same machine, one after the other."""
    return compare(side(a), side(b, "B"), {c.id: c for c in cases or (case_of(),)}, **options)


def keep(
    db: Any,
    run: str,
    label: str,
    rows: Mapping[tuple[str, str], Sequence[float] | str],
    *,
    facts: Mapping[str, Any] | None = None,
    revision: str = "",
    session: str = "",
) -> Run:
    """A stored run: by backend and operator the medians of its processes, or the reason of a failure."""
    here = Environment.of({**HERE, **(facts or {})})
    made = Run(run, "2030-01-01T00:00:00", "plan", len(rows), label, revision=revision, session=session)
    with closing(open_store(db, create=True)) as store:
        store.begin(made)
        store.add_environment(here)
        for (backend, op), values in rows.items():
            framework = backend.partition("@")[0].partition("-")[0]
            for process, value in enumerate(["failed"] if isinstance(values, str) else values):
                settings = Settings(2, "quick", EFFORTS["quick"], process=process)
                task = Task(case_of(op), backend, framework, settings)
                if isinstance(values, str):
                    store.append(run, Record(task, "error", values))
                else:
                    found = (Measurement("latency", "warm", "virtual", [float(value)], 1, 0.0, 1, 0.0, "count"),)
                    store.append(run, Record(task, "ok", "", found, environment=here.id, started="2030"))
    return made
