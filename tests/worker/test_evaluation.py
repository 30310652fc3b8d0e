"""Accuracy on labelled data inside a worker: which samples, batches, padding, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec.structs import replace

from opmark.errors import InvalidFile, UnknownName, UserError
from opmark.frameworks.numpy.backend import NumpyBackend
from opmark.plugin.dataset import DataSet
from opmark.plugin.registry import backend, dataset, dataset_names
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Task
from opmark.schema.evaluation import DataChoice, Evaluation, Metric
from opmark.stats.accuracy import summarize_scores
from opmark.worker import evaluation as module
from opmark.worker.evaluation import draw_samples, evaluate
from opmark.worker.preparation import prepare
from opmark.worker.task_runner import find_implementation

MakeTask = Callable[..., Task]


class Counting(DataSet):
    """Row i is full of the number i; the product with ones has to be 4 i."""

    name = "counting"
    summary = "numbers"
    seen: ClassVar[list[tuple[range, int]]] = []
    width = 4
    undefined: ClassVar[frozenset[int]] = frozenset()
    size = 11

    @property
    def available(self) -> int:
        return self.size

    def choose(self, samples: Sequence[int]) -> int:
        self.samples = samples
        self.found: list[float] = []
        return len(samples)

    def inputs(self, rows: range) -> Mapping[str, Any]:
        a = np.array([[np.nan if s in self.undefined else s] * self.width for s in (self.samples[i] for i in rows)])
        return {"a": a, "b": np.ones((4, 2))}

    def take(self, rows: range, outputs: Sequence[Any]) -> None:
        type(self).seen.append((rows, len(outputs[0])))
        expected = [4 * self.samples[i] for i in rows]
        self.found += [float(value == due) for value, due in zip(outputs[0][:, 0], expected, strict=True)]

    def scores(self) -> dict[str, list[float]]:
        return {"right": self.found}

    def metrics(self, scores: Mapping[str, Sequence[float]]) -> dict[str, Metric]:
        return {"right": summarize_scores("share", scores["right"])}

    def digest(self) -> str:
        return ",".join(map(str, self.samples))


@pytest.fixture
def run(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Evaluation]:
    def evaluate_batches(batch: int = 4, percent: float = 100.0, kind: type[DataSet] = Counting) -> Evaluation:
        Counting.seen.clear()
        monkeypatch.setattr(module, "find_dataset", lambda name: kind)
        task = make_task("matmul", M=batch, N=2, K=4, dtype="float32")
        settings = replace(task.settings, data=DataChoice("counting", percent=percent))
        task = replace(task, backend="numpy-cpu", implementation="numpy", settings=settings)
        info = backend("numpy-cpu")
        numpy = NumpyBackend(info, 1)
        operator = dataclasses.replace(find_operator("matmul"), row_axes=lambda params: {"a": 0, 0: 0})
        prepared = prepare(task.case.params, task, operator, find_implementation(task, operator, info), numpy)
        return evaluate(task, operator, numpy, prepared, lambda: None)

    return evaluate_batches


@pytest.mark.parametrize("batch", [1, 3, 4, 11, 16])
def test_every_sample_is_scored_once_at_any_batch(run: Callable[..., Evaluation], batch: int) -> None:
    found = run(batch)
    assert found.scores == {"right": [1.0] * 11}
    assert (found.samples, found.available) == (11, 11)
    assert [i for rows, _ in Counting.seen for i in rows] == list(range(11))
    assert all(len(rows) == scored for rows, scored in Counting.seen)  # the padding of the last batch is not scored


def test_the_figure_does_not_depend_on_the_batch(run: Callable[..., Evaluation]) -> None:
    assert run(1, 50) == run(7, 50)


def test_a_share_of_the_data_is_drawn_at_random_and_the_same_every_time() -> None:
    choice = DataChoice("counting", percent=10)
    drawn = draw_samples(1000, choice, seed=0)
    assert len(drawn) == len(set(drawn)) == 100
    assert drawn == sorted(drawn) == draw_samples(1000, choice, seed=0)
    assert drawn != list(range(100))
    assert 400 < sum(drawn) / 100 < 600
    assert drawn != draw_samples(1000, choice, seed=1)
    assert draw_samples(3, choice, 0) == draw_samples(3, choice, 0)
    assert len(draw_samples(3, choice, 0)) == 1


@pytest.mark.parametrize("percent", [0, -1, 100.1, float("nan")])
def test_a_share_outside_of_the_data_is_refused(percent: float) -> None:
    with pytest.raises(UserError, match="above 0 and up to 100 percent"):
        draw_samples(10, DataChoice("counting", percent=percent), 0)


def test_empty_data_is_refused() -> None:
    with pytest.raises(InvalidFile, match="no samples in /there"):
        draw_samples(0, DataChoice("counting", "/there"), 0)


def test_inputs_that_do_not_fit_are_refused(run: Callable[..., Evaluation]) -> None:
    class Wide(Counting):
        width = 5

    class Renamed(Counting):
        def inputs(self, rows: range) -> Mapping[str, Any]:
            return {"image": np.zeros((len(rows), 4))}

    with pytest.raises(UserError, match=r"input `a`: the data has the shape \(4, 5\), and the model takes \(4, 4\)"):
        run(kind=Wide)
    with pytest.raises(UserError, match="the data has image, and the model takes a, b"):
        run(kind=Renamed)


def test_outputs_without_a_value_count_as_wrong_and_are_named(run: Callable[..., Evaluation]) -> None:
    class Undefined(Counting):
        undefined = frozenset({2, 10})

    found = run(4, kind=Undefined)
    assert sum(found.scores["right"]) == 9
    assert found.notes == ("2 of 11 rows have NaN among their outputs and count as wrong",)


def test_more_samples_than_a_record_can_hold_are_refused(run: Callable[..., Evaluation]) -> None:
    class Large(Counting):
        size = 45_000_000

    with pytest.raises(UserError, match=r"at most 1,000,000 samples.*45,000,000") as caught:
        run(kind=Large)
    assert "--data-percent 2.2" in str(caught.value.hint)


def test_scores_that_cannot_be_compared_are_a_defect(run: Callable[..., Evaluation]) -> None:
    class Short(Counting):
        def scores(self) -> dict[str, list[float]]:
            return {"right": self.found[1:]}

    with pytest.raises(ValueError, match="10 scores of right for 11 samples"):
        run(kind=Short)


def test_data_sets_are_found_by_name() -> None:
    assert "imagenet" in dataset_names()
    assert issubclass(dataset("imagenet"), DataSet)
    with pytest.raises(UnknownName, match="no data set named `imagnet`"):
        dataset("imagnet")
