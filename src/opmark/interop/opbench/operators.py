"""The operator table of OpBench's README: main operator, models, input data, parameter data, schedule configurations;
here with counts, times and shares of the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from opmark.analysis.rows import Row, case_parameters
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, TensorSpec
from opmark.schema.record import COUNTED, MEASURED
from opmark.tuning.spaces import Tunable
from opmark.units import percent, seconds

_WEIGHTS = frozenset(
    {"weight", "bias", "table", "running_mean", "running_var", "mean", "variance", "gamma", "beta", "scale"}
)
"""Inputs of operators that hold parameters of a model."""
HEADS = ("main operator", "models", "input data", "parameter data", "schedule configurations", "count", "time", "share")


class OperatorSpace(Struct, frozen=True):
    """A space of an operator, in brief; data/ConfigSpace has it whole."""

    implementation: str
    size: int
    knobs: tuple[str, ...]


class KeyOperator(Struct, frozen=True):
    """A line of the table."""

    operator: str
    parameters: str
    case: str
    models: dict[str, int]
    """How often each model calls it."""
    input_data: dict[str, str]
    parameter_data: dict[str, str]
    spaces: tuple[OperatorSpace, ...] = ()
    status: str = "not timed"
    reason: str = ""
    seconds: float | None = None
    """Median of one call."""
    share: float | None = None
    """Time of all its calls relative to that of all operators."""
    cumulative: float | None = None
    """The same of this and all operators above it."""
    code: dict[str, Any] = {}
    """What was compiled for a target that is not this machine's: kind and size."""

    @property
    def count(self) -> int:
        return sum(self.models.values())

    @property
    def total(self) -> float | None:
        return None if self.seconds is None else self.seconds * self.count


def describe_operator(case: Case, models: Mapping[str, int], tunables: Iterable[Tunable]) -> KeyOperator:
    inputs = find_operator(case.op).inputs(case.params)
    data = {name: _text(spec) for name, spec in inputs.items() if name not in _WEIGHTS}
    weights = {name: _text(spec) for name, spec in inputs.items() if name in _WEIGHTS}
    spaces = tuple(
        OperatorSpace(one.implementation.label, one.space.size, tuple(knob.name for knob in one.space.knobs))
        for one in tunables
    )
    return KeyOperator(case.op, case_parameters(case), case.id, dict(models), data, weights, spaces)


def _text(spec: TensorSpec) -> str:
    return f"{'x'.join(map(str, spec.shape)) or '()'} {spec.dtype}"


def with_times(operators: Sequence[KeyOperator], rows: Mapping[str, Row]) -> list[KeyOperator]:
    """Return the operators with what a run has measured of them, by the ids of their cases."""
    found = []
    for one in operators:
        row = rows.get(one.case)
        if row is None:
            found.append(one)
        else:
            measured = row.headline.median if row.headline and row.status in MEASURED else None
            found.append(replace(one, status=row.status, reason=row.reason, seconds=measured))
    return with_shares(found)


def with_shares(operators: Sequence[KeyOperator]) -> list[KeyOperator]:
    """Return the operators, those that take the most time first, with their shares of the time of all."""
    ordered = sorted(operators, key=lambda one: -(one.total or 0.0))
    whole = sum(one.total or 0.0 for one in ordered)
    found, before = [], 0.0
    for one in ordered:
        if one.total is None or not whole:
            found.append(one)
            continue
        own = one.total / whole
        before += own
        found.append(replace(one, share=own, cumulative=before))
    return found


def key_operators(operators: Sequence[KeyOperator], top: float) -> list[KeyOperator]:
    """Return the first operators that together make up this share of the time, and no more than are needed. Without
    times, or for all of the time, every operator."""
    if top >= 1 or not any(one.share for one in operators):
        return list(operators)
    kept, before = [], 0.0
    for one in operators:
        if one.share is None or before >= top - 1e-9:
            break
        kept.append(one)
        before = one.cumulative or before
    return kept


def table_lines(operators: Sequence[KeyOperator]) -> list[list[str]]:
    """Return the cells of the table for a terminal."""
    return [
        [
            f"{one.operator} {one.parameters}",
            ", ".join(one.models),
            ", ".join(one.input_data.values()),
            ", ".join(one.parameter_data.values()),
            "; ".join(f"{space.implementation} {space.size}" for space in one.spaces) or "-",
            str(one.count),
            _time(one),
            "" if one.share is None else percent(one.share),
        ]
        for one in operators
    ]


def _time(one: KeyOperator) -> str:
    if one.seconds is None:
        return one.status
    return seconds(one.seconds) if one.status in COUNTED else f"({seconds(one.seconds)}) {one.status}"
