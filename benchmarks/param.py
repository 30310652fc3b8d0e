"""Runs PARAM's example configs with `opmark param` and, if there is a checkout, with PARAM itself.

OPMARK_PARAM names a folder with PARAM's package (`param_bench`, or `python` of train/compute). Both run in turns, so
that drift of the machine affects both. `python -m benchmarks.param` prints the results of both for each case.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.common import OPMARK, Row, Shell

ROUNDS = 3
HELP_RUNS = 5
HELP_TARGET = 0.3
COUNTS = ("-w", "20", "-i", "100")
"""Calls for the reported times: enough for a meaningful median."""
VARIABLE = "OPMARK_PARAM"
_MODULES = {
    "param_bench": "param_bench.train.compute.python.pytorch.run_benchmark",
    "python": "python.pytorch.run_benchmark",
}


def _tensor(*shape: Any) -> dict[str, Any]:
    ranged = {"__range__": ["shape"]} if any(isinstance(size, list) for size in shape) else {}
    return {"type": "tensor", "dtype": "float", "shape": list(shape), **ranged}


def _numbers(low: int, high: int, step: int) -> dict[str, Any]:
    return {"type": "int", "value": [low, high, step], "__range__": ["value"]}


def _config(op: str, *calls: list[Any]) -> dict[str, Any]:
    tools = {"input_iterator": "RangeConfigIterator", "input_data_generator": "PyTorch:DefaultDataGenerator"}
    return {op: {**tools, "config": [{"input": [{"args": args} for args in calls]}]}}


class Example(NamedTuple):
    name: str
    cases: int
    seconds: float
    """Seconds that PARAM took on another machine with two cores, with one call of warm-up and one measured call."""
    config: dict[str, Any]


EXAMPLES = (
    Example("one addition", 1, 1.83, _config("torch.add", [_tensor(256, 256), _tensor(256, 256)])),
    Example(
        "33 additions",
        33,
        3.5,
        _config("torch.add", *([_tensor(rows, 256), _numbers(1, 11, 1)] for rows in (64, 128, 256))),
    ),
    Example("121 products", 121, 8.7, _config("torch.mm", [_tensor([128, 2048, 16], 256), _tensor(256, 256)])),
    Example(
        "70 products", 70, 9.0, _config("torch.mm", [_tensor([128, 1280, 128], 512), _tensor(512, [64, 1024, 160])])
    ),
)


def rows(shell: Shell) -> list[Row]:
    first, *sweeps = EXAMPLES
    return [_help(shell), _start(shell, first), *(_walls(shell, example) for example in sweeps), *_reported_rows(shell)]


def _help(shell: Shell) -> Row:
    took = median(shell.time(OPMARK, "param", "--version") for _ in range(HELP_RUNS))
    return Row("`opmark param --version`", f"at most {HELP_TARGET} s", f"{took:.2f} s", took <= HELP_TARGET)


def _start(shell: Shell, example: Example) -> Row:
    ours, theirs, torch = [], [], []
    for _ in range(ROUNDS):
        ours.append(shell.time(*_opmark(shell, example)))
        torch.append(shell.time(sys.executable, "-c", "import torch"))
        if _param(shell, example):
            theirs.append(shell.time(*_param(shell, example)))
    return _row(
        f"{example.name} from the shell to the result file", example, ours, theirs, f"; import torch {min(torch):.2f} s"
    )


def _walls(shell: Shell, example: Example) -> Row:
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(shell.time(*_opmark(shell, example)))
        if _param(shell, example):
            theirs.append(shell.time(*_param(shell, example)))
    return _row(f"{example.name} by `opmark param`, from the shell to the result file", example, ours, theirs)


def _row(name: str, example: Example, ours: list[float], theirs: list[float], more: str = "") -> Row:
    """Return the fastest time of each, because other processes only make it longer."""
    limit = min(theirs) if theirs else example.seconds
    whose = "PARAM, in turns" if theirs else "PARAM"
    return Row(name, f"under {limit:.2f} s ({whose})", f"{min(ours):.2f} s{more}", min(ours) < limit)


def _opmark(shell: Shell, example: Example, *options: str) -> tuple[str, ...]:
    prefix = str(shell.folder / f"opmark {example.name}")
    return (OPMARK, "param", "-c", _file(shell, example), "-o", prefix, "--db", str(shell.db), *options)


def _param(shell: Shell, example: Example, *options: str) -> tuple[str, ...]:
    """Return the command that runs PARAM itself; empty if there is no checkout of PARAM."""
    folder = os.environ.get(VARIABLE)
    module = next((module for name, module in _MODULES.items() if folder and (Path(folder) / name).is_dir()), None)
    if folder is None or module is None:
        return ()
    shell.environ["PYTHONPATH"] = folder
    prefix = str(shell.folder / f"PARAM {example.name}")
    return (sys.executable, "-m", module, "-c", _file(shell, example), "-o", prefix, *options)


def _file(shell: Shell, example: Example) -> str:
    file = shell.folder / f"{example.name}.json"
    file.write_text(json.dumps(example.config))
    return str(file)


class Pair(NamedTuple):
    """The medians of one case in milliseconds, by opmark and by PARAM."""

    id: str
    shapes: str
    opmark: float
    param: float


def _reported_rows(shell: Shell) -> list[Row]:
    found = []
    for example in EXAMPLES[1:]:
        pairs = list(compare_reports(shell, example))
        if pairs:
            ratios = sorted(pair.opmark / pair.param for pair in pairs)
            text = f"median {median(ratios):.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}"
            found.append(Row(f"reported times over PARAM's, {example.name}, {' '.join(COUNTS)}", "", text, None))
    return found


def compare_reports(shell: Shell, example: Example) -> Iterator[Pair]:
    """Yield the smaller median of two rounds of opmark and of PARAM for each case; nothing without a checkout of
    PARAM."""
    if not _param(shell, example):
        return
    times: dict[str, dict[str, list[float]]] = {"opmark": {}, "PARAM": {}}
    shapes: dict[str, str] = {}
    for _ in range(2):
        for name, command in (("opmark", _opmark), ("PARAM", _param)):
            shell.run(*command(shell, example, *COUNTS))
            newest = max(shell.folder.glob(f"{name} {example.name}_*.json"), key=lambda path: path.stat().st_mtime)
            for line in filter(lambda line: "op_name" in line, map(json.loads, newest.read_text().splitlines())):
                value = median(line["metric"]["forward"]["measure.time"])
                times[name].setdefault(line["id"], []).append(value)
                shapes[line["id"]] = _shapes(line["config"]["input"]["args"])
            newest.unlink()
    for case, ours in times["opmark"].items():
        yield Pair(case, shapes[case], min(ours), min(times["PARAM"][case]))


def _shapes(args: list[dict[str, Any]]) -> str:
    return ", ".join("x".join(map(str, arg["shape"])) if "shape" in arg else str(arg["value"]) for arg in args)


def main() -> None:
    """Print a table of all cases of all examples."""
    if not os.environ.get(VARIABLE):
        raise SystemExit(f"{VARIABLE} names the folder with PARAM's package")
    print("| operator | id | arguments | opmark | PARAM | ratio |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for example in EXAMPLES:
            for pair in compare_reports(Shell(Path(folder)), example):
                figures = f"{pair.opmark * 1e3:.2f} µs | {pair.param * 1e3:.2f} µs | {pair.opmark / pair.param:.3f}"
                print(f"| {next(iter(example.config))} | {pair.id} | {pair.shapes} | {figures} |")


if __name__ == "__main__":
    main()
