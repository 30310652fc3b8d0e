"""Tabulate operators x backends: which implementations exist, and which of them stored runs have verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opmark.interfaces import BackendInfo, Store
from opmark.registry import DRILL, backends, catalogue, implementations
from opmark.schema import Operator, Record
from opmark.schema.coverage import Implemented, Matrix


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
        if record.status == "ok" and check is not None and check.checked != "none":
            name = task.backend.partition("@")[0].partition("/")[0]
            phases = verified.setdefault(task.case.op, {}).setdefault(name, [])
            if task.case.phase not in phases:
                phases.append(task.case.phase)


def _coverage_of(operator: Operator, infos: Sequence[BackendInfo], verified: Mapping[str, list[str]]) -> Implemented:
    labels = {info.name: [one.label for one in implementations(operator, info)] for info in infos}
    lacking = {info.name: reason for info in infos if (reason := info.lacks.get(operator.name)) and labels[info.name]}
    return Implemented(
        operator.name,
        operator.category,
        bool(operator.gradients),
        {name: found for name, found in labels.items() if found},
        lacking,
        dict(verified),
    )
