"""The model of one class of operators: log(time / (roofline + floor)), by forests over all chips and of each chip, and
by a smooth function for each operator of a chip that has too few shapes for trees alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from opmark.errors import UserError
from opmark.prediction.features import CHIP_FEATURES, balance, features, size_axes
from opmark.prediction.forest import EMPTY, Forest, grow_forest
from opmark.prediction.kernel import NOISE, Regimes, most_informative, regimes, update
from opmark.prediction.samples import ChipFigures, Samples
from opmark.prediction.smooth import Smooth, fit_smooth

COVERAGE = 0.9
MARGIN = 1.15
"""Intervals for unseen chips are wider by this than the worst chip of the training data needed: there are few chips."""
PROBES = 10
"""Number of probes that intervals after probing are calibrated with."""
_PROBE_SETS = 3
"""Sets of probes of each chip that is left out: one set may happen to suit the chip."""
_CANDIDATES = 400
"""Number of calls that each set is chosen from."""
FEWEST = 30
"""Fewest shapes of a class on a chip that a model is trained with."""
FEWEST_CHIPS = 3
"""Fewest chips that tell anything about another one."""
_REFERENCE = 600
"""Number of samples that a model keeps, for nearest neighbours and as candidates for probes."""
_FOLDS = 5
"""Each fifth of the shapes is predicted once by a model that has not seen it: what intervals are made of."""
_SMOOTH_MOST = 1500
"""Shapes of a class on a chip from which on trees are as good as smooth functions, and smaller."""
_SMOOTH_LEAST = 20
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_NEARLY = 0.01
"""Mean relative error by which a blend for unseen chips may be worse and still counts 1/e of the best one."""
_BLENDS = tuple((a / 4, b / 4, (4 - a - b) / 4) for a in range(4, -1, -1) for b in range(4 - a, -1, -1))


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
    blend: tuple[float, float, float] = (1.0, 0.0, 0.0)
    """For unseen chips: weights of the pooled forest, of the median of the chips' own forests, and of the mean of what
    these say of a chip with this one's power."""
    unseen: float = float("nan")
    """Half-width of the interval for an unseen chip, in standard deviations; NaN with fewer than three chips."""
    probed: float = float("nan")
    """The same with probes."""
    known: dict[str, dict[str, float]] = field(default_factory=dict)
    """By chip and operator: half-width of the interval of log time for a chip of the training data; of all operators
    together under the name ''."""
    smooth: dict[str, dict[str, Smooth]] = field(default_factory=dict)
    """By chip and operator."""
    share: dict[str, dict[str, float]] = field(default_factory=dict)
    """By chip and operator: weight of the smooth function; the trees have the rest."""

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

    def target(self, samples: Samples) -> np.ndarray:
        """Return what is learnt: log time relative to roofline and floor, on chips of the training data."""
        return np.asarray(np.log(samples.seconds / (samples.roofline + self.floor_of(samples, unseen=False))))

    def matrix(self, samples: Samples) -> np.ndarray:
        usual = float(np.median(list(self.codes.values())))
        return features(self.kind, samples, np.asarray([self.codes.get(op, usual) for op in samples.operator]))[0]

    def own_columns(self, matrix: np.ndarray) -> np.ndarray:
        return matrix[:, : -len(CHIP_FEATURES)]

    def expect_unseen(self, samples: Samples) -> tuple[np.ndarray, Regimes]:
        """Return log time on a chip that is not in the training data, and what the kernel needs."""
        floor = self.floor_of(samples, unseen=True)
        views, own, sustained = self.views(samples, floor)
        ratio = views @ np.asarray(self.blend)
        near = self.nearness(samples)
        if near.any():
            ratio += near.max() * (sustained @ (near / near.sum()) - ratio)
        found = self.regimes_of(samples, floor, own - ratio[:, None])
        return ratio + np.log(samples.roofline + floor), found

    def nearness(self, samples: Samples) -> np.ndarray:
        """Return, for each chip of the training data, how much the chip of these samples is like it: 1 if all figures
        are the same, 0.6 half an octave away, 0 for another generation. An A100 with faster memory is predicted as the
        A100 that was measured."""
        here = samples.chips[str(samples.device[0])]
        chips = [self.reference.chips[chip] for chip in self.own]
        squares = np.asarray([((_octaves(chip) - _octaves(here)) ** 2).sum() for chip in chips])
        return np.where([chip.process == here.process for chip in chips], np.exp(-2 * squares), 0.0)

    def views(self, samples: Samples, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the three columns that are blended for an unseen chip, what each chip's own forest says, and what that
        says of a chip with this one's power; all relative to roofline and floor. Power limits how much of its peak rate
        a chip sustains."""
        matrix = self.matrix(samples)
        own = np.stack([forest.predict(self.own_columns(matrix)) for forest in self.own.values()], 1)
        demands = [self.reference.chips[chip].power_demand for chip in self.own]
        throttled = np.stack([_throttled(samples, floor, demand) for demand in demands], 1)
        here = _throttled(samples, floor, samples.of_chip("power_demand"))
        sustained = own + np.log(here[:, None] / throttled)
        blended = np.stack([self.pooled.predict(matrix), np.median(own, 1), sustained.mean(1)], 1)
        return blended, own, sustained

    def expect_known(self, samples: Samples) -> np.ndarray:
        """Return log time on chips of the training data."""
        trees, smooth = self.opinions(samples)
        share = np.asarray([self.share.get(chip, {}).get(op, 0.0)
                            for chip, op in zip(samples.device, samples.operator, strict=True)])  # fmt: skip
        ratio = np.where(share > 0, share * smooth + (1 - share) * trees, trees)
        return np.asarray(ratio + np.log(samples.roofline + self.floor_of(samples, unseen=False)))

    def opinions(self, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """Return what trees and smooth functions say of chips of the training data, relative to roofline and floor;
        the latter are NaN where there are none."""
        matrix = self.matrix(samples)
        own = self.own_columns(matrix)
        trees, smooth = np.zeros(len(samples)), np.full(len(samples), np.nan)
        for chip in sorted(set(samples.device)):
            rows = samples.device == chip
            trees[rows] = self.own[chip].predict(own[rows])
            if len(self.own) > 1:
                trees[rows] = (trees[rows] + self.pooled.predict(matrix[rows])) / 2
            for operator, function in self.smooth.get(chip, {}).items():
                of_operator = rows & (samples.operator == operator)
                smooth[of_operator] = function.predict(own[of_operator])
        return trees, smooth

    def half_width(self, samples: Samples) -> np.ndarray:
        """Return the half-width of the interval of log time on chips of the training data."""
        return np.asarray([self.known[chip].get(op, self.known[chip][""])
                           for chip, op in zip(samples.device, samples.operator, strict=True)])  # fmt: skip

    def regimes_of(self, samples: Samples, floor: np.ndarray, others: np.ndarray) -> Regimes:
        sizes = (size_axes(self.kind, samples) - self.centre) / self.spread
        return regimes(samples.roofline, floor, balance(samples), sizes, others, samples.operator)

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
    """Train the model of a class. Intervals are calibrated with shapes that a model has not seen: for chips of the
    training data, each fifth of the shapes is left out in turn; for unseen chips, each chip in turn, and the worst one
    decides."""
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
    folds = generator.permutation(np.arange(keys.max() + 1) % _FOLDS)[keys]
    model = _fit(kind, samples, effort, seed)
    model.reference = samples.take(generator.permutation(len(samples))[:_REFERENCE])
    parts = [_fit(kind, samples.take(folds != fold), effort, seed, model) for fold in range(_FOLDS)]
    _calibrate_known(model, parts, samples, folds)
    if len(chips) >= FEWEST_CHIPS:
        _calibrate_unseen(model, parts[0], samples.take(folds != 0), samples.take(folds == 0), effort, seed)
    return model


def _fit(kind: str, samples: Samples, effort: TrainingEffort, seed: int, like: ClassModel | None = None) -> ClassModel:
    """Return a model of all samples, without intervals; its smooth functions have the scales of those of `like`."""
    chips = sorted(set(samples.device))
    counts = {chip: int((samples.device == chip).sum()) for chip in chips}
    floors = {chip: _floors(samples.take(samples.device == chip)) for chip in chips}
    axes = size_axes(kind, samples)
    model = ClassModel(
        kind, {}, floors, EMPTY,
        {}, axes.mean(0), np.maximum(axes.std(0), 0.5), axes.min(0), axes.max(0), samples, counts,
    )  # fmt: skip
    target = model.target(samples)
    model.codes = {str(op): float(target[samples.operator == op].mean()) for op in sorted(set(samples.operator))}
    matrix = model.matrix(samples)
    own = model.own_columns(matrix)
    if len(chips) > 1:
        model.pooled = grow_forest(matrix, target, rounds=effort.rounds, leaves=effort.leaves, seed=seed)
    for chip in chips:
        rows = samples.device == chip
        model.own[chip] = grow_forest(
            own[rows], target[rows], rounds=effort.own_rounds, leaves=effort.own_leaves, seed=seed
        )
        model.smooth[chip] = {}
        if counts[chip] <= _SMOOTH_MOST:
            for operator in sorted(set(samples.operator[rows])):
                of_operator = rows & (samples.operator == operator)
                known = like.smooth[chip].get(operator) if like else None
                if of_operator.sum() >= _SMOOTH_LEAST and (like is None or known):
                    model.smooth[chip][operator] = fit_smooth(
                        own[of_operator], target[of_operator], seed=seed, like=known
                    )
    return model


def _calibrate_known(model: ClassModel, parts: list[ClassModel], samples: Samples, folds: np.ndarray) -> None:
    """Choose the shares of the smooth functions, and the widths, by what models say of shapes that they have not
    seen."""
    trees, smooth, truth = (np.full(len(samples), np.nan) for _ in range(3))
    for fold, part in enumerate(parts):
        rows = folds == fold
        held_out = samples.take(rows)
        trees[rows], smooth[rows] = part.opinions(held_out)
        truth[rows] = part.target(held_out)
    for chip in sorted(model.own):
        here = samples.device == chip
        errors, model.share[chip], model.known[chip] = np.abs(truth - trees), {}, {}
        for operator in sorted(set(samples.operator[here])):
            rows = here & (samples.operator == operator)
            if operator in model.smooth[chip] and not np.isnan(smooth[rows]).any():
                by_share = {share: np.abs(truth - share * smooth - (1 - share) * trees)[rows] for share in _SHARES}
                share = min(_SHARES, key=lambda share: float(by_share[share].mean()))
                model.share[chip][operator], errors[rows] = share, by_share[share]
            if rows.sum() >= FEWEST:
                model.known[chip][operator] = _conformal(errors[rows])
        model.known[chip][""] = _conformal(errors[here])


def _calibrate_unseen(
    model: ClassModel, part: ClassModel, training: Samples, calibration: Samples, effort: TrainingEffort, seed: int
) -> None:  # fmt: skip
    """Leave each chip out in turn: choose the blend, and the widths that the worst chip needs. `part` was trained with
    the shapes of `training` alone."""
    parts: list[tuple[ClassModel, Samples, list[Samples]]] = []
    generator = np.random.default_rng(seed)
    target, matrix = part.target(training), part.matrix(training)
    for chip in sorted(model.own):
        rows = training.device != chip
        pooled = grow_forest(matrix[rows], target[rows], rounds=effort.rounds, leaves=effort.leaves, seed=seed)
        without = replace(
            part, pooled=pooled, floors={name: found for name, found in part.floors.items() if name != chip},
            own={name: forest for name, forest in part.own.items() if name != chip},
        )  # fmt: skip
        order = generator.permutation(np.flatnonzero(training.device == chip))[: _PROBE_SETS * _CANDIDATES]
        candidates = [training.take(one) for one in np.array_split(order, _PROBE_SETS)]
        parts.append((without, calibration.take(calibration.device == chip), candidates))
    errors: dict[tuple[float, float, float], list[float]] = {blend: [] for blend in _BLENDS}
    for without, here, _ in parts:
        floor = without.floor_of(here, unseen=True)
        views, _, _ = without.views(here, floor)
        for blend in _BLENDS:
            expected = np.exp(views @ np.asarray(blend)) * (here.roofline + floor)
            errors[blend].append(float(np.abs(expected / here.seconds - 1).mean()))
    means = np.asarray([np.mean(errors[blend]) for blend in _BLENDS])
    # Few chips do not tell which of several blends that are nearly as good is the best one: their mean is.
    near = np.exp((means.min() - means) / _NEARLY)
    first, second, third = (float(weight) for weight in near @ np.asarray(_BLENDS) / near.sum())
    model.blend = (first, second, third)
    unseen, probed = [], []
    for without, here, candidates in parts:
        without.blend = model.blend
        expected, found = without.expect_unseen(here)
        residuals, deviation = np.log(here.seconds) - expected, np.sqrt(found.variance() + NOISE**2)
        unseen.append(_conformal(np.abs(residuals) / deviation))
        for candidate in candidates:
            probes = candidate.take(without.candidates(candidate))
            at_probes, regimes_of_probes = without.expect_unseen(probes)
            shift, deviation = update(found, regimes_of_probes, np.log(probes.seconds) - at_probes)
            probed.append(_conformal(np.abs(residuals - shift) / deviation))
    model.unseen, model.probed = MARGIN * max(unseen), MARGIN * max(probed)


def _octaves(chip: ChipFigures) -> np.ndarray:
    """Return the figures by which chips of a generation differ, as logarithms; of power, how much throttles them."""
    return np.log2([chip.flops, chip.bandwidth, chip.multiprocessors, max(chip.power_demand, 1.0)])


def _throttled(samples: Samples, floor: np.ndarray, demand: np.ndarray | float) -> np.ndarray:
    """Return floor and roofline where computing is slowed by the watts that it demands beyond those that there are."""
    return np.asarray(np.maximum(samples.computing * np.maximum(demand, 1.0), samples.moving) + floor)


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
