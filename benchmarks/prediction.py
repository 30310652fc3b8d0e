"""How good are predictions? `python -m benchmarks.prediction FOLDER`: leave one GPU out, within one GPU, baselines.

FOLDER holds tables of measured operators (device, sizes, milliseconds) as NeuSight publishes them. `--device` measures
operator families on this machine with opmark instead, and evaluates within the device on held-out shapes.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from opmark.prediction.class_model import PROBES, TrainingEffort, train_class
from opmark.prediction.predictor import predict_class
from opmark.prediction.readers import drift_of, read_tables, tables_in, without_drift
from opmark.prediction.samples import CLASSES, Samples, class_of

_TESTED = 0.2
_POOLS = 5
"""Errors with probes are means over as many draws: one says little about the next."""
_POOL = 400
"""Shapes of a GPU of which the probes are chosen."""


def mape(predicted: np.ndarray, measured: np.ndarray) -> float:
    return 100 * float(np.abs(predicted / measured - 1).mean())


def covered(low: np.ndarray, high: np.ndarray, measured: np.ndarray) -> float:
    return 100 * float(((low <= measured) & (measured <= high)).mean())


def leave_one_out(
    kind: str, chip: str, samples: Samples, drift: np.ndarray, effort: TrainingEffort, seed: int
) -> dict[str, object]:
    """Train on all GPUs but one and on 80 % of the shapes; test on the other shapes of the GPU that was left out. The
    drift of its session, which is no property of the GPU, is removed from them, except where errors are `kept`."""
    keys, generator = samples.shape_keys, np.random.default_rng(seed)
    tested = (generator.random(keys.max() + 1) < _TESTED)[keys]
    here = samples.device == chip
    seen = ~here & ~tested
    model = train_class(kind, without_drift(samples.take(seen), drift[seen], say=_silent), seed=seed, effort=effort)
    late = samples.take(here & tested)
    test = without_drift(late, drift[here & tested], say=_silent)
    measured = test.seconds
    others = generator.permutation(np.flatnonzero(here & ~tested))
    pools = [
        without_drift(samples.take(rows), drift[rows], say=_silent)
        for rows in np.array_split(others[: _POOL * _POOLS], _POOLS)
    ]
    designed = [pool.take(model.candidates(pool)) for pool in pools]
    drawn = [pool.take(slice(PROBES)) for pool in pools]  # the order of a pool is random
    row: dict[str, object] = {
        "class": kind, "chip": chip, "roofline": mape(test.roofline, measured),
        "neighbour": mape(model.neighbour(test), measured), "blend": model.blend,
    }  # fmt: skip
    for name, sets in {"": [None], " probes": designed, " random": drawn}.items():
        answers = [predict_class(model, test, probes) for probes in sets]
        row |= {
            f"error{name}": float(np.mean([mape(seconds, measured) for seconds, _, _ in answers])),
            f"cover{name}": float(np.mean([covered(low, high, measured) for _, low, high in answers])),
            f"width{name}": float(np.mean([np.median(high / low) for _, low, high in answers])),
            f"kept{name}": float(np.mean([mape(predict_class(model, late, probes)[0], late.seconds)
                                          for probes in sets])),
        }  # fmt: skip
    print(row, flush=True)
    return row


def within(
    kind: str, chip: str, samples: Samples, drift: np.ndarray, effort: TrainingEffort, seed: int
) -> dict[str, object]:
    """Train on 80 % of the shapes of one GPU; test on the others."""
    keys, generator = samples.shape_keys, np.random.default_rng(seed)
    tested = (generator.random(keys.max() + 1) < _TESTED)[keys]
    here = samples.device == chip
    seen = here & ~tested
    model = train_class(kind, without_drift(samples.take(seen), drift[seen], say=_silent), seed=seed, effort=effort)
    test = without_drift(samples.take(here & tested), drift[here & tested], say=_silent)
    seconds, low, high = predict_class(model, test)
    row: dict[str, object] = {
        "class": kind, "chip": chip, "error": mape(seconds, test.seconds),
        "median": 100 * float(np.median(np.abs(seconds / test.seconds - 1))),
        "cover": covered(low, high, test.seconds), "width": float(np.median(high / low)),
        "roofline": mape(test.roofline, test.seconds),
        "neighbour": mape(model.neighbour(test), test.seconds),
    }  # fmt: skip
    print(row, flush=True)
    return row


def _silent(_: str) -> None:
    pass


def table(rows: list[dict[str, object]], columns: dict[str, str]) -> str:
    """Return a Markdown table with a row for each GPU and the mean of each class."""
    lines = ["| class | GPU | " + " | ".join(columns.values()) + " |", "|---|---|" + "---:|" * len(columns)]
    for kind in dict.fromkeys(str(row["class"]) for row in rows):
        own = [row for row in rows if row["class"] == kind]
        for row in own:
            lines.append(f"| {kind} | {row['chip']} | " + " | ".join(f"{row[name]:.1f}" for name in columns) + " |")
        means = (f"**{np.mean([float(str(row[name])) for row in own]):.1f}**" for name in columns)
        lines.append(f"| **{kind}** | mean | " + " | ".join(means) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder with the tables")
    parser.add_argument("--classes", nargs="*", default=list(CLASSES))
    parser.add_argument("--part", choices=("across", "within", "both", "models"), default="both",
                        help="models: whole models on this CPU, predicted and measured; needs no folder")  # fmt: skip
    parser.add_argument("--rows", type=int, default=TrainingEffort.rows, help="most shapes of a GPU to train with")
    parser.add_argument("--within-rows", type=int, default=20000, help="the same, within one GPU")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that train at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="measure on this device instead of reading tables")
    parser.add_argument(
        "--budget", type=float, help="seconds of measuring for each backend; by default 240, for models 80 at first"
    )
    parser.add_argument("--limit", type=float, default=170, help="seconds after which no further model is measured")
    parser.add_argument(
        "--out", type=Path, default=Path("prediction"), help="folder for the store of --device and of models"
    )
    parser.add_argument("--threads", type=int, help="threads of --device cpu; by default all cores")
    given = parser.parse_args()
    if given.part == "models":
        from benchmarks.prediction_models import predict_and_measure

        predict_and_measure(given.budget, given.limit, given.out, given.seed, given.threads)
        return
    if given.device:
        from benchmarks.prediction_device import collect_and_evaluate

        budget = 240.0 if given.budget is None else given.budget
        collect_and_evaluate(given.device, budget, given.out, given.seed, given.threads)
        return
    if given.folder is None:
        parser.error("expected a folder with tables, or --device")
    started = time.perf_counter()
    paths = tables_in(given.folder)
    samples = read_tables(paths, keep_drift=True)
    drift = drift_of(samples)
    kinds = np.asarray([class_of(str(op)) for op in samples.operator], dtype=object)
    with ProcessPoolExecutor(given.workers) as pool:
        waiting, inside_waiting = [], []
        for kind in given.classes:
            rows = np.flatnonzero(kinds == kind)
            part, late = samples.take(rows), drift[rows]
            if given.part != "within":
                effort = TrainingEffort(rows=given.rows)
                waiting += [pool.submit(leave_one_out, kind, chip, part, late, effort, given.seed)
                            for chip in sorted(set(part.device))]  # fmt: skip
            if given.part != "across" and len(rows):
                thorough = TrainingEffort(own_rounds=500, own_leaves=63, rows=given.within_rows)
                inside_waiting += [pool.submit(within, kind, chip, part, late, thorough, given.seed)
                                   for chip in sorted(set(part.device))]  # fmt: skip
        across = [one.result() for one in waiting]
        inside = [one.result() for one in inside_waiting]
    if across:
        print(table(across, {
            "error": "zero-shot", "error probes": "10 probes", "error random": "10 random", "cover": "covered",
            "cover probes": "covered, probes", "width": "high/low", "width probes": "high/low, probes",
            "kept": "zero-shot, drift kept", "kept probes": "10 probes, drift kept",
            "roofline": "roofline", "neighbour": "neighbour",
        }))  # fmt: skip
    if inside:
        print(table(inside, {
            "error": "MAPE", "median": "median", "cover": "covered", "width": "high/low", "roofline": "roofline",
            "neighbour": "neighbour",
        }))  # fmt: skip
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
