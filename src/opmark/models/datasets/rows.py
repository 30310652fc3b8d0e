"""What data sets share whose samples are one row each, and whose scores are found sample by sample."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from opmark.errors import UserError
from opmark.plugin import Operator, Params
from opmark.plugin.dataset import DataSet
from opmark.schema.evaluation import DataChoice, Metric, MetricKind
from opmark.stats.accuracy import summarize_scores


class JudgedSamples(DataSet):
    """Samples of one row for models with one input and one output."""

    kinds: ClassVar[Mapping[str, MetricKind]]
    """What each metric is made of, the one that verdicts are about first."""
    labels: Sequence[str]
    """What the model should find in each sample of the data, as text; what it is compared by is up to `judge`."""

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        specs = operator.inputs(params)
        if len(specs) != 1:
            raise UserError(
                f"{self.name} is for models with one input, and `{operator.name}` takes {', '.join(specs)}",
                "`opmark list models` names the data set of each model",
            )
        ((self._input, self.spec),) = specs.items()
        self._scores: dict[str, list[float]] = {name: [] for name in self.kinds}

    @property
    def available(self) -> int:
        return len(self.labels)

    @abstractmethod
    def sample(self, number: int) -> Any:
        """Return the input of one sample as an array."""

    @abstractmethod
    def judge(self, number: int, output: Any) -> tuple[float, ...]:
        """Return the scores of a sample, in the order of `kinds`."""

    def inputs(self, rows: range) -> Mapping[str, Any]:
        made = [self.sample(self.samples[row]) for row in rows]
        for row, array in zip(rows, made, strict=True):
            self.hasher.update(array.tobytes() + self.labels[self.samples[row]].encode())
        return {self._input: np.stack(made)}

    def take(self, rows: range, outputs: Sequence[Any]) -> None:
        for row, output in zip(rows, outputs[0], strict=True):
            for name, score in zip(self.kinds, self.judge(self.samples[row], output), strict=True):
                self._scores[name].append(score)

    def scores(self) -> dict[str, list[float]]:
        return self._scores

    def metrics(self, scores: Mapping[str, Sequence[float]]) -> dict[str, Metric]:
        return {name: summarize_scores(kind, scores[name]) for name, kind in self.kinds.items()}


def count_edits(found: Sequence[str], expected: Sequence[str]) -> int:
    """Return the least number of insertions, deletions and replacements that turn one sequence into the other."""
    row = list(range(len(expected) + 1))
    for i, one in enumerate(found, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(expected, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def refuse_path(choice: DataChoice) -> None:
    """Raise UserError for a path: the data comes with a package."""
    if choice.path:
        raise UserError(
            f"{choice.name} comes with a package, and a path was given: {choice.path}", f"--data {choice.name}"
        )
