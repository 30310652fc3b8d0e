"""opmark's device_time on four frameworks against the hardware's own records, read by other code. Needs an NVIDIA GPU.

    python -m benchmarks.accuracy_gpu [--runs 3] [--effort standard] [--backends torch-cuda,jax-cuda] [--ncu]

The yardstick of torch, torch.compile and Triton is the trace file that torch.profiler exports; that of JAX is the
profile that jax.profiler writes. Both have CUPTI's records, collected by other code than opmark's. `--ncu` measures ten
of the cases with Nsight Compute as well.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import opmark
from opmark.plugin import Backend
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.runner.plan import settings_for
from opmark.schema import Case, Task
from opmark.schema.options import MeasureOptions
from opmark.worker.measure.gate import DeviceGate
from opmark.worker.preparation import prepare

HALF = "float16"
TORCH, COMPILED, TRITON, JAX = "torch-cuda", "torch-compile-cuda", "triton-cuda", "jax-cuda"
BACKENDS = (TORCH, COMPILED, TRITON, JAX)
CASES: tuple[tuple[str, str, dict[str, Any], tuple[str, ...]], ...] = (
    ("add", "forward", {"shape": [1024]}, (TORCH, TRITON, JAX)),
    ("add", "forward", {"shape": [2048, 2048]}, BACKENDS),
    ("add", "forward", {"shape": [8192, 8192]}, (TORCH, JAX)),
    ("exp", "forward", {"shape": [300, 777]}, (TORCH,)),
    ("exp", "backward", {"shape": [4096, 4096]}, (TORCH, JAX)),
    ("gelu", "forward", {"shape": [4096, 4096], "dtype": "bfloat16"}, (TORCH, COMPILED, JAX)),
    ("cast", "forward", {"shape": [4096, 4096]}, (TORCH,)),
    ("reduce_sum", "forward", {"shape": [1024, 1024]}, (TORCH, JAX)),
    ("reduce_sum", "forward", {"shape": [8192, 8192]}, (TORCH,)),
    ("softmax", "forward", {"shape": [64, 128]}, (TORCH, TRITON, JAX)),
    ("softmax", "forward", {"shape": [4096, 4096], "dtype": HALF}, (TORCH, TRITON, JAX)),
    ("softmax", "forward", {"shape": [8192, 4096], "dtype": HALF}, BACKENDS),
    ("softmax", "backward", {"shape": [4096, 4096]}, (TORCH, JAX)),
    ("layer_norm", "forward", {"shape": [1024, 1024]}, BACKENDS),
    ("layer_norm", "backward", {"shape": [1024, 1024]}, (TORCH, JAX)),
    ("layer_norm", "backward", {"shape": [8192, 4096]}, (TORCH,)),
    ("rms_norm", "forward", {"shape": [4096, 4096]}, (TORCH, TRITON)),
    ("batch_norm", "forward", {"shape": [32, 64, 56, 56]}, (TORCH, JAX)),
    ("batch_norm", "backward", {"shape": [32, 64, 56, 56]}, (TORCH,)),
    ("sort", "forward", {"shape": [64, 1000]}, (TORCH, JAX)),
    ("sort", "forward", {"shape": [1024, 4096]}, (TORCH, JAX)),
    ("sort", "forward", {"shape": [1_000_000]}, (TORCH,)),
    ("topk", "forward", {"shape": [256, 1024], "k": 16}, (TORCH, JAX)),
    ("topk", "forward", {"shape": [64, 100000], "k": 16}, (TORCH,)),
    ("cumsum", "forward", {"shape": [512, 8192]}, (TORCH, JAX)),
    ("embedding", "forward", {"rows": 100000, "dim": 512, "indices": 8192}, (TORCH, JAX)),
    ("embedding", "backward", {"rows": 20000, "dim": 256, "indices": 4096}, (TORCH,)),
    ("conv2d", "forward", {"batch": 16, "in_channels": 64, "image": [56, 56], "out_channels": 64, "dtype": HALF},
     (TORCH, JAX)),
    ("conv2d", "backward", {"batch": 16, "in_channels": 64, "image": [56, 56], "out_channels": 64, "dtype": HALF},
     (TORCH,)),
    ("scaled_dot_product_attention", "forward",
     {"batch": 1, "heads": 8, "q_len": 512, "kv_len": 512, "head_dim": 64, "dtype": HALF}, (TORCH,)),
    ("scaled_dot_product_attention", "forward",
     {"batch": 4, "heads": 32, "q_len": 2048, "kv_len": 2048, "head_dim": 128, "dtype": HALF}, (TORCH,)),
    ("matmul", "forward", {"M": 256, "N": 256, "K": 256, "dtype": HALF}, (TORCH, TRITON, JAX)),
    ("matmul", "forward", {"M": 16, "N": 4096, "K": 4096, "dtype": HALF}, (TORCH, JAX)),
    ("matmul", "forward", {"M": 1000, "N": 1000, "K": 1000}, (TORCH,)),
    ("matmul", "forward", {"M": 4096, "N": 4096, "K": 4096, "dtype": HALF}, BACKENDS),
    ("matmul", "backward", {"M": 2048, "N": 2048, "K": 2048, "dtype": HALF}, (TORCH, JAX)),
    ("batched_matmul", "forward", {"B": 64, "M": 512, "N": 512, "K": 64, "dtype": HALF}, (TORCH,)),
)  # fmt: skip
"""Operators with one kernel and with several, from 1 µs to milliseconds, and the backends that run them."""
NCU_CASES = (1, 3, 6, 8, 10, 13, 17, 22, 31, 34)
"""Places of the cases that ncu measures too: short and long ones, one kernel each but for batch_norm and topk."""

CACHES = ("cold", "warm")
NEAR, NEAR_SECONDS = 0.02, 0.3e-6
STEADY, STEADY_SHORT, SHORT = 0.02, 0.05, 5e-6
_CALL, _FLUSH = "yardstick::call", "yardstick::flush"
_SESSIONS = 4
_HOLD = 0.05
_NCU_CALLS = 5


def main() -> None:
    arguments = _arguments()
    if arguments.yardstick:
        print(json.dumps(_yardsticks(arguments.yardstick)))
        return
    if arguments.launch:
        _launch_for_ncu()
        return
    backends = arguments.backends.split(",")
    # Both run in fresh processes in turns, because the placement of data, and with it the time, differs between them.
    own, true = [], []
    for number in range(arguments.runs):
        print(f"run {number + 1} of {arguments.runs}", file=sys.stderr)
        own.append(_opmark(arguments.effort, backends))
        true.append({key: value for backend in backends for key, value in _run_yardstick(backend).items()})
    rows = []
    for backend, case, label in _cases(backends):
        key = f"{backend} {case.id}"
        missing = [one for one in (*own, *true) if key not in one]
        if missing:
            print(f"{backend} {label}: was not measured everywhere", file=sys.stderr)
            continue
        times = {
            cache: {"yardstick": [one[key][cache] for one in true], "opmark": [one[key][cache] for one in own]}
            for cache in CACHES
        }
        rows.append({"backend": backend, "case": label, **times})
    print(_table(rows))
    print(_verdict(rows))
    if arguments.ncu:
        print(_ncu_table(rows))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy_gpu", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of opmark, for the difference from run to run")
    parser.add_argument("--effort", default="standard")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--ncu", action="store_true", help="ten cases of torch with Nsight Compute as well")
    parser.add_argument("--json", help="a file for the raw figures")
    parser.add_argument("--yardstick", help=argparse.SUPPRESS)
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _cases(backends: list[str]) -> Iterator[tuple[str, Case, str]]:
    for backend in backends:
        for op, phase, chosen, on in CASES:
            if backend in on:
                params = find_operator(op).complete(chosen)
                sizes = " ".join(
                    "x".join(map(str, v)) if isinstance(v, list) else f"{k}={v}" for k, v in chosen.items()
                )
                yield (
                    backend,
                    Case.of(op, params, phase),
                    f"{op} {sizes}" + (" backward" if phase == "backward" else ""),
                )


def _opmark(effort: str, backends: list[str]) -> dict[str, dict[str, float]]:
    """Return device_time by backend, case and cache, from one run of each backend in a process of its own."""
    found: dict[str, dict[str, float]] = {}
    for backend in backends:
        entries = [
            {"op": op, "params": {key: [value] for key, value in params.items()}, "phases": [phase]}
            for op, phase, params, on in CASES
            if backend in on
        ]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cases.yaml"
            path.write_text(json.dumps({"schema": 1, "name": "accuracy", "cases": entries}))
            result = opmark.run(
                workload=path, backend=backend, effort=effort, quantity="device_time", db=Path(folder) / "store.db"
            )
        for record in result.records:
            if record.status != "ok":
                print(f"{backend} {record.task.case.op}: {record.status}: {record.reason}", file=sys.stderr)
                continue
            assert {m.timer for m in record.measurements} == {"cupti"}
            medians = {m.cache: statistics.median(m.samples) for m in record.measurements}
            found.setdefault(f"{backend} {record.task.case.id}", medians)  # the first implementation
    return found


def _run_yardstick(backend: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.accuracy_gpu", "--yardstick", backend]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"the yardstick of {backend} failed", file=sys.stderr)
        return {}
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _yardsticks(name: str) -> dict[str, dict[str, float]]:
    """Return the device time by case and cache of one backend, in this process."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("JAX_PLATFORMS", "cuda")
    backend = find_backend(name).load(threads=1)
    session = _jax_session(backend) if name == JAX else _torch_session
    found = {}
    for _, case, label in _cases([name]):
        try:
            launch = _launch(case, backend)
            found[f"{name} {case.id}"] = {
                cache: _yardstick(launch, backend, session, cold=cache == "cold") for cache in CACHES
            }
        except Exception as error:  # noqa: BLE001 - one case less, and it is said
            print(f"the yardstick of {name}, {label}: {type(error).__name__}: {error}", file=sys.stderr)
    return found


