"""Evaluates a model on labelled data: draws the samples, runs them in batches through the launch of the task, and has
the data set score the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opmark.errors import InvalidFile, UserError
from opmark.plugin import Backend, Operator
from opmark.plugin.backend import cast
from opmark.plugin.dataset import DataSet
from opmark.plugin.registry import dataset as find_dataset
from opmark.schema import Task, TensorSpec
from opmark.schema.evaluation import DataChoice, Evaluation
from opmark.units import count_noun
from opmark.worker.preparation import PreparedLaunch
from opmark.worker.verify.slices import as_tuple

_MOST_SAMPLES = 1_000_000
_DIGITS = 9
"""Digits behind the point that a score is stored with."""


def evaluate(
    task: Task, operator: Operator, backend: Backend, prepared: PreparedLaunch, tell: Callable[[], None]
) -> Evaluation:
    """Return how often the prepared launch is right on the data that the settings name. `tell` is called before every
    batch, so that the time-out holds for a batch and not for all of the data."""
    choice, params, seed = task.settings.data, task.case.params, task.settings.seed
    assert choice is not None
    data = find_dataset(choice.name)(choice, operator, params, seed)
    samples = draw_samples(data.available, choice, seed)
    rows = data.choose(samples)
    specs = operator.inputs(params)
    axes = operator.row_axes(params) if operator.row_axes else {}
    batch = next((specs[name].shape[axis] for name, axis in axes.items() if isinstance(name, str)), 1)
    undefined = 0
    for start in range(0, rows, batch):
        tell()
        chunk = range(start, min(start + batch, rows))
        _fill(data.inputs(chunk), specs, axes, batch, prepared, backend)
        outputs = as_tuple(prepared.launch())
        backend.synchronize()
        taken = [
            # The rows behind the last sample are padding: they are never scored.
            backend.take(output, {axes[i]: np.arange(len(chunk))} if i in axes else {})
            for i, output in enumerate(outputs)
        ]
        undefined += _count_undefined(taken, axes, len(chunk))
        data.take(chunk, taken)
    scores = {name: [round(value, _DIGITS) for value in values] for name, values in data.scores().items()}
    _refuse_unusable(data, scores, len(samples))
    notes = (
        [f"{undefined} of {count_noun(rows, 'row')} have NaN among their outputs and count as wrong"]
        if undefined
        else []
    )
    return Evaluation(
        choice, data.metrics(scores), len(samples), data.available, scores, data.digest(), (*notes, *data.notes())
    )


def draw_samples(available: int, choice: DataChoice, seed: int) -> list[int]:
    """Return the numbers of the samples to use, in the order of the data: all, or a random share that is the same on
    every backend. The first ones would not do, since data is often sorted by class."""
    if available < 1:
        raise InvalidFile(
            f"{choice.name}: there are no samples in {choice.path or 'the data'}",
            "is it the right folder or file, and was it unpacked or downloaded to its end?",
        )
    if not 0 < choice.percent <= 100:
        raise UserError(
            f"expected a share of the data above 0 and up to 100 percent, got {choice.percent:g}", "--data-percent 10"
        )
    count = max(1, round(available * choice.percent / 100))
    if count > _MOST_SAMPLES:
        share = math.floor(1000 * _MOST_SAMPLES / available) / 10
        raise UserError(
            f"{choice.name}: expected at most {_MOST_SAMPLES:,} samples, since the score of each is stored, got "
            f"{count:,} of {available:,}",
            f"--data-percent {share:g} draws so many at random",
        )
    if count == available:
        return list(range(available))
    drawn = np.random.default_rng([seed, available]).choice(available, count, replace=False)
    return [int(number) for number in np.sort(drawn)]


def _fill(
    arrays: Mapping[str, Any],
    specs: Mapping[str, TensorSpec],
    axes: Mapping[str | int, int],
    batch: int,
    prepared: PreparedLaunch,
    backend: Backend,
) -> None:
    """Put the inputs of a batch into the tensors of the launch. A batch that is not full repeats its last row."""
    if arrays.keys() != specs.keys():
        raise UserError(
            f"the data has {', '.join(arrays) or 'no inputs'}, and the model takes {', '.join(specs)}",
            "`opmark list datasets` says what each data set is for",
        )
    for name, spec in specs.items():
        array = np.asarray(arrays[name])
        if name in axes and array.shape[axes[name]] < batch:
            missing = batch - array.shape[axes[name]]
            array = np.concatenate([array, np.repeat(array.take([-1], axes[name]), missing, axes[name])], axes[name])
        if array.shape != spec.shape:
            raise UserError(
                f"input `{name}`: the data has the shape {array.shape}, and the model takes {spec.shape}",
                "`opmark list datasets` says what each data set is for",
            )
        backend.copy_into(prepared.inputs[name], backend.upload(cast(array, spec.dtype), spec.dtype))


def _count_undefined(outputs: Sequence[Any], axes: Mapping[str | int, int], rows: int) -> int:
    """Return the number of rows with NaN in any output."""
    found = np.zeros(rows, bool)
    for i, output in enumerate(outputs):
        if i in axes and output.dtype.kind == "f":
            found |= np.isnan(np.moveaxis(output, axes[i], 0).reshape(rows, -1)).any(axis=1)
    return int(found.sum())


def _refuse_unusable(data: DataSet, scores: Mapping[str, Sequence[float]], samples: int) -> None:
    """Raise ValueError for scores that no comparison could use: that is a defect of the data set."""
    for name, values in scores.items():
        if len(values) != samples:
            raise ValueError(f"data set `{data.name}` has {len(values)} scores of {name} for {samples} samples")
        if not np.isfinite(values).all():
            raise ValueError(f"data set `{data.name}` has scores of {name} that are not finite")
