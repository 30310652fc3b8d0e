"""ByteMLPerf's result-PRECISION.json of records: its keys, with numbers that mean what their names say.

Where ByteMLPerf computes a key otherwise, a note of the report says how it is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from opmark.analysis.accuracy import output_accuracies
from opmark.analysis.evaluation import accuracy_rows
from opmark.analysis.load import load_figures
from opmark.interop.general_perf.resolution import BackendChoice, ResolvedTask
from opmark.schema import Numerics, Record
from opmark.schema.evaluation import Evaluation
from opmark.schema.machine import chip
from opmark.schema.record import MEASURED
from opmark.stats.load import Estimate
from opmark.version import VERSION

MILLI = 1e-3
_METRICS = {"accuracy": ("Top-1", 1), "pairs": ("Top-1", 1), "EM": ("Exact Match", 100), "F1": ("F1 Score", 100)}
"""ByteMLPerf's names of metrics, and the factor by which its values are larger than ours."""
METRIC_NAMES = ("Top-1", "Top-5", "Exact Match", "F1 Score", "AUC", "log-loss")
"""Figures on labelled data as a report has them."""

PERFORMANCE_NOTES = (
    "QPS: samples answered per second of wall time over the whole window, with all clients at work; ByteMLPerf divides "
    "by a rounded mean of one client.",
    "P99 Latency: the 99th percentile with its interval; null where the samples cannot support it. ByteMLPerf's P99 is "
    "the largest of 100 samples.",
    "Clients send requests at the same time to one loaded model; ByteMLPerf reads the field and uses one client.",
    "Inputs are drawn over the whole range that the model takes; ByteMLPerf times whole numbers that are all 0 and "
    "masks that hide everything.",
)
NUMERIC_NOTES = (
    "Mean Diff to Mean Rel-Diff compare with a float64 reference sample by sample. NaN and Inf are counted and fail; "
    "ByteMLPerf replaces them by 0. Relative differences leave out elements whose reference is 0.",
)
COVERAGE_NOTE = (
    "Subgraph Coverage: share of the graph's operators that the backend has taken, as it reports them; null where "
    "nothing is compiled. ByteMLPerf's is the constant 100 on most backends."
)
ACCURACY_NOTES = {
    "open_squad": "SQuAD: Exact Match and F1 Score are means over questions; ByteMLPerf divides by the number of "
    "features, of which a long text has several.",
    "open_criteo_kaggle": "Criteo: AUC stands beside the accuracy, which says little on rare clicks.",
    "open_imagenet": "ImageNet: no background class is inserted, the last batch counts too, and data_percent is a "
    "drawn sample and not the first images.",
}


class TaskResults(Struct, frozen=True):
    """Everything that a report is made of."""

    task: ResolvedTask
    hardware: str
    choice: BackendChoice
    date: str
    records: Sequence[Record] = ()
    """Records of performance, numerics and compilation, one per batch size, load and process."""
    evaluations: Sequence[Record] = ()
    environments: Mapping[str, Mapping[str, Any]] = {}
    runs: Sequence[str] = ()
    notes: Sequence[str] = ()
    unfinished: Mapping[str, str] = {}
    """Why a part of the report is missing: `Accuracy`, `Performance`, `Pictures`."""
    reference: Sequence[Mapping[str, Any]] = ()
    pictures: Mapping[str, str] = {}


def make_report(results: TaskResults) -> dict[str, Any]:
    """Return the content of result-PRECISION.json."""
    task, workload = results.task, results.task.workload
    facts = next(iter(results.environments.values()), {})
    notes = [*([results.choice.note] if results.choice.note else ()), *task.notes, *results.notes]
    report: dict[str, Any] = {
        "Model": task.name.upper(),
        "Backend": results.hardware,
        "Host Info": facts.get("cpu") or "",
        "Dataset": (task.dataset or "fake_dataset").upper(),
        "Instance Count": 1,
        "Device Count": 1,
        "Graph Compile": _graph_compile(results),
        "Version": VERSION,
        "Execution Date": results.date,
    }
    asked_accuracy = workload.test_accuracy and not workload.compile_only
    if asked_accuracy or workload.test_numeric:
        report["Accuracy"] = _accuracy(results)
        notes += NUMERIC_NOTES if workload.test_numeric else ()
        notes += [ACCURACY_NOTES[task.dataset]] if task.dataset in ACCURACY_NOTES and asked_accuracy else []
    if workload.test_perf and not workload.compile_only:
        why = results.unfinished.get("Performance", "the run ended before")
        report["Performance"] = [
            line for size in workload.sizes for line in performance(size, _of_size(size, results), why)
        ]
        notes += PERFORMANCE_NOTES
    report["Reference"] = list(results.reference)
    report["Framework"] = {
        "Asked": task.framework or None,
        "Ran": results.choice.ran,
        "Backend": results.choice.backend,
        "Model": task.operator,
        "Weights": _weights(task),
    }
    report["Environment"] = {
        name: facts[name] for name in ("cpu", "gpu", "driver", "torch", "onnxruntime", "tensorflow", "jax", "python",
                                       "threads", "opmark") if name in facts
    }  # fmt: skip
    report["Runs"] = list(results.runs)
    report["Unfinished"] = dict(results.unfinished)
    report["Notes"] = list(dict.fromkeys([*notes, COVERAGE_NOTE]))
    if chip(dict(facts)):
        report["Environment"]["chip"] = chip(dict(facts))
    return report


