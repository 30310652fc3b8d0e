"""Criteo's clicks: eval.csv as ByteMLPerf has it, and train.txt as Kaggle has it. Rows are read when needed."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opmark.errors import InvalidParameter, UserError
from opmark.models.datasets.files import UNFINISHED, check_options, path_of, refuse
from opmark.plugin import Operator, Params
from opmark.plugin.dataset import DataSet
from opmark.schema.evaluation import LABEL, DataChoice, Metric
from opmark.stats.accuracy import summarize_scores

_NUMERIC, _CATEGORICAL = 13, 26
_COLUMNS = 1 + _NUMERIC + _CATEGORICAL
_LAYOUT = "rows of a label, 13 numbers and 26 categories: eval.csv with commas, or train.txt with tabs"
_LEAST = 1e-7
"""Probabilities are kept so far from 0 and 1 for the logarithm of the loss."""
_ORDER = (
    [i - 1 for _, i in sorted((f"I{i}", i) for i in range(1, _NUMERIC + 1))],
    [i - 1 for _, i in sorted((f"C{i}_", i) for i in range(1, _CATEGORICAL + 1))],
)
"""The public weights take columns in the order of their names as text: I1, I10, I11, ..., and C10, ..., C1, C20, ..."""


class Criteo(DataSet):
    name = "criteo"
    summary = f"Criteo's clicks for models that recommend, AUC, log-loss and accuracy: {_LAYOUT}"

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice, "columns")
        order = choice.options.get("columns", "sorted")
        if order not in ("sorted", "file"):
            raise InvalidParameter(
                f"--data-option columns: expected sorted or file, got `{order}`", "the order that the weights take"
            )
        files = tuple(range(_NUMERIC)), tuple(range(_CATEGORICAL))
        self._order = tuple(map(list, files)) if order == "file" else _ORDER
        self._categories, self._numbers = _input_names(operator, params)
        self._buckets = int(operator.inputs(params)[self._categories].high)
        self._path = path_of(choice, _LAYOUT)
        if self._path.is_dir():
            inside = [self._path / name for name in ("eval.csv", "train.txt")]
            self._path = next((one for one in inside if one.is_file()), self._path)
        if self._path.is_dir():
            refuse(self._path, _LAYOUT, "a folder with neither eval.csv nor train.txt", "give the file itself")
        self._places, self._low, self._range, self._separator = _scan(self._path)
        self._labels: list[float] = []
        self._clicks: list[float] = []

    @property
    def available(self) -> int:
        return len(self._places)

    def inputs(self, rows: range) -> Mapping[str, Any]:
        numbers, buckets = [], []
        with self._path.open("rb") as file:
            for row in rows:
                file.seek(self._places[self.samples[row]])
                line = file.readline().rstrip(b"\r\n")
                self.hasher.update(line + b"\n")
                parts = line.split(self._separator)
                self._labels.append(float(parts[0]))
                numbers.append([float(part or 0) for part in parts[1 : 1 + _NUMERIC]])
                buckets.append([fingerprint(part) % self._buckets for part in parts[1 + _NUMERIC :]])
        scaled = (np.array(numbers) - self._low) / self._range
        made = {self._numbers: scaled[:, self._order[0]], self._categories: np.array(buckets)[:, self._order[1]]}
        return {name: made[name] for name in self.operator.inputs(self.params)}

    def take(self, rows: range, outputs: Sequence[Any]) -> None:
        found = outputs[0].reshape(len(rows), -1)
        if found.shape[1] not in (1, 2):
            raise UserError(
                f"criteo needs the probability of a click; the first output of `{self.operator.name}` has "
                f"{found.shape[1]} numbers per row",
                "as in model:wide-and-deep",
            )
        clicks = found[:, -1]
        outside = clicks[(clicks < 0) | (clicks > 1)]
        if len(outside):
            raise UserError(
                f"criteo needs probabilities from 0 to 1, and `{self.operator.name}` returns {outside[0]:g}",
                "does the model end with a sigmoid or softmax?",
            )
        for row, click in zip(rows, clicks, strict=True):
            # What is not a number counts as the wrong answer.
            self._clicks.append(1 - self._labels[row] if math.isnan(click) else float(click))

    def scores(self) -> dict[str, list[float]]:
        labels, clicks = np.array(self._labels), np.array(self._clicks)
        right = np.clip(np.where(labels > 0.5, clicks, 1 - clicks), _LEAST, 1)
        return {
            "AUC": clicks.tolist(),
            "log-loss": (-np.log(right)).tolist(),
            "accuracy": ((clicks > 0.5) == (labels > 0.5)).astype(float).tolist(),
            LABEL: labels.tolist(),
        }

    def metrics(self, scores: Mapping[str, Sequence[float]]) -> dict[str, Metric]:
        return {
            "AUC": summarize_scores("auc", scores["AUC"], scores[LABEL]),
            "log-loss": summarize_scores("loss", scores["log-loss"]),
            "accuracy": summarize_scores("share", scores["accuracy"]),
        }

    def notes(self) -> tuple[str, ...]:
        share = sum(self._labels) / len(self._labels)
        return (f"{share:.1%} of the samples are clicks: {max(share, 1 - share):.1%} are right without looking",)


def _input_names(operator: Operator, params: Params) -> tuple[str, str]:
    """Return the names of the inputs of categories and of numbers."""
    specs = operator.inputs(params)
    categories = [name for name, spec in specs.items() if spec.shape[1:] == (_CATEGORICAL,)]
    numbers = [name for name, spec in specs.items() if spec.shape[1:] == (_NUMERIC,)]
    if len(specs) != 2 or len(categories) != 1 or len(numbers) != 1:
        taken = ", ".join(f"{name} {'x'.join(map(str, spec.shape))}" for name, spec in specs.items())
        raise UserError(
            f"criteo has rows of {_CATEGORICAL} categories and {_NUMERIC} numbers, and `{operator.name}` takes {taken}",
            "as in model:wide-and-deep",
        )
    return categories[0], numbers[0]


def _scan(path: Path) -> tuple[array[int], Any, Any, bytes]:
    """Return where each row begins, the least value and the range of each number, and what stands between columns."""
    places = array("q")
    low, high = [math.inf] * _NUMERIC, [-math.inf] * _NUMERIC
    separator = b""
    place = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.rstrip(b"\r\n")
            separator = separator or (b"\t" if b"\t" in text else b",")
            parts = text.split(separator)
            here = f"{path}, line {number}"
            if len(parts) == _COLUMNS - 1:
                refuse(here, f"{_COLUMNS} columns, the label first", f"{len(parts)}: there are no labels",
                       "the test set of the competition has none; use rows of its training set")  # fmt: skip
            if len(parts) != _COLUMNS:
                refuse(here, f"{_COLUMNS} columns, the label first", f"{len(parts)}", UNFINISHED)
            if parts[0] not in (b"0", b"1"):
                refuse(here, "a label 0 or 1", f"`{parts[0].decode(errors='replace')}`",
                       "a header is no row: remove it")  # fmt: skip
            try:
                values = [float(part or 0) for part in parts[1 : 1 + _NUMERIC]]
            except ValueError as error:
                refuse(here, "13 numbers behind the label", str(error), "are these the columns of Criteo's data?")
            for i, value in enumerate(values):
                low[i], high[i] = min(low[i], value), max(high[i], value)
            places.append(place)
            place += len(line)
    span = np.array(high) - np.array(low)
    # A column whose values are all the same has no range.
    return places, np.array(low), np.where(span > 0, span, 1.0), separator


# TensorFlow hashes texts into buckets by FarmHash's Fingerprint64. Criteo's categories have 8 letters.

_MASK = (1 << 64) - 1
_K2 = 0x9AE16A3B2F90404F
_LONGEST = 16


def fingerprint(text: bytes) -> int:
    """Return FarmHash's Fingerprint64 of a text of at most 16 bytes."""
    size = len(text)
    if size > _LONGEST:
        raise UserError(
            f"criteo: expected categories of at most {_LONGEST} bytes, got `{text.decode(errors='replace')[:40]}`",
            "are these the columns of Criteo's data?",
        )
    if size >= 8:
        factor = _K2 + 2 * size
        a, b = (int.from_bytes(text[:8], "little") + _K2) & _MASK, int.from_bytes(text[-8:], "little")
        c = (_rotate(b, 37) * factor + a) & _MASK
        d = ((_rotate(a, 25) + b) * factor) & _MASK
        return _mix(c, d, factor)
    if size >= 4:
        factor = _K2 + 2 * size
        a = int.from_bytes(text[:4], "little")
        return _mix((size + (a << 3)) & _MASK, int.from_bytes(text[-4:], "little"), factor)
    if size:
        y = text[0] + (text[size // 2] << 8)
        z = size + (text[-1] << 2)
        mixed = ((y * _K2) ^ (z * 0xC3A5C85C97CB3127)) & _MASK
        return ((mixed ^ (mixed >> 47)) * _K2) & _MASK
    return _K2


def _rotate(value: int, by: int) -> int:
    return ((value >> by) | (value << (64 - by))) & _MASK


def _mix(u: int, v: int, factor: int) -> int:
    a = ((u ^ v) * factor) & _MASK
    a ^= a >> 47
    b = ((v ^ a) * factor) & _MASK
    b ^= b >> 47
    return (b * factor) & _MASK
