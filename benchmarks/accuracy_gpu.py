"""opmark's device_time against the hardware's own records, do_bench and do_bench_cudagraph. Needs an NVIDIA GPU.

    python -m benchmarks.accuracy_gpu [--runs 3] [--effort standard] [--json FILE]

The yardstick is CUPTI, read here another way than opmark reads it: from the trace file that torch.profiler exports.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from triton.testing import do_bench, do_bench_cudagraph

import opmark
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.plan import settings_for
from opmark.schema import Case, Task
from opmark.schema.options import MeasureOptions
from opmark.worker.preparation import prepare

HALF = "float16"
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("add", "forward", {"shape": [1024]}),
    ("add", "forward", {"shape": [256, 1024]}),
    ("add", "forward", {"shape": [2048, 2048]}),
    ("add", "forward", {"shape": [8192, 8192]}),
    ("exp", "forward", {"shape": [1024, 1024]}),
    ("exp", "backward", {"shape": [4096, 4096]}),
    ("gelu", "forward", {"shape": [4096, 4096], "dtype": "bfloat16"}),
    ("cast", "forward", {"shape": [4096, 4096]}),
    ("reduce_sum", "forward", {"shape": [1024, 1024]}),
    ("reduce_sum", "forward", {"shape": [8192, 8192]}),
    ("softmax", "forward", {"shape": [64, 128]}),
    ("softmax", "forward", {"shape": [1024, 1024]}),
    ("softmax", "forward", {"shape": [8192, 4096]}),
    ("softmax", "backward", {"shape": [4096, 4096]}),
    ("layer_norm", "forward", {"shape": [1024, 1024]}),
    ("layer_norm", "forward", {"shape": [8192, 4096]}),
    ("layer_norm", "backward", {"shape": [1024, 1024]}),
    ("layer_norm", "backward", {"shape": [8192, 4096]}),
    ("rms_norm", "forward", {"shape": [4096, 4096]}),
    ("topk", "forward", {"shape": [256, 1024], "k": 16}),
    ("topk", "forward", {"shape": [64, 100000], "k": 16}),
    ("embedding", "forward", {"rows": 100000, "dim": 512, "indices": 8192}),
    ("conv2d", "forward", {"batch": 16, "in_channels": 64, "image": [56, 56], "out_channels": 64, "dtype": HALF}),
    ("scaled_dot_product_attention", "forward",
     {"batch": 1, "heads": 8, "q_len": 512, "kv_len": 512, "head_dim": 64, "dtype": HALF}),
    ("scaled_dot_product_attention", "forward",
     {"batch": 4, "heads": 32, "q_len": 2048, "kv_len": 2048, "head_dim": 128, "dtype": HALF}),
    ("matmul", "forward", {"M": 256, "N": 256, "K": 256, "dtype": HALF}),
    ("matmul", "forward", {"M": 16, "N": 4096, "K": 4096, "dtype": HALF}),
    ("matmul", "forward", {"M": 1024, "N": 1024, "K": 1024, "dtype": HALF}),
    ("matmul", "forward", {"M": 1024, "N": 1024, "K": 1024}),
    ("matmul", "forward", {"M": 4096, "N": 4096, "K": 4096, "dtype": HALF}),
    ("matmul", "backward", {"M": 2048, "N": 2048, "K": 2048, "dtype": HALF}),
    ("matmul", "forward", {"M": 8192, "N": 8192, "K": 8192, "dtype": HALF}),
    ("batched_matmul", "forward", {"B": 64, "M": 512, "N": 512, "K": 64, "dtype": HALF}),
)  # fmt: skip

CACHES = ("cold", "warm")
NEAR, NEAR_SECONDS = 0.02, 0.3e-6
STEADY, STEADY_SHORT, SHORT = 0.02, 0.05, 5e-6
_CALL, _FLUSH = "yardstick::call", "yardstick::flush"
_SESSIONS = 4
_HOLD = 20_000_000
"""Cycles for which the device waits, so that the calls are queued before it gets to them and it is never idle."""


def main() -> None:
    arguments = _arguments()
    if arguments.yardstick:
        print(json.dumps(_yardsticks()))
        return
    # Both run in fresh processes in turns, because the placement of data, and with it the time, differs between them.
    own, true = [], []
    for number in range(arguments.runs):
        print(f"run {number + 1} of {arguments.runs}", file=sys.stderr)
        own.append(_opmark(arguments.effort))
        true.append(_run_yardsticks())
    rows = []
    for case, label in _cases():
        launch = _launch(case)
        row: dict[str, Any] = {"case": label}
        for cache in CACHES:
            row[cache] = {
                "cupti": [run[case.id][cache] for run in true],
                "opmark": [run[case.id][cache] for run in own],
            }
        row["do_bench"] = do_bench(launch, return_mode="median") * 1e-3
        row["do_bench_cudagraph"] = _graph(launch)
        rows.append(row)
        torch.cuda.empty_cache()
    print(_table(rows))
    print(_verdict(rows))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1))


def _run_yardsticks() -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.accuracy_gpu", "--yardstick"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def _yardsticks() -> dict[str, dict[str, float]]:
    """Return CUPTI's device time by case and cache, in this process."""
    found = {}
    for case, _ in _cases():
        launch = _launch(case)
        found[case.id] = {cache: _yardstick(launch, _flush() if cache == "cold" else None) for cache in CACHES}
        del launch
        torch.cuda.empty_cache()
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy_gpu", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of opmark, for the difference from run to run")
    parser.add_argument("--effort", default="standard")
    parser.add_argument("--json", help="a file for the raw figures")
    parser.add_argument("--yardstick", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _cases() -> Iterator[tuple[Case, str]]:
    for op, phase, chosen in CASES:
        params = find_operator(op).complete(chosen)
        sizes = " ".join("x".join(map(str, v)) if isinstance(v, list) else f"{k}={v}" for k, v in chosen.items())
        yield Case.of(op, params, phase), f"{op} {sizes}" + (" backward" if phase == "backward" else "")


def _opmark(effort: str) -> dict[str, dict[str, float]]:
    """Return device_time by case and cache, from one run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.yaml"
        entries = [{"op": op, "params": _axes(params), "phases": [phase]} for op, phase, params in CASES]
        path.write_text(json.dumps({"schema": 1, "name": "accuracy", "cases": entries}))
        result = opmark.run(
            workload=path, backend="torch-cuda", effort=effort, quantity="device_time", db=Path(folder) / "store.db"
        )
    found: dict[str, dict[str, float]] = {}
    for record in result.records:
        if record.status != "ok":
            raise SystemExit(f"{record.task.case.op}: {record.status}: {record.reason}")
        medians = {m.cache: statistics.median(m.samples) for m in record.measurements}
        found[record.task.case.id] = medians
    return found


def _axes(params: dict[str, Any]) -> dict[str, Any]:
    """Return a shape as an axis with one value."""
    return {key: [value] for key, value in params.items()}


def _launch(case: Case) -> Callable[[], Any]:
    info = find_backend("torch-cuda")
    backend = info.load(threads=1)
    operator = find_operator(case.op)
    (implementation,) = operator.implementations_for("torch")
    (settings,) = settings_for(MeasureOptions(effort="quick", threads=[1]))
    task = Task(case, "torch-cuda", implementation.label, settings)
    return prepare(case.params, task, operator, implementation, backend).launch


def _flush() -> Callable[[], Any]:
    return torch.empty(256 << 20, dtype=torch.uint8, device="cuda").zero_


def _yardstick(launch: Callable[[], Any], flush: Callable[[], Any] | None) -> float:
    """Return seconds per call: all kernels, copies and fills of the calls, over sessions with rests between them."""
    for _ in range(5):
        launch()
    torch.cuda.synchronize()
    start = time.perf_counter()
    launch()
    torch.cuda.synchronize()
    calls = max(3, min(20, int(0.02 / (time.perf_counter() - start))))
    samples: list[float] = []
    for _ in range(_SESSIONS):
        samples += _session(launch, flush, calls)
        time.sleep(0.05)
    return statistics.median(samples)


def _session(launch: Callable[[], Any], flush: Callable[[], Any] | None, calls: int) -> list[float]:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        torch.cuda._sleep(_HOLD)
        for _ in range(calls):
            if flush:
                with torch.profiler.record_function(_FLUSH):
                    flush()
            with torch.profiler.record_function(_CALL):
                launch()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    return _sums(events, calls)


def _sums(events: list[dict[str, Any]], calls: int) -> list[float]:
    """Return the device time of each call from the trace file: of all that was launched inside of its mark."""
    marks = sorted(
        (e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "user_annotation" and e["name"] == _CALL
    )
    assert len(marks) == calls, f"{len(marks)} marks for {calls} calls"
    launched = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            for number, (start, end) in enumerate(marks):
                if start <= event["ts"] <= end:
                    launched[event["args"]["correlation"]] = number
    sums = [0.0] * calls
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            number = launched.get(event["args"]["correlation"])
            if number is not None:
                sums[number] += event["dur"] * 1e-6
    return sums


def _graph(launch: Callable[[], Any]) -> float | None:
    try:
        return do_bench_cudagraph(launch, return_mode="median") * 1e-3
    except RuntimeError:
        torch.cuda.synchronize()
        return None


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| case | CUPTI cold | opmark cold | do_bench | CUPTI warm | opmark warm | do_bench_cudagraph | run to run "
        "| CUPTI's own |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["case"]]
        for cache, other in (("cold", "do_bench"), ("warm", "do_bench_cudagraph")):
            true = statistics.median(row[cache]["cupti"])
            cells += [
                _us(true),
                _with_ratio(statistics.median(row[cache]["opmark"]), true),
                _with_ratio(row[other], true),
            ]
        cells.append(" / ".join(f"{100 * _spread(row[cache]['opmark']):.1f} %" for cache in CACHES))
        cells.append(" / ".join(f"{100 * _spread(row[cache]['cupti']):.1f} %" for cache in CACHES))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} µs"


def _with_ratio(seconds: float | None, true: float) -> str:
    return "cannot be captured" if seconds is None else f"{_us(seconds)} ({seconds / true:.3f})"


def _spread(values: list[float]) -> float:
    return max(values) / min(values) - 1


def _near(seconds: float, true: float) -> bool:
    return abs(seconds - true) <= max(NEAR * true, NEAR_SECONDS)


def _verdict(rows: list[dict[str, Any]]) -> str:
    far, moved, total = [], [], len(CACHES) * len(rows)
    for row in rows:
        for cache in CACHES:
            own, true = row[cache]["opmark"], statistics.median(row[cache]["cupti"])
            far += [] if _near(statistics.median(own), true) else [f"{row['case']} {cache}"]
            limit = STEADY_SHORT if true < SHORT else STEADY
            moved += [] if _spread(own) <= limit else [f"{row['case']} {cache} {100 * _spread(own):.1f} %"]
    return (
        f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}. "
        f"{total - len(far)} of {total} within 2 % or 0.3 µs of CUPTI"
        + (f" (not: {', '.join(far)})" if far else "")
        + f"; {total - len(moved)} of {total} steady from run to run within 2 % (5 % below 5 µs)"
        + (f" (not: {', '.join(moved)})" if moved else "")
        + "."
    )


if __name__ == "__main__":
    main()
