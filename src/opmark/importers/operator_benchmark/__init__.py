"""PyTorch's operator_benchmark."""

from opmark.importers.operator_benchmark.importer import OPERATOR_BENCHMARK

__all__ = ["OPERATOR_BENCHMARK"]
