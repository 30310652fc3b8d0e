"""Four operators on every available backend, from the shell to the table; guests have to be installed already."""

from __future__ import annotations

import json
import time

from benchmarks.common import OPMARK, Row, Shell
from opmark.runner.guests import environments

OPERATORS = ("matmul", "softmax", "layer_norm", "conv2d")
BACKENDS = 9
TARGET = 180.0


def rows(shell: Shell) -> list[Row]:
    guests = {
        environments.VARIABLE: str(environments.folder())
    }  # those of the user, because making them is not measured
    shell.environ |= guests
    options = ("--backend", "all", "--size", "typical", "--effort", "quick", "--json")
    since = time.perf_counter()
    printed = shell.run(OPMARK, "run", *OPERATORS, *options, codes=(0, 1))
    seconds = time.perf_counter() - since
    records = [json.loads(line) for line in printed.splitlines()]
    measured = [record for record in records if record["status"] == "ok"]
    backends = {record["backend"] for record in measured}
    enough = len(backends) >= BACKENDS
    return [
        Row(
            f"{len(OPERATORS)} operators on {len(backends)} backends, `quick`, from the shell to the output",
            f"{BACKENDS} backends in under {TARGET:.0f} s",
            f"{seconds:.0f} s; {len(measured)} of {len(records)} records ok ({', '.join(sorted(backends))})",
            enough and seconds < TARGET,
        )
    ]
