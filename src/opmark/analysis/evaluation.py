"""How accurate models are on labelled data, and whether each backend and element type equals the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from opmark.errors import UserError
from opmark.schema import Record
from opmark.schema.evaluation import LABEL, DataChoice, Metric
from opmark.schema.record import Status
from opmark.stats.accuracy import MARGIN, AccuracyVerdict, compare_scores, judge_difference

_WIDEST = "float32"
"""Element type of the reference, where it was evaluated in that."""


class MetricDifference(Struct, frozen=True):
    """What a figure differs by from the reference's on the same samples."""

    value: float
    """The plain difference; for a perplexity, the ratio minus 1."""
    low: float
    high: float
    p: float
    verdict: AccuracyVerdict
    needed: int | None = None
    """About how many samples would decide, where it is undecided."""
    relative: bool = False


class AccuracyRow(Struct, frozen=True):
    """The accuracy of one model on one backend in one element type."""

    op: str
    params: dict[str, Any]
    dtype: str
    backend: str
    implementation: str
    status: Status
    reason: str
    data: DataChoice
    samples: int = 0
    available: int = 0
    digest: str = ""
    metrics: dict[str, Metric] = {}
    reference: str = ""
    """Backend and element type that it is compared with; empty for the reference itself."""
    differences: dict[str, MetricDifference] = {}
    refused: str = ""
    """Why it is not compared with the reference."""
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The verdict on the first figure."""
        first = next(iter(self.differences.values()), None)
        return first.verdict if first else ""


def accuracy_rows(records: Sequence[Record], reference: str = "", margin: float = MARGIN) -> list[AccuracyRow]:
    """Return a row for each record that was to be evaluated. Each is compared with the record of the same case on the
    reference backend, in float32 if there is one, else in its own element type. Without a name, the first backend is
    the reference."""
    wanted = [record for record in records if record.task.settings.data]
    reference = reference or next((record.task.backend for record in wanted), "")
    if wanted and not any(record.task.backend == reference for record in wanted):
        known = ", ".join(dict.fromkeys(record.task.backend for record in wanted))
        raise UserError(f"nothing was evaluated on the reference `{reference}`", f"--reference takes one of {known}")
    return [_row(record, _find_reference(record, wanted, reference), margin) for record in wanted]


def _find_reference(record: Record, records: Sequence[Record], backend: str) -> Record | None:
    """Return the record that this one is compared with; the record itself if it is the reference."""
    own = record.task.case.params.get("dtype")
    of_case = [
        other
        for other in records
        if other.task.backend == backend
        and other.task.case.op == record.task.case.op
        and _without_dtype(other) == _without_dtype(record)
        and other.task.settings.data == record.task.settings.data
    ]
    by_dtype = {other.task.case.params.get("dtype"): other for other in reversed(of_case)}
    return by_dtype.get(_WIDEST) or by_dtype.get(own)


def _without_dtype(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.task.case.params.items() if name != "dtype"}


def _row(record: Record, reference: Record | None, margin: float) -> AccuracyRow:
    task, found = record.task, record.evaluation
    assert task.settings.data is not None
    is_reference = reference is not None and reference.task == task
    differences: dict[str, MetricDifference] = {}
    refused = ""
    if found and not is_reference:
        refused = _why_refused(record, reference)
        if not refused:
            differences = _compare(record, reference, margin)  # type: ignore[arg-type]
    return AccuracyRow(
        op=task.case.op,
        params=_without_dtype(record),
        dtype=str(task.case.params.get("dtype", "")),
        backend=task.backend,
        implementation=task.implementation,
        status=record.status,
        reason=record.reason,
        data=task.settings.data,
        samples=found.samples if found else 0,
        available=found.available if found else 0,
        digest=found.digest if found else "",
        metrics=found.metrics if found else {},
        reference="" if is_reference or reference is None else _name(reference),
        differences=differences,
        refused=refused,
        notes=found.notes if found else (),
    )


def _name(record: Record) -> str:
    return f"{record.task.backend} {record.task.case.params.get('dtype', '')}".strip()


def _why_refused(record: Record, reference: Record | None) -> str:
    """Return why two evaluations cannot be compared; empty if they can be."""
    assert record.evaluation is not None
    if reference is None:
        return "the reference was not evaluated with these parameters"
    if reference.evaluation is None:
        return f"the reference {_name(reference)} has no figures: {reference.status}: {reference.reason}"
    ours, theirs = record.evaluation.digest, reference.evaluation.digest
    if ours != theirs:
        return (
            f"not the same samples as the reference {_name(reference)}: digest {ours or 'none'}, expected "
            f"{theirs or 'none'}; the data changed in between"
        )
    return ""


def _compare(record: Record, reference: Record, margin: float) -> dict[str, MetricDifference]:
    ours, theirs = record.evaluation, reference.evaluation
    assert ours is not None
    assert theirs is not None
    found = {}
    for name, metric in ours.metrics.items():
        if name not in ours.scores or name not in theirs.scores:
            continue  # a figure without scores of samples is shown and not compared
        difference = compare_scores(metric.kind, ours.scores[name], theirs.scores[name], ours.scores.get(LABEL, ()))
        judged = judge_difference(difference, ours.samples, metric.better, margin)
        found[name] = MetricDifference(*difference, *judged, metric.kind == "perplexity")
    return found
