"""The options of ByteMicroPerf's launch.py. Those that mean nothing here say so, and why; none is silently ignored."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opmark.errors import UserError, nearest
from opmark.registry import backends
from opmark.runner.selection import default_backends

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

HARDWARE: dict[str, Callable[[], str]] = {
    "GPU": lambda: "torch-cuda",
    "CPU": lambda: default_backends()[0],
    "XPU": lambda: "torch-xpu",
    "MPS": lambda: "torch-mps",
}
"""ByteMicroPerf's way to name hardware; the names of our backends are taken too."""

_ONE_DEVICE = "one case is measured at a time, so that no other one disturbs it"
_NOBODY = "one node takes part, so nobody is connected to"
_PIP = "nothing is installed while measuring; `pip install 'opmark[torch]'` was the installation"

_NEEDLESS: dict[str, str] = {
    "disable_parallel": f"it is always so: {_ONE_DEVICE}",
    "parallel": _ONE_DEVICE,
    "numa_balance": f"{_ONE_DEVICE}; --numa_node pins to the processors of a node",
    "node_rank": _NOBODY,
    "master_addr": _NOBODY,
    "gloo_port": _NOBODY,
    "backend_port": _NOBODY,
    "server_port": _NOBODY,
    "host_port": _NOBODY,
    "device_port": _NOBODY,
    "install_requirements": _PIP,
    "activate_venv": _PIP,
}
"""Options without an effect here, each with the reason; it is said when one is given."""

_REFUSED: dict[str, tuple[str, str]] = {
    "op_defs": (
        "operators of xpu-perf are classes of its library, which opmark does not load",
        "docs/add-an-operator.md: an entry point adds one; "
        "`opmark run my_package.module:function` measures any function",
    ),
    "vendor_ops": (
        "providers of xpu-perf are classes of its library, which opmark does not load",
        "docs/add-an-operator.md: an implementation is one function; "
        "`opmark run my_package.module:function` measures any function",
    ),
    "server_ip": (
        "there is no server to ask: opmark measures on this machine",
        "leave it out; `opmark.run(...)` in Python gives results as objects",
    ),
}
"""Options that would change the result if they were taken for nothing."""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """As argparse reads them; UserError for what cannot be had here."""
    given = _parser().parse_args(list(arguments))
    for name, (why, hint) in _REFUSED.items():
        if getattr(given, name) is not None:
            raise UserError(f"--{name}: {why}", hint)
    if given.node_world_size not in (None, 1):
        raise UserError(
            f"--node_world_size {given.node_world_size}: this command measures on one machine",
            "run it on each of them; `opmark run all_reduce` under torchrun, Slurm or mpirun has ranks on several",
        )
    if given.hardware_type and given.backend:
        raise UserError("--hardware_type and --backend say the same thing", "leave one of them out")
    return given


def remarks(given: argparse.Namespace) -> list[str]:
    """What was given and has no effect, a line each."""
    values = {name: getattr(given, name) for name in _NEEDLESS}
    return [
        f"--{name}: {_NEEDLESS[name]}" for name, value in values.items() if value is not None and value is not False
    ]


def our_backend(name: str) -> str:
    """`GPU` and `CPU`, or one of our own names."""
    if name.upper() in HARDWARE:
        return HARDWARE[name.upper()]()
    known = backends()
    if name.lower() in known:
        return name.lower()
    near = nearest(name, [*HARDWARE, *known])
    meant = f"did you mean `{near}`? " if near else ""
    raise UserError(f"no hardware named `{name}`", f"{meant}`opmark micro-perf --show_hardware_list` lists all")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opmark micro-perf",
        description="ByteMicroPerf's launch.py: measures the tasks of its workloads and writes the reports that it "
        "writes. --hardware_type gives those of 2024 (GPU/exp/result-float32.json), --backend those of 2026 "
        "(jsonl and csv).",
    )
    _add_what(parser)
    _add_where(parser)
    needless = parser.add_argument_group("taken, without an effect here: each says why")
    for name in ("disable_parallel", "numa_balance", "install_requirements", "activate_venv"):
        needless.add_argument(f"--{name}", action="store_true")
    needless.add_argument("--parallel", nargs="?", const="")
    needless.add_argument("--node_world_size", type=int, help="1")
    needless.add_argument("--node_rank", type=int)
    needless.add_argument("--master_addr")
    for name in ("gloo_port", "backend_port", "server_port", "host_port", "device_port"):
        needless.add_argument(f"--{name}", type=int)
    refused = parser.add_argument_group("refused: each says what there is instead")
    refused.add_argument("--op_defs")
    refused.add_argument("--vendor_ops", action="append")
    refused.add_argument("--server_ip")
    return parser


def _threads(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got `{text}`")
    return int(text)


def _add_what(parser: argparse.ArgumentParser) -> None:
    def add(name: str, text: str, **more: Any) -> None:
        parser.add_argument(name, help=text, **more)

    add("--task", "tasks by comma, a group such as unary_ops, or all [all]", default="all")
    add("--task_dir", "a folder of workloads [./workloads/basic or ./workloads, else those that ship]", type=Path)
    add("--workload", "one workload, .json or .csv, also one of opmark's", type=Path)
    add("--report_dir", "where the reports go [reports]", type=Path, default=Path("reports"))
    add("--vendor_path", "a file of vendor_zoo or of opmark's hardware, for Bandwidth Utilization", type=Path)
    add("--show_task_list", "print the tasks and end", action="store_true")
    add("--show_hardware_list", "print the hardware and whether it can run here, and end", action="store_true")
    add("--compile_only", "there is nothing to compile: says so and ends", action="store_true")
    add("--disable_profiling", "time with events in place of the profiler's records", action="store_true")
    add("--log_level", "INFO prints a line a case, WARNING only what failed", choices=LEVELS, default="INFO",
        type=str.upper)  # fmt: skip


def _add_where(parser: argparse.ArgumentParser) -> None:
    def add(names: Sequence[str], text: str, **more: Any) -> None:
        parser.add_argument(*names, help=text, **more)

    add(["--hardware_type"], "GPU, CPU, or a backend of opmark: reports as in 2024")
    add(["--backend"], "the same: reports as in 2026 [GPU]")
    add(["--device"], "the device to measure on, by its number; several, by comma, for communication [the first]")
    add(["--threads"], "threads of the processor to use [all cores]; not of ByteMicroPerf", type=_threads)
    add(["--numa_node", "--numa"], "only the processors of this node, or of these; -1: of all", dest="numa_node")
    add(["--env"], "a JSON file of environment variables, `common` and by name of the device", type=Path)
