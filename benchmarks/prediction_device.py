"""Predictions within one device: measure ten operator families with opmark, train on some shapes, test on others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.prediction import covered, mape
from opmark.api.calibrate import calibrate
from opmark.api.predict import measure_for_training, stored_samples
from opmark.prediction.class_model import TrainingEffort, train_class
from opmark.prediction.predictor import predict_class
from opmark.prediction.samples import class_of

BACKENDS = {"cpu": ("torch-cpu",), "cuda": ("torch-cuda", "triton-cuda")}
_TESTED = 0.25


def collect_and_evaluate(device: str, budget: float, out: Path, seed: int) -> None:
    """Measure into a store under `out`, and print a line for each family. A store that is there already is added to; a
    budget of 0 only evaluates it."""
    out.mkdir(parents=True, exist_ok=True)
    db = out / "prediction.db"
    for backend in BACKENDS[device]:
        if budget > 0:
            if device == "cpu":
                calibrate(backend=backend, db=db)  # few processors have a datasheet, and a roofline needs peaks
            measure_for_training(backend, budget, db=db, seed=seed)
        samples, quantity = stored_samples(backend, db=db)
        print(f"{backend}: {quantity} of {len(samples)} shapes on {', '.join(samples.chips)}")
        keys, generator = samples.shape_keys, np.random.default_rng(seed)
        tested = (generator.random(keys.max() + 1) < _TESTED)[keys]
        kinds = np.asarray([class_of(str(op)) for op in samples.operator], dtype=object)
        print("| family | shapes tested | MAPE | median | covered | roofline | neighbour |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        inside: list[np.ndarray] = []
        for kind in sorted(set(kinds)):
            model = train_class(
                kind, samples.take(~tested & (kinds == kind)), seed=seed, effort=TrainingEffort(rounds=300, leaves=15)
            )
            for family in sorted(set(samples.operator[kinds == kind])):
                test = samples.take(tested & (samples.operator == family))
                if not len(test):
                    continue
                seconds, low, high = predict_class(model, test)
                inside.append((low <= test.seconds) & (test.seconds <= high))
                print(
                    f"| {family} | {len(test)} | {mape(seconds, test.seconds):.1f} % | "
                    f"{100 * float(np.median(np.abs(seconds / test.seconds - 1))):.1f} % | "
                    f"{covered(low, high, test.seconds):.0f} % | {mape(test.roofline, test.seconds):.0f} % | "
                    f"{mape(model.neighbour(test), test.seconds):.0f} % |"
                )
        print(f"covered over all families: {100 * np.concatenate(inside).mean():.1f} %")
