"""Which stage each model reached on each backend: exported, compiled, ran, right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from opmark.analysis.rows import Row
from opmark.plugin.registry import backend_or_none
from opmark.schema.record import TaskStage
from opmark.units import percent

Reached = Literal["yes", "no", "?", ""]
"""`?`: nobody knows, as whether unchecked results are right. Empty: not needed, or not reached."""
_NATIVE = ("", "torch")
"""Implementations that need no export: models are written in torch."""
_STAGES: tuple[str, ...] = get_args(TaskStage)


class UsabilityRow(Struct, frozen=True):
    model: str
    parameters: str
    backend: str
    """Backend, implementation if there are several, threads."""
    exported: Reached
    compiled: Reached
    ran: Reached
    right: Reached
    coverage: str
    """Share of the operators that the backend took, and of the FLOPs where that is another; empty if unknown."""
    stage: str
    """The stage that failed; empty if none did, or nothing was tried."""
    reason: str
    """The first line of the reason why it ended there, was not tried, or is unchecked."""
    edits: str
    """What had to be changed in the model: `none`, as models run unchanged; empty if it did not run."""
    options: str
    """The variant of the backend, its interpreter, and variables that change what it computes with; or `none`."""


def usability(rows: Iterable[Row], environments: Mapping[str, Mapping[str, Any]]) -> list[UsabilityRow]:
    """Return a line for each model and backend, those of one model together. `environments` has facts by id."""
    found = [_line(row, environments.get(row.environment, {})) for row in rows if row.is_model]
    order = {model: place for place, model in enumerate(dict.fromkeys((one.model, one.parameters) for one in found))}
    return sorted(found, key=lambda one: order[one.model, one.parameters])


def _line(row: Row, facts: Mapping[str, Any]) -> UsabilityRow:
    info = backend_or_none(row.backend)
    compiles = row.compile_time is not None or (info is not None and info.compiles)
    exported = _reached("export", row) if row.implementation not in _NATIVE else ""
    ran = _reached("run", row)
    right: Reached = _reached("verify", row)
    if right == "yes" and row.verified not in ("full", "sampled"):
        right = "?"
    plain, _, python = row.backend.partition("@")
    variables = facts.get("variables")
    options = [
        plain.partition("/")[2],
        python,
        *(f"{name}={value}" for name, value in (variables.items() if isinstance(variables, Mapping) else ())),
    ]
    return UsabilityRow(
        model=row.op,
        parameters=" ".join(filter(None, (row.parameters, "" if row.phase == "forward" else row.phase_text))),
        backend=row.place,
        exported=exported,
        compiled=_reached("compile", row) if compiles else "",
        ran=ran,
        right=right,
        coverage=_coverage(row),
        stage=row.stage,
        # What disturbed a measurement says nothing about the model.
        reason="" if row.status == "disturbed" else next(iter(row.reason.strip().splitlines()), ""),
        edits="none" if ran == "yes" else "",
        options=" ".join(filter(None, options)) or "none",
    )


def _coverage(row: Row) -> str:
    covered = row.coverage
    if covered is None or not covered.operators:
        return ""
    text = percent(covered.taken / covered.operators)
    return text if covered.flops is None else f"{text}, {percent(covered.flops)} of FLOPs"


def _reached(stage: TaskStage, row: Row) -> Reached:
    """Whether a task has passed a stage; empty if it never came there."""
    if not row.stage:  # it reached its end, or was never tried
        return "" if row.status == "skipped" or row.failed else "yes"
    ended, asked = _STAGES.index(row.stage), _STAGES.index(stage)
    return "yes" if asked < ended else "no" if asked == ended else ""
