"""Charts of predictions: predicted against measured times, and the error of each class of operators."""

from __future__ import annotations

import numpy as np

from opmark.analysis.rows import Row, RunView, Timing
from opmark.prediction.class_model import FEWEST_CHIPS
from opmark.prediction.library import model_of_backend
from opmark.prediction.measured import case_call, device_name, usable_peaks
from opmark.prediction.predictor import FAR, Prediction, Predictor
from opmark.prediction.samples import class_of, samples_of
from opmark.report.charts.elements import address
from opmark.schema import Case
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark
from opmark.schema.machine import findings_key
from opmark.schema.record import COUNTED
from opmark.units import count_noun, percent

_FEWEST = 5
"""Fewest rows of a backend that a chart is made of."""


def predictions(run_view: RunView) -> list[Chart]:
    """Return the charts of each backend that a model has learnt, for its rows that can be predicted."""
    charts: list[Chart] = []
    for backend in dict.fromkeys(row.backend for row in run_view.rows):
        predictor = model_of_backend(backend)
        if predictor is None:
            continue
        rows = [row for row in run_view.rows if row.backend == backend and row.status in COUNTED]
        pairs, left_out = _predicted(rows, run_view, predictor)
        if len(pairs) >= _FEWEST:
            charts += _charts(backend, pairs, left_out, predictor)
    return charts


def _predicted(
    rows: list[Row], run_view: RunView, predictor: Predictor
) -> tuple[list[tuple[Row, Timing, Prediction]], int]:
    known = []
    for row in rows:
        timing = next((one for one in row.timings if one.quantity == predictor.quantity and one.usable), None)
        machine = run_view.machines.get(row.environment)
        peaks = usable_peaks(machine.measured, machine.datasheet) if machine else None
        dtype = str(row.params.get("dtype", "float32"))
        if timing is None or peaks is None or dtype not in peaks.flops:
            continue
        found = case_call(Case.of(row.op, row.params, row.phase), peaks, cold=timing.cache != "warm")
        if isinstance(found, str) or not predictor.knows(class_of(found[0].operator)):
            continue
        chip = findings_key(run_view.environments[row.environment])
        if dtype == "float32" or device_name(chip, dtype) in predictor.chips:
            known.append((row, timing, device_name(chip, dtype), found))
    if not known:
        return [], len(rows)
    samples = samples_of(
        [found[0] for *_, found in known], [device for _, _, device, _ in known], [np.nan] * len(known),
        {device: found[1] for _, _, device, found in known}, [found[2] for *_, found in known],
    )  # fmt: skip
    if any(device not in predictor.chips for device in samples.chips) and len(predictor.chips) < FEWEST_CHIPS:
        return [], len(rows)
    pairs = [(row, timing, one) for (row, timing, *_), one in zip(known, predictor.predict(samples), strict=True)
             if one.distance <= FAR]  # fmt: skip
    return pairs, len(rows) - len(pairs)


def _charts(
    backend: str, pairs: list[tuple[Row, Timing, Prediction]], left_out: int, predictor: Predictor
) -> list[Chart]:
    notes = [f"model of {backend}, data {predictor.data_hash}; rows that it has learnt from may be among these"]
    if left_out:
        notes.append(f"{count_noun(left_out, 'row')} cannot be predicted")
    errors: dict[str, list[float]] = {}
    marks: dict[str, list[Mark]] = {}
    inside = 0
    for row, timing, one in pairs:
        measured = timing.median or 0.0
        kind = class_of(row.op)
        errors.setdefault(kind, []).append(abs(one.seconds / measured - 1))
        inside += one.low <= measured <= one.high
        marks.setdefault(kind, []).append(
            Mark(measured, one.seconds, f"{row.op} {row.parameters}", low=one.low, high=one.high, link=row.key)
        )
    ends = [mark.x for found in marks.values() for mark in found]
    ideal = ChartSeries("as measured", tuple(Mark(end, end) for end in (min(ends), max(ends))), "line", "guide")
    notes.append(f"{inside} of {len(pairs)} measured times lie inside of their 90 % interval")
    names = sorted(errors, key=lambda kind: np.mean(errors[kind]), reverse=True)
    bars = tuple(
        Mark(float(np.mean(errors[kind])), place, kind,
             note=f"{count_noun(len(errors[kind]), 'row')}, median {percent(float(np.median(errors[kind])))}")
        for place, kind in enumerate(names)
    )  # fmt: skip
    return [
        Chart(
            address("predictions", backend), f"Predicted against measured: {backend}",
            "A point on the line was predicted exactly; bars are 90 % intervals.", "plot",
            Axis("measured", "s", "log"), Axis("predicted", "s", "log"),
            (*(ChartSeries(kind, tuple(found)) for kind, found in marks.items()), ideal), notes=tuple(notes),
        ),
        Chart(
            address("prediction-errors", backend), f"Error of predictions by class: {backend}",
            "Mean absolute error of the predicted times, relative to the measured ones.", "bars",
            Axis("mean error", "share", "linear"), Axis("class of operators", "", "category", tuple(names)),
            (ChartSeries("mean error", bars, "bars"),), notes=tuple(notes[:1]),
        ),
    ]  # fmt: skip
