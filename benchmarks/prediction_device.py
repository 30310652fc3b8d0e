"""Predictions within one device: measure operators of a dozen classes, train on some shapes, test on others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.prediction import covered, mape
from opmark.api.predict import measure_for_training, stored_samples
from opmark.plugin.registry import operator as find_operator
from opmark.prediction.class_model import FEWEST, TrainingEffort, train_class
from opmark.prediction.predictor import predict_class
from opmark.prediction.samples import Samples, class_of, join_samples

BACKENDS = {"cpu": ("torch-cpu",), "cuda": ("torch-cuda", "triton-cuda")}
_FOLDS = 5
_EFFORT = TrainingEffort(rounds=300, leaves=15, own_rounds=300, own_leaves=15)


def collect_and_evaluate(device: str, budget: float, out: Path, seed: int, threads: int | None) -> None:
    """Measure into a store under `out`, and print a line for each family. A store that is there already is added to; a
    budget of 0 only evaluates it. The peaks of a processor are measured beside the budget."""
    out.mkdir(parents=True, exist_ok=True)
    db = out / "prediction.db"
    for backend in BACKENDS[device]:
        if budget > 0:
            measure_for_training(backend, budget, db=db, seed=seed, threads=threads)
        samples, quantity = stored_samples(backend, db=db, threads=threads)
        # Records of a calibration are in other element types as well.
        counts = {name: int((samples.device == name).sum()) for name in samples.chips}
        samples = samples.take(samples.device == max(counts, key=lambda name: counts[name]))
        print(f"{backend}: {quantity} of {len(samples)} shapes on {', '.join(set(samples.device))}")
        print(evaluation(samples, seed))


def evaluation(samples: Samples, seed: int) -> str:
    """Return a table: each shape is tested once, by a model that was trained without it and the rest of its fifth. A
    line names the classes that have too few shapes for that."""
    tested, answers, few = [], [], list[str]()
    kinds = np.asarray([class_of(str(op)) for op in samples.operator], dtype=object)
    for kind in sorted(set(kinds)):
        own = samples.take(kinds == kind)
        if len(own) < 2 * FEWEST:
            few.append(f"{kind} ({len(own)})")
            continue
        keys = own.shape_keys
        folds = np.random.default_rng(seed).permutation(np.arange(keys.max() + 1) % _FOLDS)[keys]
        for fold in range(_FOLDS):
            test = own.take(folds == fold)
            model = train_class(kind, own.take(folds != fold), seed=seed, effort=_EFFORT)
            tested.append(test)
            answers.append((*predict_class(model, test), model.neighbour(test)))
    left_out = f"left out, with fewer than {2 * FEWEST} shapes: {', '.join(few)}"
    if not tested:
        return f"no class has enough shapes to be tested; {left_out}; a longer --budget measures more"
    test = join_samples(tested)
    seconds, low, high, neighbour = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    families = np.asarray([_family(str(op)) for op in test.operator], dtype=object)
    lines = ["| family | operators | shapes | MAPE | median error | covered | high/low | roofline | neighbour |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|---:|---:|"]

    def line(name: str, rows: np.ndarray) -> str:
        truth = test.seconds[rows]
        operators = ", ".join(sorted(set(test.operator[rows]))) if name != "all" else ""
        figures = (mape(seconds[rows], truth), 100 * float(np.median(np.abs(seconds[rows] / truth - 1))))
        return (
            f"| {name} | {operators} | {rows.sum()} | {figures[0]:.1f} | {figures[1]:.1f} | "
            f"{covered(low[rows], high[rows], truth):.1f} | {np.median(high[rows] / low[rows]):.2f} | "
            f"{mape(test.roofline[rows], truth):.0f} | {mape(neighbour[rows], truth):.0f} |"
        )

    # Of a calibration, a shape or two of other families are in the store as well.
    named = [name for name in sorted(set(families)) if (families == name).sum() >= FEWEST]
    lines += [line(name, families == name) for name in named]
    lines.append(line("all", np.ones(len(test), dtype=bool)))
    errors = [mape(seconds[families == name], test.seconds[families == name]) for name in named]
    lines.append(f"\nmedian over the families: {np.median(errors):.1f}; worst: {max(errors):.1f}")
    lines += [left_out] if few else []
    return "\n".join(lines)


def _family(operator: str) -> str:
    """Return the class of an operator; of row-wise ones, the category in the catalogue."""
    kind = class_of(operator)
    return find_operator(operator.partition(" ")[0]).category if kind == "row-wise" else kind
