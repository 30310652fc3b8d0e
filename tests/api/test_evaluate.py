"""What is said of a model beside its accuracy."""

from __future__ import annotations

import pytest

from opmark.analysis.evaluation import AccuracyRow
from opmark.api.evaluate import warn_of_random_weights
from opmark.schema.evaluation import DataChoice


@pytest.mark.parametrize(
    ("op", "params", "warned"),
    [
        ("model:resnet50", {"batch": 1}, True),
        ("model:resnet50-mhlo", {}, True),
        ("model:resnet50", {"weights": "trained.safetensors"}, False),
        ("model:digits-classifier", {}, False),
        ("model:magika", {}, False),
        ("softmax", {}, False),
    ],
)
def test_figures_of_random_weights_are_those_of_chance(op: str, params: dict[str, str], warned: bool) -> None:
    row = AccuracyRow(op, params, "float32", "torch-cpu", "torch", "ok", "", DataChoice("imagenet"))
    assert [f"{op} has random weights" in note for note in warn_of_random_weights(row)] == [True] * warned