def _weights(task: ResolvedTask) -> str:
    return task.own_file or task.params[0].get("weights") or "random, seeded: accuracy on real data means nothing"


def _of_size(size: int, results: TaskResults, records: Sequence[Record] | None = None) -> list[Record]:
    """Return the records of one batch size."""
    source = results.task.source(size)
    found = results.records if records is None else records
    return [record for record in found if source in record.task.case.sources]


# Performance.


def performance(size: int, records: Sequence[Record], why_none: str = "") -> list[dict[str, Any]]:
    """Return ByteMLPerf's line of one batch size for each number of clients, also where nothing was measured: then it
    says why."""
    if not records:
        line: dict[str, Any] = dict.fromkeys(("BS", "QPS", "AVG Latency", "P99 Latency"))
        return [{**line, "BS": size, "Status": "not tried", "Reason": why_none}]
    loads = dict.fromkeys(record.task.settings.load for record in records)
    return [_line(size, [record for record in records if record.task.settings.load == load]) for load in loads]


def _line(size: int, records: Sequence[Record]) -> dict[str, Any]:
    load = records[0].task.settings.load
    line: dict[str, Any] = {"BS": size, "QPS": None, "AVG Latency": None, "P99 Latency": None}
    worst = next((record for record in records if record.status not in MEASURED), records[0])
    line |= {"Status": worst.status, "Reason": worst.reason, "Clients": load.clients if load else None}
    measured = [one for record in records if record.status in MEASURED for one in record.measurements]
    figures = load_figures(measured, {"batch": size})
    if figures is None:
        return line
    line["QPS"], line["QPS Interval"] = _value(figures.samples_per_second), _interval(figures.samples_per_second)
    line["AVG Latency"], line["AVG Latency Interval"] = _value(figures.mean, MILLI), _interval(figures.mean, MILLI)
    for name, estimate in figures.percentiles.items():
        key = f"{name.upper()} Latency"
        line[key], line[f"{key} Interval"] = _value(estimate, MILLI), _interval(estimate, MILLI)
        if estimate.reason:
            line[f"{key} Reason"] = f"{estimate.reason}; --iterations sets their number"
    return line | {
        "Requests": figures.answered,
        "In Flight": round(figures.in_flight, 3),
        "Cautions": sorted({f"{one.code}: {one.message}" for m in measured for one in m.cautions}),
    }


def _value(estimate: Estimate, unit: float = 1.0) -> float | None:
    return None if estimate.value is None else _rounded(estimate.value / unit)


def _interval(estimate: Estimate, unit: float = 1.0) -> list[float] | None:
    if estimate.low is None or estimate.high is None or not math.isfinite(estimate.high):
        return None
    return [_rounded(estimate.low / unit), _rounded(estimate.high / unit)]


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


# Compilation.


def _graph_compile(results: TaskResults) -> dict[str, Any]:
    """Return the section of the first batch size that was compiled; times and coverage of the others follow."""
    found: dict[str, Any] = {
        "Compile Duration": None,
        "Compile Precision": results.task.precision.upper(),
        "Subgraph Coverage": None,
        "Optimizations": {},
    }
    compiled = [(record.task.case.params.get("batch"), record.compilation) for record in results.records
                if record.compilation]  # fmt: skip
    if not compiled:
        found["Note"] = f"{results.choice.backend} compiles nothing ahead of the first call"
        return found
    first = compiled[0][1]
    found["Compile Duration"] = round(first.cold, 5)
    if first.coverage and first.coverage.operators:
        found["Subgraph Coverage"] = round(100 * first.coverage.taken / first.coverage.operators, 2)
        found["FLOP Coverage"] = None if first.coverage.flops is None else round(100 * first.coverage.flops, 2)
        found["Fallback"] = first.coverage.fallback
        found["Note"] = first.coverage.note
    found["Cached Compile Duration"] = first.cached
    found["Export Duration"] = first.export
    found["Subgraphs"] = first.graphs
    found["Compile Duration by BS"] = {str(size): round(one.cold, 5) for size, one in compiled}
    return found


