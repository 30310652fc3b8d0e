"""benchmark.opperf.utils.benchmark_utils: operators with inputs that the caller chooses."""

from __future__ import annotations

from opmark.interop.opperf.performance import run_benchmark_operator, run_op_benchmarks, run_performance_test

__all__ = ["run_benchmark_operator", "run_op_benchmarks", "run_performance_test"]
