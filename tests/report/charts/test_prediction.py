"""The charts of predictions: a point for each row that a model can answer for, and the errors by class."""

from __future__ import annotations

from pathlib import Path

import pytest
from handmade import RUN, item, sound, timing

from opmark.analysis.rows import MachineFacts, RunView
from opmark.api.predict import predict
from opmark.hardware.datasheets import datasheet
from opmark.prediction import library
from opmark.report.charts.prediction import predictions

SHAPES = [(64 << number, 256) for number in range(5)]


@pytest.fixture(autouse=True)
def no_own_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "model_folder", lambda: tmp_path)


def run_view(factor: float, backend: str = "torch-cuda", gpu: str = "Tesla T4") -> RunView:
    """Return a run whose times are those that the shipped model predicts, times a factor; and a row of attention."""
    rows = []
    for number, (m, n) in enumerate(SHAPES):
        params = {"shape": [m, n], "axis": -1, "dtype": "float32"}
        (guess,) = predict("softmax", params, on="Tesla T4").cases
        time = timing(factor * guess.prediction.seconds)
        rows.append(item("softmax", number, time, backend=backend, params=params, environment="gpu"))
    size = {"batch": 1, "heads": 4, "q_len": 64, "kv_len": 64, "head_dim": 64, "kv_heads": 0, "causal": False}
    attention = {**size, "dtype": "float32"}
    rows.append(item("scaled_dot_product_attention", 9, backend=backend, params=attention, environment="gpu"))
    facts = {"gpu": gpu, "device": "cuda"}
    return RunView(RUN, tuple(rows), {"gpu": facts}, {"gpu": MachineFacts(None, datasheet(gpu))}, len(rows))


def test_points_are_predictions_and_bars_are_mean_errors() -> None:
    charts = predictions(run_view(1.25))
    sound(charts)
    points, errors = charts
    assert [len(series.marks) for series in points.series] == [5, 2]
    for mark in points.series[0].marks:
        assert mark.y == pytest.approx(mark.x / 1.25)
        assert mark.low is not None
        assert mark.low <= mark.y
    (bar,) = errors.series[0].marks
    assert (bar.label, bar.x) == ("row-wise", pytest.approx(0.2))


def test_what_cannot_be_predicted_is_counted() -> None:
    points = predictions(run_view(1.0))[0]
    assert "1 row cannot be predicted" in points.notes
    assert "5 of 5 measured times lie inside of their 90 % interval" in points.notes


def test_a_backend_that_nobody_has_learnt_has_no_chart() -> None:
    assert predictions(run_view(1.0, backend="torch-cpu")) == []
