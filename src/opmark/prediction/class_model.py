"""The model of one class of operators: log(time / (roofline + floor)), by forests over all chips and of each chip."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from opmark.errors import UserError
from opmark.prediction.features import CHIP_FEATURES, balance, features, size_axes
from opmark.prediction.forest import EMPTY, Forest, grow_forest
from opmark.prediction.kernel import NOISE, Regimes, most_informative, regimes, update
from opmark.prediction.samples import Samples

COVERAGE = 0.9
MARGIN = 1.15
"""Intervals for unseen chips are wider by this than the worst chip of the training data needed: there are few chips."""
PROBES = 10
"""Number of probes that intervals after probing are calibrated with."""
FEWEST = 30
"""Fewest shapes of a class on a chip that a model is trained with."""
_REFERENCE = 600
"""Number of samples that a model keeps, for nearest neighbours and as candidates for probes."""
_HELD_OUT = 0.15


@dataclass(frozen=True)
class TrainingEffort:
    rounds: int = 200
    leaves: int = 31
    own_rounds: int = 120
    own_leaves: int = 15
    rows: int = 4000
    """Most shapes of a chip that a model is trained with: more take long and change little."""


@dataclass
class ClassModel:
    kind: str
    codes: dict[str, float]
    """By operator: mean of the target, as a number that forests can order operators by."""
    floors: dict[str, dict[str, float]]
    """By chip and operator: seconds of its smallest calls."""
    pooled: Forest
    """Over all chips, with the figures of the chip as features."""
    own: dict[str, Forest]
    """One for each chip, without these."""
    centre: np.ndarray
    spread: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    """Lowest and highest sizes of the training data."""
    reference: Samples
    counts: dict[str, int]
    """Number of shapes by chip."""
    blend: float = 0.5
    """Weight of the pooled forest for unseen chips; the rest has the median of the chips' own."""
    unseen: float = float("nan")
    """Half-width of the interval for an unseen chip, in standard deviations; NaN with fewer than three chips."""
    probed: float = float("nan")
    """The same with probes."""
    known: dict[str, float] = field(default_factory=dict)
    """By chip: half-width of the interval of log time for a chip of the training data."""

    def floor_of(self, samples: Samples, *, unseen: bool) -> np.ndarray:
        """Return the time of the smallest call of each operator. An unseen chip has that of the faster half of the
        others: hosts differ by up to 1.6, and no datasheet tells."""
        return np.asarray([self._floor(op, "" if unseen else chip)
                           for op, chip in zip(samples.operator, samples.device, strict=True)])  # fmt: skip

    def _floor(self, operator: str, chip: str) -> float:
        known = [floors for name, floors in self.floors.items() if chip in ("", name)]
        values = [floors[operator] for floors in known if operator in floors]
        values = values or [float(np.median(list(floors.values()))) for floors in known if floors]
        return sorted(values)[(len(values) - 1) // 2]

    def matrix(self, samples: Samples) -> np.ndarray:
        usual = float(np.median(list(self.codes.values())))
        return features(self.kind, samples, np.asarray([self.codes.get(op, usual) for op in samples.operator]))[0]

    def own_columns(self, matrix: np.ndarray) -> np.ndarray:
        return matrix[:, : -len(CHIP_FEATURES)]

    def expect_unseen(self, samples: Samples) -> tuple[np.ndarray, Regimes]:
        """Return log time on a chip that is not in the training data, and what the kernel needs."""
        matrix, floor = self.matrix(samples), self.floor_of(samples, unseen=True)
        others = np.stack([forest.predict(self.own_columns(matrix)) for forest in self.own.values()], 1)
        ratio = self.blend * self.pooled.predict(matrix) + (1 - self.blend) * np.median(others, 1)
        found = self.regimes_of(samples, floor, others - ratio[:, None])
        return ratio + np.log(samples.roofline + floor), found

    def expect_known(self, samples: Samples) -> np.ndarray:
        """Return log time on chips of the training data."""
        matrix, floor = self.matrix(samples), self.floor_of(samples, unseen=False)
        ratio = self.pooled.predict(matrix)
        for chip in sorted(set(samples.device)):
            rows = samples.device == chip
            ratio[rows] = (ratio[rows] + self.own[chip].predict(self.own_columns(matrix[rows]))) / 2
        return np.asarray(ratio + np.log(samples.roofline + floor))

    def regimes_of(self, samples: Samples, floor: np.ndarray, others: np.ndarray) -> Regimes:
        sizes = (size_axes(self.kind, samples) - self.centre) / self.spread
        return regimes(samples.roofline, floor, balance(samples), sizes, others)

    def distance(self, samples: Samples) -> np.ndarray:
        """Return how many octaves the sizes of each call lie outside of the training data; 0 if inside."""
        axes = size_axes(self.kind, samples)
        return np.asarray(np.maximum(np.maximum(self.lowest - axes, axes - self.highest), 0).max(1))

    def neighbour(self, samples: Samples) -> np.ndarray:
        """Return the time of the nearest shape of the training data, scaled by the rooflines: a baseline."""
        here, there = (size_axes(self.kind, one) / self.spread for one in (samples, self.reference))
        same = samples.operator[:, None] == self.reference.operator[None]
        distances = ((here[:, None] - there[None]) ** 2).sum(-1) + np.where(same, 0, 4.0)
        nearest = distances.argmin(1)
        scale = samples.roofline / self.reference.roofline[nearest]
        return np.asarray(self.reference.seconds[nearest] * scale)

    def candidates(self, samples: Samples, count: int = PROBES) -> np.ndarray:
        """Return which samples, all on one unseen chip, would teach most about it."""
        return np.asarray(most_informative(self.expect_unseen(samples)[1], count))


def train_class(kind: str, samples: Samples, *, seed: int = 0, effort: TrainingEffort | None = None) -> ClassModel:
    """Train the model of a class. 15 % of the shapes are left out of the training and calibrate the intervals: by shape
    for chips of the training data; for unseen chips, each chip is left out in turn and the worst one decides."""
    effort = effort or TrainingEffort()
    generator = np.random.default_rng(seed)
    samples = _limited(samples, effort.rows, generator)
    chips = sorted(set(samples.device))
    counts = {chip: int((samples.device == chip).sum()) for chip in chips}
    if too_few := {chip: count for chip, count in counts.items() if count < FEWEST}:
        listed = ", ".join(f"{count} on {chip}" for chip, count in too_few.items())
        raise UserError(
            f"too few shapes of class {kind} to learn from: {listed}; {FEWEST} are needed",
            "`opmark predict train --measure --budget 10m` measures those that teach most",
        )
    keys = samples.shape_keys
    held_out = (generator.random(keys.max() + 1) < _HELD_OUT)[keys]
    training, calibration = samples.take(~held_out), samples.take(held_out)
    floors = {chip: _floors(training.take(training.device == chip)) for chip in chips}
    axes = size_axes(kind, training)
    kept = generator.permutation(len(training))[:_REFERENCE]
    model = ClassModel(
        kind, {}, floors, EMPTY,
        {}, axes.mean(0), np.maximum(axes.std(0), 0.5), axes.min(0), axes.max(0), training.take(kept), counts,
    )  # fmt: skip
    target = np.log(training.seconds / (training.roofline + model.floor_of(training, unseen=False)))
    model.codes = {str(op): float(target[training.operator == op].mean()) for op in sorted(set(training.operator))}
    matrix = model.matrix(training)
    model.pooled = grow_forest(matrix, target, rounds=effort.rounds, leaves=effort.leaves, seed=seed)
    for chip in chips:
        rows = training.device == chip
        model.own[chip] = grow_forest(
            model.own_columns(matrix[rows]), target[rows], rounds=effort.own_rounds, leaves=effort.own_leaves, seed=seed
        )
        here = calibration.take(calibration.device == chip)
        errors = np.abs(np.log(here.seconds) - model.expect_known(here)) if len(here) else np.zeros(0)
        model.known[chip] = _conformal(errors)
    if len(chips) >= 3:
        _calibrate_unseen(model, training, target, matrix, calibration, effort, seed)
    return model


def _calibrate_unseen(
    model: ClassModel, training: Samples, target: np.ndarray, matrix: np.ndarray, calibration: Samples,
    effort: TrainingEffort, seed: int,
) -> None:  # fmt: skip
    """Leave each chip out in turn: choose the blend, and the widths that the worst chip needs."""
    parts: list[tuple[ClassModel, Samples, Samples]] = []
    for chip in sorted(model.own):
        rows = training.device != chip
        pooled = grow_forest(matrix[rows], target[rows], rounds=effort.rounds, leaves=effort.leaves, seed=seed)
        without = ClassModel(
            model.kind, model.codes, {name: found for name, found in model.floors.items() if name != chip}, pooled,
            {name: forest for name, forest in model.own.items() if name != chip}, model.centre, model.spread,
            model.lowest, model.highest, model.reference, model.counts,
        )  # fmt: skip
        probes = training.take(np.flatnonzero(training.device == chip)[:400])
        parts.append((without, calibration.take(calibration.device == chip), probes))
    blends = (1.0, 0.75, 0.5, 0.25, 0.0)
    errors = {blend: [] for blend in blends}  # type: dict[float, list[float]]
    for without, here, _ in parts:
        for blend in blends:
            without.blend = blend
            errors[blend].append(float(np.abs(np.exp(without.expect_unseen(here)[0]) / here.seconds - 1).mean()))
    model.blend = min(blends, key=lambda blend: float(np.mean(errors[blend])))
    unseen, probed = [], []
    for without, here, probes in parts:
        without.blend = model.blend
        expected, found = without.expect_unseen(here)
        deviation = np.sqrt(found.variance() + NOISE**2)
        unseen.append(_conformal(np.abs(np.log(here.seconds) - expected) / deviation))
        at_probes, regimes_of_probes = without.expect_unseen(probes)
        chosen = np.asarray(most_informative(regimes_of_probes, PROBES))
        shift, deviation = update(found, regimes_of_probes.take(chosen), (np.log(probes.seconds) - at_probes)[chosen])
        probed.append(_conformal(np.abs(np.log(here.seconds) - expected - shift) / deviation))
    model.unseen, model.probed = MARGIN * max(unseen), MARGIN * max(probed)


def _conformal(scores: np.ndarray) -> float:
    """Return the width that covers a new score with 90 % probability: a quantile, corrected for few scores."""
    if not len(scores):
        return float("nan")
    rank = min(len(scores) - 1, int(np.ceil((len(scores) + 1) * COVERAGE)) - 1)
    return float(np.sort(scores)[rank])


def _floors(samples: Samples) -> dict[str, float]:
    return {str(op): float(np.quantile(samples.seconds[samples.operator == op], 0.002))
            for op in sorted(set(samples.operator))}  # fmt: skip


def _limited(samples: Samples, most: int, generator: np.random.Generator) -> Samples:
    order = generator.permutation(len(samples))
    kept = np.concatenate([order[samples.device[order] == chip][:most] for chip in sorted(set(samples.device))])
    return samples.take(np.sort(kept))
