"""List which operators can be measured: `opmark coverage`.

By framework: how each of its operators can be measured (curated, as a callable, with a sample). By backend: which
operators of the catalogue it implements, and which of these stored runs have verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Literal, overload

from opmark.api.keywords import typed
from opmark.api.result import open_store
from opmark.catalogue.families.opinfo import PREFIX, entries
from opmark.errors import UnknownName
from opmark.plugin import BackendInfo, Operator
from opmark.plugin.registry import DRILL, backends, candidates, catalogue, implementations
from opmark.schema import Record
from opmark.schema.coverage import Coverage, CoveredOperator, ImplementedOperator, Matrix
from opmark.schema.options import PathLike
from opmark.schema.record import MEASURED
from opmark.store import memory
from opmark.store.location import store_exists
from opmark.store.protocol import Store

FRAMEWORKS = ("torch", "numpy")
# A run with at least this many operators of a framework's database was meant to measure all of them.
_LEAST_OPERATORS = 500
_BY = ("framework", "backend")


def check_grouping(by: str) -> str:
    """Check the value of `--by`."""
    if by not in _BY:
        raise UnknownName("grouping", by, _BY)
    return by


def torch_coverage(framework: str, run: str = "", records: Sequence[Record] = ()) -> Coverage:
    """Return the coverage of a framework; `records` are those of a run of its own operators, if there is one."""
    if framework not in FRAMEWORKS:
        raise UnknownName("framework", framework, FRAMEWORKS)
    found = _torch(_outcomes(records)) if framework == "torch" else _numpy()
    return Coverage(framework, found, run)


def find_coverage_run(store: Store, framework: str) -> tuple[str, list[Record]]:
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


def _torch(outcomes: Mapping[str, dict[str, str]]) -> list[CoveredOperator]:
    curated = _curated("torch")
    return [
        CoveredOperator(
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


def _numpy() -> list[CoveredOperator]:
    """List every public function of NumPy, which has no operator database."""
    import numpy

    curated = _curated("numpy")
    names = sorted(name for name in numpy.__all__ if _is_function(getattr(numpy, name)))
    return [
        CoveredOperator(name, name, [1, 2] if about else [2], about, differentiable=False)
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
            became = "ok" if record.status in MEASURED else f"{record.status}: {record.reason}"
            phases = found.setdefault(case.op.removeprefix(PREFIX), {})
            if phases.get(case.phase, "ok") == "ok":  # a failure in one of several processes wins
                phases[case.phase] = became
    return found


@overload
def coverage(framework: str = ..., *, by: Literal["framework"] = ..., db: PathLike | None = ...) -> Coverage: ...
@overload
def coverage(framework: str = ..., *, by: str, db: PathLike | None = ...) -> Coverage | Matrix: ...
@typed
def coverage(framework: str = "torch", *, by: str = "framework", db: PathLike | None = None) -> Coverage | Matrix:
    """Return which operators of a framework can be measured and how; by `backend`, which operators of the catalogue
    each backend implements. Both include the results of stored runs."""
    with closing(open_store(db) if store_exists(db) else memory.MemoryStore()) as store:
        if check_grouping(by) == "backend":
            return matrix(store)
        return torch_coverage(framework, *find_coverage_run(store, framework))


def implemented() -> Matrix:
    """Return which operators of the catalogue each backend implements, without a store."""
    return matrix(memory.MemoryStore())


def matrix(store: Store) -> Matrix:
    """Make the matrix from the registry and the store, without operators that fail on purpose and backends that compute
    nothing."""
    infos = [info for info in backends().values() if info.computes]
    runs, verified = store.runs(), dict[str, dict[str, list[str]]]()
    for run in runs:
        _add_verified(store.records(run.id), verified)
    listed = [operator for operator in catalogue().values() if operator.category != DRILL]
    return Matrix(
        {info.name: info.name.removesuffix(f"-{info.device}") for info in infos},
        [info.name for info in infos if info.differentiates],
        [_coverage_of(operator, infos, verified.get(operator.name, {})) for operator in listed],
        len(runs),
    )


def _add_verified(records: Sequence[Record], verified: dict[str, dict[str, list[str]]]) -> None:
    """Add verified phases by operator and backend; a variant or another interpreter counts as the same backend."""
    for record in records:
        task, check = record.task, record.verification
        if record.status in MEASURED and check is not None and check.checked != "none":
            name = task.backend.partition("@")[0].partition("/")[0]
            phases = verified.setdefault(task.case.op, {}).setdefault(name, [])
            if task.case.phase not in phases:
                phases.append(task.case.phase)


def _coverage_of(
    operator: Operator, infos: Sequence[BackendInfo], verified: Mapping[str, list[str]]
) -> ImplementedOperator:
    labels = {info.name: [one.label for one in implementations(operator, info)] for info in infos}
    lacking = {info.name: reason for info in infos if (reason := info.lacks.get(operator.name)) and labels[info.name]}
    return ImplementedOperator(
        operator.name,
        operator.category,
        bool(operator.gradients),
        {name: found for name, found in labels.items() if found},
        lacking,
        dict(verified),
    )
