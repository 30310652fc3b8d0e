"""List the operators of a framework and how each can be measured: curated, as a callable, with a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opmark.errors import UnknownName
from opmark.frameworks.opinfo import PREFIX, entries
from opmark.interfaces import Store
from opmark.registry import candidates, catalogue
from opmark.schema import Record
from opmark.schema.coverage import Coverage, Covered

FRAMEWORKS = ("torch", "numpy")
# A run with at least this many operators of a framework's database was meant to measure all of them.
_LEAST_OPERATORS = 500
_BY = ("framework", "backend")


def grouping(by: str) -> str:
    """Check the value of `--by`."""
    if by not in _BY:
        raise UnknownName("grouping", by, _BY)
    return by


def coverage(framework: str, run: str = "", records: Sequence[Record] = ()) -> Coverage:
    """Return the coverage of a framework; `records` are those of a run of its own operators, if there is one."""
    if framework not in FRAMEWORKS:
        raise UnknownName("framework", framework, FRAMEWORKS)
    found = _torch(_outcomes(records)) if framework == "torch" else _numpy()
    return Coverage(framework, found, run)


def last_of_most(store: Store, framework: str) -> tuple[str, list[Record]]:
    """Return the newest run of nearly all operators of a framework's database and its records, or ("", [])."""
    for run in store.runs() if framework == "torch" else ():
        records = [record for record in store.records(run.id) if record.task.case.op.startswith(PREFIX)]
        if len({record.task.case.op for record in records}) >= _LEAST_OPERATORS:
            return run.id, records
    return "", []


def _curated(framework: str) -> dict[str, list[str]]:
    """Return the names of catalogue operators by the framework's function that they call."""
    found: dict[str, list[str]] = {}
    for operator in catalogue().values():
        for implementation in (one for one in candidates(operator) if one.framework == framework):
            if implementation.path and operator.name not in found.get(implementation.path, ()):
                found.setdefault(implementation.path, []).append(operator.name)
    return found


def _torch(outcomes: Mapping[str, dict[str, str]]) -> list[Covered]:
    curated = _curated("torch")
    return [
        Covered(
            entry.name,
            entry.function,
            [tier for tier, there in enumerate((bool(about), bool(entry.path), bool(entry.dtypes)), 1) if there],
            about,
            entry.differentiable,
            outcomes.get(entry.name, {}),
        )
        for entry in entries()
        for about in [curated.get(entry.path, [])]
    ]


def _numpy() -> list[Covered]:
    """List every public function of NumPy, which has no operator database."""
    import numpy

    curated = _curated("numpy")
    names = sorted(name for name in numpy.__all__ if _is_function(getattr(numpy, name)))
    return [
        Covered(name, name, [1, 2] if about else [2], about, differentiable=False)
        for name in names
        for about in [curated.get(f"numpy.{name}", [])]
    ]


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


def _outcomes(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for record in records:
        case = record.task.case
        if case.op.startswith(PREFIX):
            became = record.status if record.status == "ok" else f"{record.status}: {record.reason}"
            phases = found.setdefault(case.op.removeprefix(PREFIX), {})
            if phases.get(case.phase, "ok") == "ok":  # a failure in one of several processes wins
                phases[case.phase] = became
    return found
