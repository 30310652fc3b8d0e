"""Laws of predictions, on made-up chips whose times follow a known law."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from opmark.errors import InvalidFile, UserError
from opmark.prediction.class_model import FEWEST, ClassModel, TrainingEffort, train_class
from opmark.prediction.kernel import regimes, update
from opmark.prediction.predictor import Predictor, chip_distance, load, predict_class, save, shipped, train
from opmark.prediction.samples import LINEAR, ChipFigures, Samples, class_of, join_samples, samples_of
from opmark.schema.call_sizes import CallSizes

pytest.importorskip("lightgbm")
QUICK = TrainingEffort(rounds=60, leaves=15, own_rounds=40, own_leaves=8)


def chip(name: str, flops: float, bandwidth: float, units: int) -> ChipFigures:
    return ChipFigures(name, flops, bandwidth, units, 4e6, 200.0, 1.4e9, 12.0)


CHIPS = {
    one.chip: one
    for one in (
        chip("a", 5e12, 2e11, 20), chip("b", 9e12, 7e11, 56), chip("c", 14e12, 9e11, 80), chip("d", 8e12, 3e11, 40),
        chip("e", 19e12, 15e11, 108),
    )
}  # fmt: skip
EFFICIENCY = {"a": 0.55, "b": 0.65, "c": 0.8, "d": 0.45, "e": 0.7}


def measured(name: str, count: int, seed: int, *, noise: float = 0.05) -> Samples:
    """Return products on a chip: launch, and tiles of 64 x 64 in waves at the chip's efficiency."""
    generator = np.random.default_rng(seed)
    sizes = 2 ** generator.uniform(4, 12, (count, 3))
    figures = CHIPS[name]
    calls, seconds = [], []
    for m, n, k in np.round(sizes):
        call = CallSizes("matmul", 1, m, n, k, 2 * m * n * k, 4 * (m * n + m * k + n * k))
        waves = np.ceil(np.ceil(m / 64) * np.ceil(n / 64) / figures.multiprocessors)
        computing = waves * figures.multiprocessors * 64 * 64 * k * 2 / figures.flops / EFFICIENCY[name]
        least = max(call.flops / figures.flops, call.nbytes / figures.bandwidth)
        time = 2e-5 + max(computing, call.nbytes / figures.bandwidth / 0.8)
        calls.append(call)
        seconds.append(max(time * np.exp(generator.normal(0, noise)), least))
    return samples_of(calls, [name] * count, seconds, CHIPS)


@pytest.fixture(scope="module")
def model() -> ClassModel:
    samples = join_samples([measured(name, 500, 7) for name in "abcd"])  # the same shapes on every chip
    return train_class(LINEAR, samples, effort=QUICK)


def mape(predicted: np.ndarray, samples: Samples) -> float:
    return float(np.abs(predicted / samples.seconds - 1).mean())


def test_nothing_goes_below_the_roofline_and_intervals_hold_the_prediction(model: ClassModel) -> None:
    for samples, probes in ((measured("a", 200, 1), None), (measured("e", 200, 2), None),
                            (measured("e", 200, 3), measured("e", 10, 4))):  # fmt: skip
        seconds, low, high = predict_class(model, samples, probes)
        assert (low >= samples.bound).all()
        assert (low <= seconds).all()
        assert (seconds <= high).all()


def test_a_known_chip_is_predicted_better_than_by_both_baselines(model: ClassModel) -> None:
    samples = measured("c", 300, 11)
    error = mape(predict_class(model, samples)[0], samples)
    assert error < mape(samples.roofline, samples) / 2
    assert error < mape(model.neighbour(samples), samples) / 2


def test_intervals_cover_on_a_known_chip_and_on_an_unseen_one(model: ClassModel) -> None:
    known = measured("b", 800, 21)
    _, low, high = predict_class(model, known)
    assert 0.82 <= ((low <= known.seconds) & (known.seconds <= high)).mean() <= 0.97
    unseen = measured("e", 400, 22)
    for probes in (None, measured("e", 10, 23)):
        _, low, high = predict_class(model, unseen, probes)
        assert ((low <= unseen.seconds) & (unseen.seconds <= high)).mean() >= 0.85


def test_probes_improve_an_unseen_chip_and_narrow_its_intervals(model: ClassModel) -> None:
    samples, pool = measured("e", 400, 31), measured("e", 200, 32)
    before, low, high = predict_class(model, samples)
    after, low_after, high_after = predict_class(model, samples, pool.take(model.candidates(pool)))
    assert mape(after, samples) < mape(before, samples)
    assert np.median(high_after / low_after) < np.median(high / low)