def _launch(case: Case, backend: Backend) -> Callable[[], Any]:
    operator = find_operator(case.op)
    implementation = implementations(operator, backend.info)[0]
    (settings,) = settings_for(MeasureOptions(effort="quick", threads=[1]))
    task = Task(case, backend.info.name, implementation.label, settings)
    return prepare(case.params, task, operator, implementation, backend).launch


Session = Callable[[Callable[[], Any], Callable[[], Any] | None, int], list[float]]
"""Runs so many calls under a profiler, and returns their device times."""


def _yardstick(launch: Callable[[], Any], backend: Backend, session: Session, *, cold: bool) -> float:
    """Return seconds per call: all kernels, copies and fills of the calls, over sessions with rests between them."""
    flush = backend.overwrite(256 << 20) if cold else None
    for _ in range(5):
        launch()
    backend.synchronize()
    start = time.perf_counter()
    launch()
    backend.synchronize()
    calls = max(3, min(14, int(0.02 / (time.perf_counter() - start))))
    samples: list[float] = []
    for _ in range(_SESSIONS):
        samples += session(launch, flush, calls)
        time.sleep(0.02)
    return statistics.median(samples)


def _torch_session(launch: Callable[[], Any], flush: Callable[[], Any] | None, calls: int) -> list[float]:
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        torch.cuda._sleep(20_000_000)  # the device waits, so that the calls are queued before it gets to them
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


