"""Reference results of the zoo, which ship as a stored run: what the same models do on machines that are named."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import cache
from importlib.resources import as_file, files
from typing import Any

from opmark.api.result import open_store
from opmark.interop.general_perf.report import performance
from opmark.interop.general_perf.resolution import ResolvedTask
from opmark.schema import Environment, Record, Run
from opmark.schema.machine import chip

STORE = "reference.sqlite"


@cache
def stored_reference() -> tuple[tuple[Run, tuple[Record, ...], tuple[Environment, ...]], ...]:
    """Return the runs of the store that ships."""
    place = files("opmark.interop.general_perf") / STORE
    if not place.is_file():
        return ()
    with as_file(place) as path, closing(open_store(path)) as store:
        found = []
        for run in store.runs():
            records = tuple(store.records(run.id))
            environments = store.environments(sorted({one.environment for one in records if one.environment}))
            found.append((run, records, tuple(environments.values())))
        return tuple(found)


def read_reference(task: ResolvedTask) -> list[dict[str, Any]]:
    """Return what the reference machines did with the model of a task, in the same precision: for each machine and
    backend, ByteMLPerf's lines of the batch sizes that were measured there."""
    found: list[dict[str, Any]] = []
    for run, records, environments in stored_reference():
        facts = {one.id: one.facts for one in environments}
        for backend in dict.fromkeys(record.task.backend for record in records):
            own = [record for record in records if record.task.backend == backend and _same_model(record, task)]
            if own:
                machine = facts.get(own[0].environment, {})
                lines = _lines(own)
                found.append(
                    {
                        "Machine": chip(machine) or machine.get("cpu") or "",
                        "Backend": backend,
                        "Threads": own[0].task.settings.threads,
                        "opmark": machine.get("opmark"),
                        "Framework": next((f"{name} {machine[name]}" for name in _FRAMEWORKS if name in machine), ""),
                        "Date": own[0].started[:10],
                        "Run": run.id,
                        "Cautions": sorted({text for line in lines for text in line.get("Cautions", ())}),
                        "Performance": lines,
                    }
                )
    return found


_FREE = ("batch", "weights")
_FRAMEWORKS = ("onnxruntime", "tensorflow", "jax", "torch")


def _same_model(record: Record, task: ResolvedTask) -> bool:
    case, wanted = record.task.case, task.params[0]
    return case.op == task.operator.removesuffix("-mhlo") and all(
        case.params.get(key) == value for key, value in wanted.items() if key not in _FREE
    )


def _lines(records: Sequence[Record]) -> list[dict[str, Any]]:
    sizes = sorted({record.task.case.params["batch"] for record in records})
    by_size = {size: [record for record in records if record.task.case.params["batch"] == size] for size in sizes}
    return [line for size in sizes for line in performance(size, by_size[size])]
