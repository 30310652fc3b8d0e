"""Variation of the same figure from run to run on a CPU: opmark, torch.utils.benchmark, PARAM's loop, a plain loop.

    python -m benchmarks.accuracy_cpu [--rounds 10] [--threads N] [--json FILE]

Every tool runs in a fresh process each round, in turns, so that drift of the machine affects all of them. Then opmark
runs beside processes that keep the cores busy, about which it has to warn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opmark
from benchmarks.common import Bystanders
from opmark.hardware.host import host
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.plan import default_threads, settings_for
from opmark.schema import Case, Task
from opmark.schema.options import MeasureOptions
from opmark.worker.preparation import prepare

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("add", {"shape": [64, 64]}),
    ("add", {"shape": [256, 256]}),
    ("add", {"shape": [1024, 1024]}),
    ("exp", {"shape": [512, 512]}),
    ("softmax", {"shape": [1024, 1024]}),
    ("layer_norm", {"shape": [1024, 1024]}),
    ("reduce_sum", {"shape": [1024, 1024]}),
    ("matmul", {"M": 128, "N": 128, "K": 128}),
    ("matmul", {"M": 512, "N": 512, "K": 512}),
)
TOOLS = ("opmark", "blocked_autorange", "PARAM's loop", "plain loop")
_PARAM_WARMUP, _PARAM_ITERATIONS = 5, 50
"""Defaults of PARAM."""
_PLAIN_SECONDS = 0.2
_FLAGS = {"loaded", "preempted", "interrupted", "stolen", "noisy", "drifting", "unsettled", "outliers", "imprecise"}

Values = dict[str, float]
"""Seconds by case."""


def main() -> None:
    arguments = _arguments()
    if arguments.theirs:
        print(json.dumps(_measure_others(arguments.threads)))
        return
    bystanders = Bystanders()
    found: dict[str, list[Values]] = {tool: [] for tool in TOOLS}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        # The order alternates from round to round.
        for own in (True, False) if number % 2 == 0 else (False, True):
            if own:
                found["opmark"].append(_opmark(arguments.threads)[0])
            else:
                for tool, values in _run_others(arguments.threads).items():
                    found[tool].append(values)
    others = bystanders.share()
    flagged = _cautions_under_load(arguments.threads)
    print(_table(found))
    print(_summary(found, flagged, arguments, others))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"values": found, "flagged": flagged}, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy_cpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--json", help="a file for the raw figures")
    parser.add_argument("--theirs", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _cases() -> dict[str, Case]:
    cases = {}
    for op, params in CASES:
        sizes = "x".join(map(str, params["shape"] if "shape" in params else params.values()))
        cases[f"{op} {sizes}"] = Case.of(op, find_operator(op).complete(params), "forward")
    return cases


def _opmark(threads: int) -> tuple[Values, dict[str, set[str]]]:
    """Return medians and codes of cautions by case, of one run at the default effort."""
    names = {case.id: name for name, case in _cases().items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.yaml"
        entries = [{"op": op, "params": {key: [value] for key, value in params.items()}} for op, params in CASES]
        path.write_text(json.dumps({"schema": 1, "name": "accuracy", "cases": entries}))
        result = opmark.run(workload=path, backend="torch-cpu", threads=threads, db=Path(folder) / "store.db")
    medians, codes = {}, {}
    for row in result.rows():
        found = row["quantities"]["latency"]["warm"]
        medians[names[row["case"]]] = found["median"]
        codes[names[row["case"]]] = {warning["code"] for warning in found["warnings"]}
    return medians, codes


def _run_others(threads: int) -> dict[str, Values]:
    command = [sys.executable, "-m", "benchmarks.accuracy_cpu", "--theirs", "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    values: dict[str, Values] = json.loads(done.stdout)
    return values


def _measure_others(threads: int) -> dict[str, Values]:
    from torch.utils.benchmark import Timer

    found: dict[str, Values] = {tool: {} for tool in TOOLS[1:]}
    for name, case in _cases().items():
        launch = _launch(case, threads)
        timer = Timer("launch()", globals={"launch": launch}, num_threads=threads)
        found["blocked_autorange"][name] = timer.blocked_autorange().median
        found["PARAM's loop"][name] = _param_loop(launch)
        found["plain loop"][name] = _plain_loop(launch)
    return found


def _launch(case: Case, threads: int) -> Callable[[], Any]:
    backend = find_backend("torch-cpu").load(threads)
    operator = find_operator(case.op)
    (implementation,) = operator.implementations_for("torch")
    (settings,) = settings_for(MeasureOptions(effort="quick", threads=[threads]))
    task = Task(case, "torch-cpu", implementation.label, settings)
    return prepare(case.params, task, operator, implementation, backend).launch


def _param_loop(launch: Callable[[], Any]) -> float:
    """Return the mean of single calls, as PARAM's discrete mode times them."""
    for _ in range(_PARAM_WARMUP):
        launch()
    times = []
    for _ in range(_PARAM_ITERATIONS):
        start = time.perf_counter_ns()
        launch()
        times.append(time.perf_counter_ns() - start)
    return statistics.fmean(times) * 1e-9


def _plain_loop(launch: Callable[[], Any]) -> float:
    """Return the median of single calls for a fixed time."""
    times: list[int] = []
    end = time.perf_counter() + _PLAIN_SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        launch()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) * 1e-9


def _cautions_under_load(threads: int) -> dict[str, list[str]]:
    """Return the cautions of each case while one busy process per core runs beside it."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(default_threads())]
    try:
        time.sleep(1.0)
        codes = _opmark(threads)[1]
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    return {name: sorted(found) for name, found in codes.items()}


def _cv(values: list[float]) -> float:
    return statistics.stdev(values) / statistics.fmean(values)


def _table(found: dict[str, list[Values]]) -> str:
    lines = [
        "| case | opmark's median | " + " | ".join(TOOLS) + " | opmark over blocked_autorange |",
        "|---" * (len(TOOLS) + 3) + "|",
    ]
    for name in _cases():
        cells = [f"{100 * _cv([values[name] for values in found[tool]]):.1f} %" for tool in TOOLS]
        own, theirs = (statistics.median(values[name] for values in found[tool]) for tool in TOOLS[:2])
        lines.append(f"| {name} | {own * 1e6:.2f} µs | " + " | ".join(cells) + f" | {own / theirs:.3f} |")
    return "\n".join(lines)


def _summary(
    found: dict[str, list[Values]], flagged: dict[str, list[str]], arguments: argparse.Namespace, others: float
) -> str:
    spread = {tool: [_cv([v[name] for v in found[tool]]) for name in _cases()] for tool in TOOLS}
    halved = {
        tool: sum(own <= other / 2 for own, other in zip(spread["opmark"], spread[tool], strict=True))
        for tool in TOOLS[1:3]
    }
    typical = ", ".join(f"{tool} {100 * statistics.median(values):.1f} %" for tool, values in spread.items())
    warned = sum(bool(_FLAGS & set(codes)) for codes in flagged.values())
    facts = host()
    return (
        f"\n{facts['cpu']}, {facts['cores']} cores, {arguments.threads} threads, {arguments.rounds} rounds; other "
        f"processes took {100 * others:.0f} % of the cores. Coefficient of variation, median over cases: {typical}. "
        + " ".join(f"At most half of {tool}'s in {count} of {len(_cases())} cases." for tool, count in halved.items())
        + f" Beside {facts['cores']} processes that compute, {warned} of {len(flagged)} cases carry a warning."
    )


if __name__ == "__main__":
    main()