def _jax_session(backend: Backend) -> Session:
    """Return a session that reads the profile of jax.profiler. It says to which program a kernel belongs; all calls
    have as many kernels, in their order, or else the mean over the calls is one sample. Calls are queued behind
    opmark's gate."""
    from cuda.bindings import driver

    gate = DeviceGate(driver)

    def session(launch: Callable[[], Any], flush: Callable[[], Any] | None, calls: int) -> list[float]:
        import jax

        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                with gate.closed(_HOLD):
                    for _ in range(calls):
                        if flush:
                            flush()
                        launch()
                backend.synchronize()
            (file,) = Path(folder).glob("**/*.xplane.pb")
            profile = jax.profiler.ProfileData.from_file(str(file))
        lines = [line for plane in profile.planes if plane.name.startswith("/device:GPU") for line in plane.lines]
        events = [e for line in lines if "Stream" in line.name for e in line.events if e.name != "opmark_gate"]
        kept = [e for e in events if "overwrite" not in str(dict(e.stats).get("hlo_module", ""))]
        assert kept, f"no events in the lines {[line.name for line in lines]}"
        assert not flush or len(kept) < len(events), f"no flush among {[dict(e.stats) for e in events[:2]]}"
        times = [event.duration_ns * 1e-9 for event in sorted(kept, key=lambda event: event.start_ns)]
        each, rest = divmod(len(times), calls)
        return [sum(times) / calls] if rest else [sum(times[i * each : (i + 1) * each]) for i in range(calls)]

    return session


