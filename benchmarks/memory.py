"""Peak memory of the worker relative to the need of the operator itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common import OPMARK, Row, Shell
from opmark.units import count_bytes

EXCESS = 0.10
# Parameters for tensors of 200 MiB, and for tiny ones, which show the memory of the worker alone.
OPERATORS = {
    "add": (["shape=51200x1024"], ["shape=4x4"]),
    "softmax": (["shape=51200x1024"], ["shape=4x4"]),
    "matmul": (["M=51200", "N=1024", "K=1024"], ["M=4", "N=4", "K=4"]),
}


def rows(shell: Shell) -> list[Row]:
    if sys.platform != "linux":
        return [Row("peak memory of the worker", "", "measured on Linux only", None)]
    return [_row(shell, op, large, tiny) for op, (large, tiny) in OPERATORS.items()]


def _row(shell: Shell, op: str, large: list[str], tiny: list[str]) -> Row:
    record, peak = _run(shell, op, large)
    _, idle = _run(shell, op, tiny)
    need = record["cost"]["bytes_read"] + record["cost"]["bytes_written"]
    counted = [record["memory"]["peak"] / need - 1, (peak - idle) / need - 1]
    return Row(
        f"peak memory of a forward {op} that needs {count_bytes(need)}",
        f"at most {100 * EXCESS:+.0f} %",
        f"{_percent(counted[0])} in the record, {_percent(counted[1])} in the worker",
        max(counted) <= EXCESS,
    )


def _run(shell: Shell, op: str, params: list[str]) -> tuple[dict[str, Any], int]:
    """Return the record of one case, and the peak memory of its worker, start-up included."""
    options = [part for param in params for part in ("-p", param)]
    command = [OPMARK, "run", op, *options, "--effort", "quick", "--json", "--db", str(shell.db)]
    with subprocess.Popen(
        command, env=shell.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        peak = _watch(process)
        assert process.stdout is not None
        return json.loads(process.stdout.read()), peak


def _watch(process: subprocess.Popen[str]) -> int:
    """Poll the kernel's peak, because the worker resets it before each case."""
    parent, worker, peak = psutil.Process(process.pid), None, 0
    while process.poll() is None:
        worker = worker or next(iter(parent.children()), None)
        if worker:
            peak = max(peak, _peak_so_far(worker.pid))
        time.sleep(0.002)
    return peak


def _peak_so_far(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0  # it has just ended
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def _percent(fraction: float) -> str:
    return f"{round(100 * fraction, 1) + 0.0:+.1f} %"  # adding 0.0 turns -0.0 into 0.0
