"""Accuracy on labelled data as cells and sentences, the same for the console, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.analysis.evaluation import AccuracyRow, MetricDifference
from opmark.schema.evaluation import Metric

HEADS = (
    "model",
    "params",
    "backend",
    "dtype",
    "metric",
    "value",
    "95 % interval",
    "difference",
    "p",
    "verdict",
    "samples",
)


def accuracy_cells(row: AccuracyRow) -> list[list[str]]:
    """Return a line of cells for each figure of a row; one line alone for a row without figures."""
    model = [row.op.removeprefix("model:"), _params(row), row.backend, row.dtype]
    share = f"{row.samples:,}" if row.samples == row.available else f"{row.samples:,} of {row.available:,}"
    if not row.metrics:
        return [[*model, "-", "-", "-", "-", "-", row.status, "-"]]
    return [
        [
            *model,
            name,
            format_figure(metric.value, metric),
            _interval(metric.low, metric.high, metric),
            *_difference(row, name, metric),
            share,
        ]
        for name, metric in row.metrics.items()
    ]


def accuracy_notes(rows: Sequence[AccuracyRow]) -> list[str]:
    """Return sentences below the table: what is not compared, what is undecided, what the data set says."""
    references = dict.fromkeys(row.reference for row in rows if row.reference)
    explained = [
        f"difference: to {', '.join(references)} on the same samples, with its 95 % interval; that of a perplexity is "
        "relative. same: the interval lies within the margin."
    ]
    notes: dict[str, list[str]] = {}
    for row in rows:
        who = f"{row.op.removeprefix('model:')} on {row.backend} {row.dtype}".rstrip()
        said = [*row.notes, *([f"not compared: {row.refused}"] if row.refused else [])]
        if not row.metrics:
            said.append(f"{row.status}: {row.reason}")
        said += [text for name, one in row.differences.items() if (text := _advice(row, name, one))]
        for text in said:
            notes.setdefault(text, []).append(who)
    said_of = [f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {text}" for text, names in notes.items()]
    return (explained if references else []) + said_of


def format_figure(value: float, metric: Metric) -> str:
    """Format shares, scores and areas in percent; losses and perplexities as they are."""
    return f"{value:.4g}" if metric.kind in ("loss", "perplexity") else f"{100 * value:.2f} %"


def _params(row: AccuracyRow) -> str:
    return " ".join(f"{name}={value}" for name, value in row.params.items() if value not in ("", "model", "full"))


def _interval(low: float | None, high: float | None, metric: Metric) -> str:
    return "-" if low is None or high is None else f"{format_figure(low, metric)} to {format_figure(high, metric)}"


def _difference(row: AccuracyRow, name: str, metric: Metric) -> list[str]:
    found = row.differences.get(name)
    if found is None:
        return ["-", "-", "not compared" if row.refused else "reference" if not row.reference else "-"]
    percent = found.relative or metric.kind != "loss"
    scale, unit = (100, " %") if percent else (1, "")
    ends = f"{scale * found.low:+.3g} to {scale * found.high:+.3g}"
    p = f"{found.p:.2g}" if found.p >= 1e-4 else "<1e-4"
    return [f"{scale * found.value:+.3g}{unit} ({ends})", p, found.verdict]


def _advice(row: AccuracyRow, name: str, found: MetricDifference) -> str:
    if found.verdict != "undecided":
        return ""
    if found.needed is None:
        return f"{name} is undecided, and no number of samples decides it within a margin of 0"
    have = f"; the data has {row.available:,}" if row.available < found.needed else ""
    return f"{name} is undecided: about {found.needed:,} samples would decide it{have}"