# Nsight Compute


def _launch_for_ncu() -> None:
    """Launch the cases that ncu measures, each in a range of its own."""
    import torch

    backend = find_backend(TORCH).load(threads=1)
    for number, (_, case, _) in enumerate(_cases([TORCH])):
        if number not in NCU_CASES:
            continue
        launch = _launch(case, backend)
        for _ in range(3):
            launch()
        torch.cuda.synchronize()
        for _ in range(_NCU_CALLS):
            with torch.cuda.nvtx.range(f"case-{number:02d}"):
                launch()
                torch.cuda.synchronize()


def _ncu_table(rows: list[dict[str, Any]]) -> str:
    ncu = shutil.which("ncu")
    if not ncu:
        return "ncu is not installed here"
    command = [
        ncu, "--clock-control", "none", "--cache-control", "none", "--nvtx", "--metrics", "gpu__time_duration.sum",
        "--page", "raw", "--csv", sys.executable, "-m", "benchmarks.accuracy_gpu", "--launch",
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    sums: dict[str, float] = defaultdict(float)
    for row in csv.DictReader(lines):
        text = " ".join(map(str, row.values()))
        place = next((name for name in (f"case-{n:02d}" for n in NCU_CASES) if name in text), "")
        value = row.get("gpu__time_duration.sum", "")
        if place and value.replace(".", "").replace(",", "").isdecimal():
            sums[place] += float(value.replace(",", "")) * _unit(lines)
    table = ["", "| case | ncu, warm | opmark warm |", "|---|---|---|"]
    labels = [label for _, _, label in _cases([TORCH])]
    by_label = {row["case"]: row for row in rows if row["backend"] == TORCH}
    for number in NCU_CASES:
        seconds = sums.get(f"case-{number:02d}", 0.0) / _NCU_CALLS
        row = by_label.get(labels[number])
        if seconds and row:
            own = _with_ratio(statistics.median(row["warm"]["opmark"]), seconds)
            table.append(f"| {labels[number]} | {_us(seconds)} | {own} |")
    return "\n".join(table) if len(table) > 3 else f"ncu gave nothing (exit code {done.returncode})"


def _unit(lines: list[str]) -> float:
    """Return the seconds of one unit: the line below the head names it."""
    units = dict(zip(next(csv.reader(lines[:1])), next(csv.reader(lines[1:2])), strict=False))
    return {"n": 1e-9, "u": 1e-6, "m": 1e-3, "s": 1.0}[units["gpu__time_duration.sum"][0]]


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| backend | case | yardstick cold | opmark cold | yardstick warm | opmark warm | run to run | its own |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["backend"].removesuffix("-cuda"), row["case"]]
        for cache in CACHES:
            true = statistics.median(row[cache]["yardstick"])
            cells += [_us(true), _with_ratio(statistics.median(row[cache]["opmark"]), true)]
        for who in ("opmark", "yardstick"):
            cells.append(" / ".join(f"{100 * _spread(row[cache][who]):.1f} %" for cache in CACHES))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} µs"


def _with_ratio(seconds: float, true: float) -> str:
    return f"{_us(seconds)} ({seconds / true:.3f})"


def _spread(values: list[float]) -> float:
    return max(values) / min(values) - 1


def _near(seconds: float, true: float) -> bool:
    return abs(seconds - true) <= max(NEAR * true, NEAR_SECONDS)


def _verdict(rows: list[dict[str, Any]]) -> str:
    far, moved, total = [], [], len(CACHES) * len(rows)
    for row in rows:
        for cache in CACHES:
            own, true = row[cache]["opmark"], statistics.median(row[cache]["yardstick"])
            name = f"{row['backend']} {row['case']} {cache}"
            far += [] if _near(statistics.median(own), true) else [name]
            limit = STEADY_SHORT if true < SHORT else STEADY
            moved += [] if _spread(own) <= limit else [f"{name} {100 * _spread(own):.1f} %"]
    return (
        f"\n{len(rows)} cases. {total - len(far)} of {total} figures within 2 % or 0.3 µs of the yardstick"
        + (f" (not: {', '.join(far)})" if far else "")
        + f"; {total - len(moved)} of {total} steady from run to run within 2 % (5 % below 5 µs)"
        + (f" (not: {', '.join(moved)})" if moved else "")
        + "."
    )


if __name__ == "__main__":
    main()
