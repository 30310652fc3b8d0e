"""opperf and DL Operator Benchmarks: what `run_performance_test` takes, what opperf writes, classes by their names."""

from opmark.importers.opperf.importer import OPPERF

__all__ = ["OPPERF"]
