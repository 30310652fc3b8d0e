"""benchmark_driver of DL Operator Benchmarks, which runs all classes when it is run as a module."""

from __future__ import annotations

from opmark.interop.opperf.benchmark_executor import run_all_mxnet_operator_benchmarks

if __name__ == "__main__":
    run_all_mxnet_operator_benchmarks()
