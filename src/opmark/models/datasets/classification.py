"""What data sets for classifiers share: pictures into inputs, and outputs into Top-1 and Top-5."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from opmark.errors import UserError
from opmark.plugin import Operator, Params
from opmark.plugin.dataset import DataSet
from opmark.schema.evaluation import DataChoice, Metric
from opmark.stats.accuracy import summarize_scores

_COLOURS = 3
_TOP = 5


class ClassifierData(DataSet):
    """Labelled samples of which a model names the class; its first output has a score per class."""

    labels: Sequence[int]
    """The class of every sample of the data."""

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        self._ranks: list[int] = []
        self._classes = 0

    @property
    def available(self) -> int:
        return len(self.labels)

    @abstractmethod
    def sample(self, number: int) -> tuple[Any, bytes]:
        """Return the input of one sample, and the bytes that it was made of."""

    @abstractmethod
    def batch(self, samples: Any) -> Mapping[str, Any]:
        """Return the inputs of stacked samples by name."""

    def inputs(self, rows: range) -> Mapping[str, Any]:
        made = []
        for row in rows:
            number = self.samples[row]
            array, data = self.sample(number)
            self.hasher.update(sha256(data).digest() + self.labels[number].to_bytes(4, "little", signed=True))
            made.append(array)
        return self.batch(np.stack(made))

    def take(self, rows: range, outputs: Sequence[Any]) -> None:
        scores = outputs[0].reshape(len(rows), -1)
        self._classes = scores.shape[1]
        for row, found in zip(rows, scores, strict=True):
            label = self.expected_class(self.labels[self.samples[row]], self._classes)
            self._ranks.append(rank_of(found, label))

    def expected_class(self, label: int, classes: int) -> int:
        """Return the number of the output that stands for a label; UserError where there is none."""
        if not 0 <= label < classes:
            raise UserError(
                f"{self.choice.name}: a label is {label}, and the model has {classes} classes, from 0 to {classes - 1}",
                "do the labels belong to this model, and do they count from 0?",
            )
        return label

    def scores(self) -> dict[str, list[float]]:
        found = {"Top-1": [float(rank < 1) for rank in self._ranks]}
        if self._classes > _TOP:  # all answers are among five of five
            found["Top-5"] = [float(rank < _TOP) for rank in self._ranks]
        return found

    def metrics(self, scores: Mapping[str, Sequence[float]]) -> dict[str, Metric]:
        return {name: summarize_scores("share", values) for name, values in scores.items()}


def rank_of(scores: Any, label: int) -> int:
    """Return how many classes stand before the label: those with a higher score, and of those with the same one, the
    earlier. Scores with NaN among them rank it behind all."""
    own = scores[label]
    if np.isnan(scores).any():
        return len(scores)
    return int((scores > own).sum() + (scores[:label] == own).sum())


def image_input(operator: Operator, params: Params, data: str) -> tuple[str, tuple[int, int], bool]:
    """Return the name of the model's input of pictures, their height and width, and whether colours come last."""
    specs = operator.inputs(params)
    for name, spec in specs.items():
        if len(spec.shape) == 4 and spec.shape[1] == _COLOURS:
            return name, (spec.shape[2], spec.shape[3]), False
        if len(spec.shape) == 4 and spec.shape[3] == _COLOURS:
            return name, (spec.shape[1], spec.shape[2]), True
    taken = ", ".join(f"{name} {'x'.join(map(str, spec.shape))}" for name, spec in specs.items())
    raise UserError(
        f"{data} is for models that take pictures with 3 colours, and `{operator.name}` takes {taken}",
        "as in model:resnet50",
    )
