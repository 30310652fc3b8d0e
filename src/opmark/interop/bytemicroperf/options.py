"""The options of ByteMicroPerf's launch.py. An option without an effect says why; none is ignored silently."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opmark.errors import UserError, nearest
from opmark.plugin.registry import backends
from opmark.runner.selection import default_backends

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

HARDWARE: dict[str, Callable[[], str]] = {
    "GPU": lambda: "torch-cuda",
    "CPU": lambda: default_backends()[0],
    "XPU": lambda: "torch-xpu",
    "MPS": lambda: "torch-mps",
}
"""Backends by ByteMicroPerf's names of hardware; names of backends are accepted as well."""

_ONE_DEVICE = "one case is measured at a time, so that no other one disturbs it"
_ONE_NODE = "only one node takes part, so there is no connection"
_PIP = "nothing is installed while measuring; `pip install 'opmark[torch]'` installs all that is needed"

_WITHOUT_EFFECT: dict[str, str] = {
    "disable_parallel": f"this is always so: {_ONE_DEVICE}",
    "parallel": _ONE_DEVICE,
    "numa_balance": f"{_ONE_DEVICE}; --numa_node pins the process to the processors of a node",
    "node_rank": _ONE_NODE,
    "master_addr": _ONE_NODE,
    "gloo_port": _ONE_NODE,
    "backend_port": _ONE_NODE,
    "server_port": _ONE_NODE,
    "host_port": _ONE_NODE,
    "device_port": _ONE_NODE,
    "install_requirements": _PIP,
    "activate_venv": _PIP,
}
"""Options without an effect, each with the reason that is printed when it is used."""

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
        "leave it out; `opmark.run(...)` in Python returns results as objects",
    ),
}
"""Options that cannot be ignored, because the result would be another: reason and hint."""


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; raise UserError for options that opmark cannot do."""
    options = _parser().parse_args(list(arguments))
    for name, (why, hint) in _REFUSED.items():
        if getattr(options, name) is not None:
            raise UserError(f"--{name}: {why}", hint)
    if options.node_world_size not in (None, 1):
        raise UserError(
            f"--node_world_size {options.node_world_size}: this command measures on one machine",
            "run it on each machine; `opmark run all_reduce` under torchrun, Slurm or mpirun spans several",
        )
    if options.hardware_type and options.backend:
        raise UserError("--hardware_type and --backend mean the same thing", "leave one of them out")
    return options


def remarks(options: argparse.Namespace) -> list[str]:
    """Return one line for each given option that has no effect."""
    given = [
        name for name in _WITHOUT_EFFECT if getattr(options, name) is not None and getattr(options, name) is not False
    ]
    return [f"--{name}: {_WITHOUT_EFFECT[name]}" for name in given]


def backend_for(name: str) -> str:
    """Return the backend for `GPU`, `CPU` or the name of a backend."""
    if name.upper() in HARDWARE:
        return HARDWARE[name.upper()]()
    known = backends()
    if name.lower() in known:
        return name.lower()
    near = nearest(name, [*HARDWARE, *known])
    guess = f"did you mean `{near}`? " if near else ""
    raise UserError(f"no hardware named `{name}`", f"{guess}`opmark micro-perf --show_hardware_list` lists all")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opmark micro-perf",
        description="ByteMicroPerf's launch.py: measures the tasks of its workloads and writes its reports. "
        "--hardware_type writes those of 2024 (GPU/exp/result-float32.json), --backend those of 2026 "
        "(jsonl and csv).",
    )
    _add_what(parser)
    _add_where(parser)
    without_effect = parser.add_argument_group("accepted without an effect: each says why")
    for name in ("disable_parallel", "numa_balance", "install_requirements", "activate_venv"):
        without_effect.add_argument(f"--{name}", action="store_true")
    without_effect.add_argument("--parallel", nargs="?", const="")
    without_effect.add_argument("--node_world_size", type=int, help="1")
    without_effect.add_argument("--node_rank", type=int)
    without_effect.add_argument("--master_addr")
    for name in ("gloo_port", "backend_port", "server_port", "host_port", "device_port"):
        without_effect.add_argument(f"--{name}", type=int)
    refused = parser.add_argument_group("refused: each says what to use instead")
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

    add("--task", "tasks separated by commas, a group such as unary_ops, or all [all]", default="all")
    add("--task_dir", "folder of workloads [./workloads/basic or ./workloads, else the ones that ship]", type=Path)
    add("--workload", "one workload file, .json or .csv, or in opmark's own format", type=Path)
    add("--allow", "modules whose functions workloads may call, beside those that compute [$OPMARK_ALLOW]", default="",
        metavar="MODULES")  # fmt: skip
    add("--report_dir", "folder for the reports [reports]", type=Path, default=Path("reports"))
    add("--vendor_path", "a file of vendor_zoo or of opmark's hardware, for Bandwidth Utilization", type=Path)
    add("--show_task_list", "print the tasks and end", action="store_true")
    add("--show_hardware_list", "print the hardware, what cannot run here and why, and end", action="store_true")
    add("--compile_only", "say that there is nothing to compile, and end", action="store_true")
    add("--disable_profiling", "time with events instead of the profiler's records", action="store_true")
    add("--log_level", "INFO prints one line per case, WARNING only failures", choices=LEVELS, default="INFO",
        type=str.upper)  # fmt: skip


def _add_where(parser: argparse.ArgumentParser) -> None:
    def add(names: Sequence[str], text: str, **more: Any) -> None:
        parser.add_argument(*names, help=text, **more)

    add(["--hardware_type"], "GPU, CPU, or a backend of opmark; reports as in 2024")
    add(["--backend"], "the same; reports as in 2026 [GPU]")
    add(["--device"], "number of the device to measure on; several numbers with commas for communication [the first]")
    add(["--threads"], "threads of the processor to use [all cores]; ByteMicroPerf has no such option", type=_threads)
    add(["--numa_node", "--numa"], "use only the processors of this node or these nodes; -1: of all", dest="numa_node")
    add(["--env"], "JSON file of environment variables, under `common` and under names of devices", type=Path)
