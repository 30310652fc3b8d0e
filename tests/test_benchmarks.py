"""`python -m benchmarks` finds everything that it measures with; what it measures is in benchmarks/README.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import prediction_device, prediction_models

from opmark.prediction.class_model import FEWEST
from opmark.prediction.samples import ChipFigures, Samples, samples_of
from opmark.schema.call_sizes import CallSizes

ROOT = Path(__file__).parents[1]


def test_the_benchmarks_can_be_imported() -> None:
    code = "import benchmarks.__main__, benchmarks.requests, benchmarks.general_perf, benchmarks.general_perf_reference"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def made_up_samples(counts: dict[str, int]) -> Samples:
    """Return as many shapes of each operator as are named."""
    calls = [CallSizes(op, 1, 64 + i, 64, 64, 1e6, 1e5) for op, count in counts.items() for i in range(count)]
    chip = ChipFigures("made-up", 1e12, 1e11, 20, 4e6, 200.0, 1.4e9, 12.0)
    return samples_of(calls, ["made-up"] * len(calls), [1e-5] * len(calls), {"made-up": chip})


def test_classes_with_too_few_shapes_are_named_and_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    few = prediction_device.evaluation(made_up_samples({"matmul": 10, "conv2d": 12}), seed=0)
    assert few.startswith("no class has enough shapes to be tested")
    assert "linear (10)" in few
    assert "conv (12)" in few
    monkeypatch.setattr(
        prediction_device, "train_class", lambda *_, **__: SimpleNamespace(neighbour=lambda test: 2 * test.seconds)
    )
    monkeypatch.setattr(prediction_device, "predict_class", lambda _, test: (test.seconds,) * 3)
    table = prediction_device.evaluation(made_up_samples({"matmul": 2 * FEWEST, "conv2d": 12}), seed=0)
    assert f"| linear | matmul | {2 * FEWEST} | 0.0 |" in table
    assert table.endswith(f"left out, with fewer than {2 * FEWEST} shapes: conv (12)")


def test_a_model_is_trained_anew_where_there_is_more_to_learn_from() -> None:
    known: Any = SimpleNamespace(models={"linear": SimpleNamespace(counts={"made-up": 40})})
    for counts, more in (
        ({"matmul": 40}, False), ({"matmul": 40, "conv2d": FEWEST - 1}, False), ({"matmul": 41}, True),
        ({"matmul": 40, "conv2d": FEWEST}, True),
    ):  # fmt: skip
        assert prediction_models.is_outgrown(known, made_up_samples(counts)) is more