def test_probes_are_distinct_and_begin_with_the_most_informative(model: ClassModel) -> None:
    chosen = model.candidates(measured("e", 100, 41), 10)
    assert len(set(chosen)) == 10
    assert list(model.candidates(measured("e", 100, 41), 3)) == list(chosen[:3])


def test_a_chip_that_demands_more_power_than_it_has_is_expected_to_compute_slower(model: ClassModel) -> None:
    samples = measured("e", 50, 45)
    samples.chips = {**CHIPS, "e": replace(CHIPS["e"], power=CHIPS["e"].power / 8)}
    floor = model.floor_of(samples, unseen=True)
    hungry = model.views(samples, floor)[0][:, 2]
    samples.chips = CHIPS
    fed = model.views(samples, floor)[0][:, 2]
    computing = samples.computing > np.maximum(samples.moving, floor)
    assert (hungry >= fed - 1e-9).all()
    assert (hungry > fed + 0.2)[computing].all()


def test_a_chip_whose_figures_are_nearly_those_of_a_known_one_is_predicted_as_that_one(
    model: ClassModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = measured("d", 200, 46)
    samples.chips = {**CHIPS, "twin": replace(CHIPS["d"], bandwidth=1.1 * CHIPS["d"].bandwidth)}
    samples.device[:] = "twin"
    as_twin = mape(predict_class(model, samples)[0], samples)
    assert model.nearness(samples).argmax() == list(model.own).index("d")
    assert model.nearness(measured("e", 1, 47)).max() < 0.2
    later = measured("d", 1, 48)
    later.chips = {**CHIPS, "d": replace(CHIPS["d"], process=7.0)}
    assert not model.nearness(later).any()
    monkeypatch.setattr(ClassModel, "nearness", lambda self, samples: np.full(len(self.own), 1e-9))
    assert as_twin < 0.9 * mape(predict_class(model, samples)[0], samples)


def test_probes_that_surprise_each_other_widen_the_interval_and_ten_that_agree_narrow_it_little() -> None:
    sizes = np.random.default_rng(0).normal(size=(10, 2))
    calls = regimes(np.full(10, 1e-3), np.full(10, 1e-5), np.ones(10), sizes, np.zeros((10, 1)),
                    np.asarray(["matmul"] * 10, dtype=object))  # fmt: skip
    deviations = [update(calls, calls, size * np.resize([1.0, -1.0], 10))[1].mean() for size in (0.0, 0.1, 0.6)]
    assert deviations[0] < deviations[1] < deviations[2]
    assert deviations[0] > 0.75 * deviations[1]


def test_a_probe_of_a_small_call_tells_most_about_its_own_operator() -> None:
    sizes = np.zeros((3, 2))
    calls = regimes(np.full(3, 1e-7), np.full(3, 1e-5), np.zeros(3), sizes, np.zeros((3, 1)),
                    np.asarray(["relu", "relu", "gelu"], dtype=object))  # fmt: skip
    shift, deviation = update(calls, calls.take(np.asarray([0])), np.asarray([0.5]))
    assert shift[1] > shift[2] > 0
    assert deviation[1] < deviation[2]


def test_a_size_outside_of_the_training_data_is_said_to_be_far(model: ClassModel) -> None:
    inside = measured("a", 50, 51)
    assert (model.distance(inside) < 1).all()
    huge = samples_of([CallSizes("matmul", 1, 2**20, 64, 64, 2**33, 2**28)], ["a"], [1.0], CHIPS)
    assert model.distance(huge)[0] > 7
    strange = {"x": chip("x", 5e15, 2e11, 20)}
    assert chip_distance(model, samples_of([CallSizes("matmul", 1, 64, 64, 64, 1e6, 1e5)], ["x"], [1.0], strange)) > 5


def test_a_model_file_gives_the_same_predictions_and_the_same_bytes(tmp_path: Path) -> None:
    samples = join_samples([measured(name, 120, 61) for name in "abc"])
    made = [train(samples, "made up", backend="torch-cuda", quantity="latency", effort=QUICK, say=lambda _: None)
            for _ in range(2)]  # fmt: skip
    asked = measured("e", 40, 62)
    made[0].add_probes(measured("e", 10, 63))
    save(made[0], tmp_path / "one.npz")
    loaded = load(tmp_path / "one.npz")
    for before, after in zip(made[0].predict(asked), loaded.predict(asked), strict=True):
        assert after.seconds == pytest.approx(before.seconds, rel=1e-4)
        assert (before.basis, after.basis) == ("probes", "probes")
    save(made[1], tmp_path / "two.npz")
    made[0].probes.clear()
    save(made[0], tmp_path / "three.npz")
    assert (tmp_path / "two.npz").read_bytes() == (tmp_path / "three.npz").read_bytes()


def test_what_is_no_model_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(b"not a model")
    with pytest.raises(InvalidFile, match="is not a model"):
        load(path)


def test_too_few_records_and_too_few_chips_are_said() -> None:
    with pytest.raises(UserError, match="too few"):
        train(measured("a", FEWEST - 1, 71), "made up", backend="b", quantity="latency", say=lambda _: None)
    alone = train_class(LINEAR, measured("a", 200, 72), effort=QUICK)
    assert len(predict_class(alone, measured("a", 5, 73))[0]) == 5
    with pytest.raises(UserError, match="not in the training data"):
        predict_class(alone, measured("e", 5, 74))


def test_the_few_shapes_of_one_chip_are_learnt_better_with_smooth_functions_than_by_trees_alone() -> None:
    samples, asked = measured("a", 150, 81, noise=0.01), measured("a", 300, 82, noise=0.01)
    model = train_class(LINEAR, samples, effort=QUICK)
    smooth = mape(predict_class(model, asked)[0], asked)
    model.share = {}
    assert smooth < mape(predict_class(model, asked)[0], asked)


def test_each_operator_of_a_chip_has_an_interval_of_its_own() -> None:
    calm, wild = measured("a", 200, 91, noise=0.02), measured("a", 200, 92, noise=0.3)
    wild.operator[:] = "linear"
    model = train_class(LINEAR, join_samples([calm, wild]), effort=QUICK)
    assert model.known["a"]["linear"] > 2 * model.known["a"]["matmul"]
    asked = measured("a", 500, 93, noise=0.02)
    _, low, high = predict_class(model, asked)
    assert 0.8 <= ((low <= asked.seconds) & (asked.seconds <= high)).mean() <= 0.99


def test_an_energy_is_learnt_and_answered_in_joules() -> None:
    samples = measured("a", 200, 94)
    power = CHIPS["a"].power
    times = train(samples, "made up", backend="b", quantity="latency", effort=QUICK, say=lambda _: None)
    joules = train(samples, "made up", backend="b", quantity="energy", effort=QUICK, say=lambda _: None)
    for seconds, energy in zip(times.predict(samples.take([0, 1])), joules.predict(samples.take([0, 1])), strict=True):
        assert energy.seconds == pytest.approx(power * seconds.seconds)
        assert energy.low < energy.seconds < energy.high


@pytest.mark.parametrize(
    ("operator", "kind"),
    [("matmul backward", LINEAR), ("add y=scalar", "row-wise"), ("topk", "sorting"), ("reduce_sum", "reduction"),
     ("scaled_dot_product_attention", "attention"), ("no_such_operator", "other")],
)  # fmt: skip
def test_what_has_no_features_of_its_own_is_learnt_by_the_category_of_the_catalogue(operator: str, kind: str) -> None:
    assert class_of(operator) == kind


def test_operators_that_moving_data_limits_are_answered_by_the_model_of_row_wise_ones_and_others_are_not() -> None:
    predictor = shipped()
    assert predictor.knows("pooling")
    assert predictor.model_of("pooling") is predictor.models["row-wise"]
    assert not predictor.knows("attention")
    with pytest.raises(UserError, match="class attention"):
        predictor.model_of("attention")


def test_an_unknown_class_names_what_was_learnt(model: ClassModel) -> None:
    predictor = Predictor({LINEAR: model}, "made up", "", 0, "torch-cuda", "latency")
    softmax = samples_of([CallSizes("softmax", 1, 64, 64, 1, 4096, 32768)], ["a"], [1.0], CHIPS)
    with pytest.raises(UserError, match="class row-wise; learnt were linear"):
        predictor.predict(softmax)


def test_the_shipped_model_knows_five_chips_and_says_where_its_data_is_from() -> None:
    predictor = shipped()
    assert len(predictor.chips) == 5
    assert set(predictor.models) == {"linear", "bmm", "conv", "row-wise"}
    assert predictor.source
    assert predictor.data_hash
