"""`python -m benchmarks` finds everything that it measures with; what it measures is in benchmarks/README.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_benchmarks_can_be_imported() -> None:
    code = "import benchmarks.__main__, benchmarks.requests, benchmarks.general_perf, benchmarks.general_perf_reference"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
