"""benchmark.opperf.opperf: the whole suite; run as a module, it is `opmark opperf`."""

from __future__ import annotations

import sys

from opmark.errors import OpmarkError
from opmark.interop.opperf.command import main
from opmark.interop.opperf.performance import run_all_mxnet_operator_benchmarks

__all__ = ["main", "run_all_mxnet_operator_benchmarks"]

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OpmarkError as error:
        sys.exit(f"error: {error}")
