"""mxnet_benchmarks.benchmark_executor: all classes of DL Operator Benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opmark.interop.opperf.class_inputs import CLASSES
from opmark.interop.opperf.classes import run_classes
from opmark.interop.opperf.measurement import CPU


def run_all_mxnet_operator_benchmarks(
    ctx: Any = CPU, inputs: Mapping[str, Any] | None = None, **settings: Any
) -> dict[str, float]:
    """Print the times and return them in one dictionary. `settings` are warmup, runs, framework, threads and db."""
    found = run_classes(list(CLASSES), ctx, inputs or {}, **settings)
    return {name: seconds for result in found for name, seconds in result.items()}
