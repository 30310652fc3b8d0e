"""Accuracy of the same model on the same data, on every backend that runs models."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import opmark
from opmark.plugin.registry import backend as find_backend
from opmark.schema.evaluation import DataChoice

BACKENDS = ("torch-cpu", "torch-compile-cpu", "onnxruntime-cpu", "openvino-cpu", "tvm-cpu", "jax-cpu")
MODEL = """
import torch

class Clicks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor(4.0))

    def forward(self, categorical, numeric):
        chance = torch.sigmoid(self.slope * (numeric[:, 0] - 0.5) + 0 * categorical.sum(1))
        return torch.stack([1 - chance, chance], 1)

def build(batch=1):
    return Clicks(), {"categorical": f"{batch}x26 int64 0..1000", "numeric": f"{batch}x13 float32 0..1"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fifty rows whose first number says mostly whether there was a click."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.py").write_text(MODEL)
    generator = np.random.default_rng(0)
    lines = []
    for number in range(50):
        clicked = int(generator.random() < number / 50)
        categories = ",".join(f"{value:08x}" for value in generator.integers(0, 2**32, 26))
        lines.append(f"{clicked},{number},{','.join(['1'] * 12)},{categories}\n")
    (tmp_path / "eval.csv").write_text("".join(lines))
    return tmp_path


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_scores_every_sample(folder: Path, backend: str) -> None:
    info = find_backend(backend)
    if find_spec(info.requires or "torch") is None or find_spec("torchax" if backend == "jax-cpu" else "torch") is None:
        pytest.skip(f"{backend} is not installed")
    (record,) = opmark.run(
        "model:clicks.py:build", params={"batch": 8}, backend=backend, threads=1, verify=False, db=folder / "store.db",
        data_choice=DataChoice("criteo", str(folder), options={"columns": "file"}),
    ).records  # fmt: skip
    assert record.status == "unchecked", record.reason
    assert record.measurements == ()
    found = record.evaluation
    assert found is not None
    assert (found.samples, found.available) == (50, 50)
    expected = 1 / (1 + np.exp(-4 * (np.arange(50) / 49 - 0.5)))
    assert found.scores["AUC"] == pytest.approx(expected, abs=1e-6)
    assert 0.6 < found.metrics["AUC"].value < 1
    assert found.digest
