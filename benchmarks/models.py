"""Whole models: what measuring one costs beside a plain loop over it, and the small zoo on every backend of a CPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.common import OPMARK, Row, Shell
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.plan import settings_for
from opmark.schema import Case, Task
from opmark.schema.options import MeasureOptions
from opmark.worker.measure.instruments import Instruments
from opmark.worker.preparation import prepare
from opmark.worker.quantities import TaskMeasurement

BACKENDS = (
    "torch-cpu", "torch-compile-cpu", "onnxruntime-cpu", "openvino-cpu", "openvino-cpu/default-precision", "tvm-cpu",
    "jax-cpu",
)  # fmt: skip
SECONDS = 600.0
MODELS = ("model:resnet50", "model:gpt2", "model:roformer")
"""Models whose small size takes more than a millisecond on one core, or is given more samples until it does."""
BATCH = 8
TURNS = 31
MOST = 0.02


def rows(shell: Shell) -> list[Row]:
    return [*map(_beside_a_loop, MODELS), _zoo(shell)]


def _zoo(shell: Shell) -> Row:
    options = ("--backend", ",".join(BACKENDS), "--effort", "quick", "--retries", "0", "--json")
    since = time.perf_counter()
    printed = shell.run(OPMARK, "run", "--suite", "models-small", *options, codes=(0, 1))
    seconds = time.perf_counter() - since
    records = [json.loads(line) for line in printed.splitlines()]
    counts = {status: sum(one["status"] == status for one in records) for status in {one["status"] for one in records}}
    counted = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return Row(
        f"suite `models-small`, {len(BACKENDS)} backends, `quick`, from the shell to the output",
        f"at most {SECONDS:.0f} s",
        f"{seconds:.0f} s; {len(records)} records: {counted}",
        seconds <= SECONDS,
    )


def _beside_a_loop(name: str) -> Row:
    """Compare opmark's median with that of a plain loop over the same launch, in turns."""
    info, operator = find_backend("torch-cpu"), find_operator(name)
    backend = info.load(1)
    (implementation,) = operator.implementations_for("torch")
    (settings,) = settings_for(MeasureOptions(effort="quick", threads=[1]))
    params = operator.complete({**operator.preset("small"), "batch": BATCH})
    task = Task(Case.of(name, params, "forward"), info.name, implementation.label, settings)
    prepared = prepare(params, task, operator, implementation, backend)
    instruments = Instruments.of(info, backend, None)
    ratios, plain = [], []
    for _ in range(TURNS):
        found = TaskMeasurement(task, operator, implementation, backend, instruments, prepared).run()[0]
        loop = _loop(prepared.launch, len(found.samples))
        ratios.append(median(found.samples) / loop)
        plain.append(loop)
    ratio, seconds = median(ratios), median(plain)
    return Row(
        f"{name} small, batch {BATCH}, one thread: opmark's median over that of a plain loop, in {TURNS} turns",
        f"at most {MOST:.0%} more, above 1 ms",
        f"{ratio - 1:+.1%} ({1e3 * seconds:.2f} ms; turns from {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%})",
        None if seconds < 1e-3 else ratio <= 1 + MOST,
    )


def _loop(launch: Callable[[], Any], calls: int) -> float:
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        launch()
        times.append(time.perf_counter() - start)
    return median(times)