# Accuracy: figures on labelled data, and differences from the reference.


def _accuracy(results: TaskResults) -> dict[str, Any]:
    workload = results.task.workload
    found: dict[str, Any] = {}
    if workload.test_accuracy and not workload.compile_only:
        found["Data Percent"] = workload.data_percent
        own = [record for record in results.evaluations if record.task.backend == results.choice.backend]
        evaluation = next((record.evaluation for record in own if record.evaluation), None)
        found |= _metrics(evaluation) if evaluation else {"Reason": results.unfinished.get("Accuracy", "")}
        if evaluation and len(results.evaluations) > len(own):
            found["Against Reference"] = _against_reference(results)
    if workload.test_numeric:
        found |= _differences(results)
        if "differences" in results.pictures:
            found["Diff Dist"] = results.pictures["differences"]
    return found


def _metrics(evaluation: Evaluation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, metric in evaluation.metrics.items():
        title, factor = _METRICS.get(name, (name, 1))
        found[title] = _rounded(metric.value * factor)
        if metric.low is not None and metric.high is not None:
            found[f"{title} Interval"] = [_rounded(metric.low * factor), _rounded(metric.high * factor)]
    return found | {
        "Samples": evaluation.samples, "Samples Available": evaluation.available, "Data Digest": evaluation.digest,
        "Data Notes": list(evaluation.notes),
    }  # fmt: skip


def _against_reference(results: TaskResults) -> dict[str, Any]:
    """Return how the figures differ from those of the reference backend on the same samples, and whether chance may be
    why."""
    rows = accuracy_rows(results.evaluations)
    row = next(row for row in rows if row.backend == results.choice.backend)
    return {
        "Backend": row.reference,
        "Refused": row.refused,
        **{
            _METRICS.get(name, (name, 1))[0]: {
                "Difference": one.value, "Interval": [one.low, one.high], "p": one.p, "Verdict": one.verdict,
            }
            for name, one in row.differences.items()
        },
    }  # fmt: skip


def _differences(results: TaskResults) -> dict[str, Any]:
    """Return the differences of the first batch size that was compared, and the verdict of each batch size."""
    keys = ("Mean Diff", "Std Diff", "Max Diff", "Max Rel-Diff", "Mean Rel-Diff")
    checked = [record for record in results.records if record.verification and record.verification.numerics]
    found: dict[str, Any] = dict.fromkeys(keys)
    found["Verdict"], found["Verdict by BS"] = None, {}
    if not checked:
        found["Numeric Reason"] = next((r.reason for r in results.records if r.reason), "nothing was compared")
        return found
    assert checked[0].verification is not None
    found |= join_differences(checked[0].verification.numerics)
    for size in results.task.workload.sizes:
        outputs = [one for record in _of_size(size, results, checked) for one in output_accuracies(record)]
        words = {one.verdict for one in outputs}
        verdict = "FAIL" if "FAIL" in words else "PASS" if words == {"PASS"} else None
        found["Verdict by BS"][str(size)] = verdict
        if outputs and "Bounds" not in found:
            found["Bounds"] = {one.name: one.bound for one in outputs}
            found["Outputs"] = {one.name: join_differences([one.numerics]) for one in outputs}
    verdicts = [one for one in found["Verdict by BS"].values() if one]
    found["Verdict"] = "FAIL" if "FAIL" in verdicts else "PASS" if verdicts else None
    return found


def join_differences(numerics: Sequence[Numerics]) -> dict[str, Any]:
    """Return ByteMLPerf's five figures over all outputs, from the figures of each, and the number of undefined ones."""

    def mean(values: Sequence[tuple[int, float | None]]) -> float | None:
        known = [(count, value) for count, value in values if value is not None and count]
        total = sum(count for count, _ in known)
        return sum(count * value for count, value in known) / total if total else None

    largest = [one.max_abs for one in numerics if one.max_abs is not None]
    relative = [one.max_rel for one in numerics if one.max_rel is not None]
    absolute = mean([(one.compared, one.mean_abs) for one in numerics])
    square = mean([(one.compared, one.rmse**2 if one.rmse is not None else None) for one in numerics])
    deviation = None
    if absolute is not None and square is not None:
        deviation = math.sqrt(max(0.0, square - absolute**2))
    return {
        "Mean Diff": absolute,
        "Std Diff": deviation,
        "Max Diff": max(largest, default=None),
        "Max Rel-Diff": max(relative, default=None),
        "Mean Rel-Diff": mean([(one.compared, one.mean_rel) for one in numerics]),
        "NaN": sum(one.nan for one in numerics),
        "Inf": sum(one.inf for one in numerics),
        "Elements": sum(one.elements for one in numerics),
    }
