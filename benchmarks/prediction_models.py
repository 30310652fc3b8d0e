"""Whole models on this CPU, predicted and measured: `python -m benchmarks.prediction --part models`.

The first start measures operators to learn from (for 80 s, and the peaks of the machine beside it) and trains; later
ones go on where `--limit` ended the last, and only print once everything is there. A start with `--budget` measures for
so long in any case. The model is trained anew where the store has more to learn from than it was trained with.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from statistics import median

from opmark.api.predict import measure_for_training, predict, save_predictor, stored_samples, train_from_store
from opmark.api.requests import RunRequest
from opmark.api.result import existing_store
from opmark.api.run import run_request
from opmark.errors import UserError
from opmark.plugin.registry import backend as find_backend
from opmark.prediction.class_model import FEWEST, TrainingEffort
from opmark.prediction.predictor import Predictor, load
from opmark.prediction.samples import Samples, class_of
from opmark.runner.guests.placement import why_missing
from opmark.schema.record import COUNTED
from opmark.units import percent, seconds

MODELS = ("resnet-18", "mobilenet_v2", "inception_v3", "bert-base", "multi-head", "two-towers")
BACKENDS = ("torch-cpu", "torch-compile-cpu")
_BUDGET = 80.0
"""Seconds of measuring at the first start."""
_LEARNT = ("linear", "linear", "conv2d", "conv2d", "add", "relu", "gelu", "layer_norm", "batch_norm", "batched_matmul")
"""Operators that the model learns from, those of a class with few operators more often."""
_LABEL = "whole models"


def predict_and_measure(budget: float | None, limit: float, out: Path, seed: int, threads: int | None) -> None:
    """Print a line for each model and backend: predicted with its interval, measured, error."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    db, model = out / "prediction.db", out / "torch-cpu.npz"
    known = load(model) if model.is_file() else None
    if budget is None:
        budget = _BUDGET if known is None else 0.0
    if budget > 0:
        measure_for_training("torch-cpu", budget, operators=_LEARNT, db=db, seed=seed, threads=threads)
    if known is None or is_outgrown(known, stored_samples("torch-cpu", db=db, threads=threads)[0]):
        save_predictor(train_from_store("torch-cpu", db=db, threads=threads, seed=seed), model)
    print("| model | backend | predicted | 90 % interval | measured | error | inside | calls |")
    print("|---|---|---:|---:|---:|---:|---|---:|")
    errors: dict[str, list[float]] = {}
    for name in MODELS:
        for backend in BACKENDS:
            if why_missing(find_backend(backend)):
                continue
            measured = _stored(name, backend, db)
            if measured is None and time.monotonic() - began < limit:
                run_request(RunRequest(
                    [f"model:{name}"], size="small", backend=[backend], effort="quick", processes=2, verify=False,
                    quantity=["latency"], cache=["warm"], threads=() if threads is None else (threads,),
                    label=f"{_LABEL} {name} {backend}", db=db, compile_timeout=120.0,
                ))  # fmt: skip
                measured = _stored(name, backend, db)
            if measured is None:
                late = time.monotonic() - began >= limit
                print(f"| {name} | {backend} | | | {'start again: time is up' if late else 'not measured'} | | | |")
                continue
            try:
                found = predict(f"model:{name}", size="small", on="here", backend=backend, model=model, far=True)
            except UserError as error:
                print(f"| {name} | {backend} | {error.message.replace('|', '/')} | | {seconds(measured)} | | | |")
                continue
            if (whole := found.whole) is None:
                print(f"| {name} | {backend} | {found.notes[-1].replace('|', '/')} | | {seconds(measured)} | | | |")
                continue
            errors.setdefault(backend, []).append(abs(whole.seconds / measured - 1))
            missing = f", without {whole.unknown}" if whole.unknown else ""
            inside = "yes" if whole.low <= measured <= whole.high else "no"
            print(
                f"| {name} | {backend} | {seconds(whole.seconds)} | {seconds(whole.low)} – {seconds(whole.high)} | "
                f"{seconds(measured)} | {percent(whole.seconds / measured - 1)} | {inside} | {whole.calls}{missing} |",
                flush=True,
            )
    for backend, own in errors.items():
        print(f"\n{backend}: mean error {percent(sum(own) / len(own))}, median {percent(median(own))}")


def is_outgrown(known: Predictor, samples: Samples) -> bool:
    """Return whether training would learn from more shapes than a model has learnt from: classes with too few shapes on
    a chip teach nothing."""
    counts = Counter(zip(map(class_of, map(str, samples.operator)), samples.device, strict=True))
    learnt = sum(sum(model.counts.values()) for model in known.models.values())
    return sum(min(count, TrainingEffort.rows) for count in counts.values() if count >= FEWEST) > learnt


def _stored(name: str, backend: str, db: Path) -> float | None:
    """Return the measured time of a model, if an earlier start has it."""
    with existing_store(db) as store:
        if store is None:
            return None
        runs = {run.id for run in store.runs() if run.label == f"{_LABEL} {name} {backend}"}
        times = [one.median for one in store.figures(runs=sorted(runs)) if one.status in COUNTED and one.median]
    return median(times) if times else None
