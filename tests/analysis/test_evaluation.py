"""Accuracy of records: which reference each is compared with, what is refused, and verdicts per metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from opmark.analysis.evaluation import accuracy_rows
from opmark.errors import UserError
from opmark.report.evaluation import accuracy_cells, accuracy_notes
from opmark.schema import Record, Task
from opmark.schema.evaluation import LABEL, DataChoice, Evaluation, MetricKind
from opmark.stats.accuracy import summarize_scores

MakeTask = Callable[..., Task]
DATA = DataChoice("imagenet", "/data/val")
RIGHT = [1.0] * 1800 + [0.0] * 200


@pytest.fixture
def record(make_task: MakeTask) -> Callable[..., Record]:
    def make(
        backend: str = "torch-cpu",
        dtype: str = "float32",
        scores: dict[str, tuple[MetricKind, list[float]]] | None = None,
        digest: str = "same",
        **changes: Any,
    ) -> Record:
        given = scores or {"Top-1": ("share", RIGHT)}
        task = make_task("matmul", M=changes.pop("M", 8), N=8, K=8, dtype=dtype)
        task = replace(task, backend=backend, settings=replace(task.settings, data=changes.pop("data", DATA)))
        labels = [float(i % 2) for i in range(len(RIGHT))]
        found = Evaluation(
            DATA,
            {name: summarize_scores(kind, values, labels) for name, (kind, values) in given.items()},
            len(RIGHT),
            50_000,
            {**{name: values for name, (_, values) in given.items()}, LABEL: labels},
            digest,
        )
        return replace(Record(task, "ok", evaluation=found), **changes)

    return make


def change(lost: int, gained: int = 0) -> dict[str, tuple[MetricKind, list[float]]]:
    return {"Top-1": ("share", [0.0] * lost + [1.0] * (1800 - lost) + [1.0] * gained + [0.0] * (200 - gained))}


def test_each_backend_and_type_is_compared_with_the_reference_in_float32(record: Callable[..., Record]) -> None:
    rows = accuracy_rows([
        record(),
        record(dtype="bfloat16", scores=change(40)),
        record("onnxruntime-cpu"),
        record("onnxruntime-cpu", "float16", change(0, 40)),
    ])  # fmt: skip
    assert [row.reference for row in rows] == ["", *["torch-cpu float32"] * 3]
    assert [row.verdict for row in rows] == ["", "worse", "same", "better"]
    found = rows[1].differences["Top-1"]
    assert found.value == -0.02
    assert found.low < -0.02 < found.high < 0
    assert found.p < 1e-6


def test_a_reference_without_float32_is_taken_in_the_same_type(record: Callable[..., Record]) -> None:
    rows = accuracy_rows([record(dtype="bfloat16"), record("openvino-cpu", "bfloat16"), record("openvino-cpu")])
    assert [row.reference for row in rows] == ["", "torch-cpu bfloat16", ""]
    assert rows[2].refused == "the reference was not evaluated with these parameters"


def test_the_reference_can_be_named(record: Callable[..., Record]) -> None:
    records = [record(), record("onnxruntime-cpu", scores=change(40))]
    assert [row.verdict for row in accuracy_rows(records, "onnxruntime-cpu")] == ["better", ""]
    with pytest.raises(UserError, match="nothing was evaluated on the reference `jax-cpu`"):
        accuracy_rows(records, "jax-cpu")


def test_cases_with_other_parameters_have_references_of_their_own(record: Callable[..., Record]) -> None:
    rows = accuracy_rows([record(M=1), record("numpy-cpu", M=1), record("numpy-cpu", M=4)])
    assert rows[1].verdict == "same"
    assert rows[2].refused


def test_other_samples_are_refused(record: Callable[..., Record]) -> None:
    row = accuracy_rows([record(), record("numpy-cpu", digest="other")])[1]
    assert row.differences == {}
    assert "not the same samples as the reference torch-cpu float32: digest other, expected same" in row.refused
    assert accuracy_cells(row)[0][-2] == "not compared"
    assert any("not compared: not the same samples" in note for note in accuracy_notes([row]))
    drawn = accuracy_rows([record(), record("numpy-cpu", data=DataChoice("imagenet", "/data/val", 10))])[1]
    assert drawn.refused


def test_a_reference_that_failed_explains_itself(record: Callable[..., Record]) -> None:
    failed = record(evaluation=None, status="error", reason="there is no file")
    rows = accuracy_rows([failed, record("numpy-cpu")])
    assert rows[1].refused == "the reference torch-cpu float32 has no figures: error: there is no file"
    assert rows[0].metrics == {}
    assert accuracy_cells(rows[0]) == [["matmul", "M=8 N=8 K=8", "torch-cpu", "float32", *"-----", "error", "-"]]
    assert "matmul on torch-cpu float32: error: there is no file" in accuracy_notes(rows)


def test_every_metric_has_its_verdict(record: Callable[..., Record]) -> None:
    generator = np.random.default_rng(0)
    losses = generator.exponential(2, len(RIGHT))
    areas = generator.random(len(RIGHT))
    theirs: dict[str, tuple[MetricKind, list[float]]] = {
        "AUC": ("auc", list(areas)),
        "perplexity": ("perplexity", list(losses)),
        "F1": ("score", RIGHT),
    }
    ours: dict[str, tuple[MetricKind, list[float]]] = {
        "AUC": ("auc", list(areas)),
        "perplexity": ("perplexity", list(losses + 0.03)),
        "F1": ("score", [0.5] * 100 + RIGHT[100:]),
    }
    row = accuracy_rows([record(scores=theirs), record("numpy-cpu", scores=ours)])[1]
    assert {name: one.verdict for name, one in row.differences.items()} == {
        "AUC": "same", "perplexity": "worse", "F1": "worse",
    }  # fmt: skip
    assert row.differences["perplexity"].relative
    assert row.differences["perplexity"].value == pytest.approx(np.exp(0.03) - 1)
    assert row.verdict == "same"


def test_the_margin_can_be_chosen(record: Callable[..., Record]) -> None:
    records = [record(), record("numpy-cpu", scores=change(30, 20))]
    assert accuracy_rows(records)[1].verdict == "undecided"
    assert accuracy_rows(records, margin=0.02)[1].verdict == "same"
    needed = accuracy_rows(records)[1].differences["Top-1"].needed
    assert needed is not None
    assert needed > 2000
    notes = accuracy_notes(accuracy_rows(records))
    assert any(f"Top-1 is undecided: about {needed:,} samples would decide it" in note for note in notes)


def test_cells_show_figures_intervals_and_differences(record: Callable[..., Record]) -> None:
    rows = accuracy_rows([record(), record("numpy-cpu", scores=change(40))])
    first, second = accuracy_cells(rows[0])[0], accuracy_cells(rows[1])[0]
    assert first[4:] == ["Top-1", "90.00 %", "88.61 % to 91.24 %", "-", "-", "reference", "2,000 of 50,000"]
    assert second[5] == "88.00 %"
    assert second[7].startswith("-2 % (-2.7")
    assert second[8:10] == ["<1e-4", "worse"]
