"""PARAM's lib.pytorch.config_util: run options, and helpers to write a config in code."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from opmark.errors import UnknownName, UserError
from opmark.interop.param.exporter import DEFAULT_OPTIONS
from opmark.interop.param.library import create_bench_config, create_op_args, create_op_info, create_type
from opmark.interop.param.options import ParamOptions

__all__ = [
    "ExecutionPass", "OpExecutionMode", "create_bench_config", "create_data", "create_op_args", "create_op_info",
    "create_type", "get_benchmark_options", "get_op_run_id", "init_pytorch", "param_options",
]  # fmt: skip

create_data = create_type
"""The name of `create_type` in 2021."""


@enum.unique
class ExecutionPass(enum.Enum):
    FORWARD = "forward"
    BACKWARD = "backward"
    """The backward pass in addition to the forward pass."""


@enum.unique
class OpExecutionMode(enum.Enum):
    DISCRETE = "discrete"
    CONTINUOUS = "continuous"
    CONTINUOUS_EVENTS = "continuous_events"


def get_op_run_id(op_name: str, run_id: str) -> str:
    return f"{op_name}|{run_id}"


def get_benchmark_options() -> dict[str, Any]:
    """Return PARAM's run options with their defaults, to be changed and passed on."""
    enums = {"pass_type": ExecutionPass.FORWARD, "op_exec_mode": OpExecutionMode.DISCRETE}
    return {name: enums.get(name, value) for name, value in DEFAULT_OPTIONS.items()}


def init_pytorch(run_options: Mapping[str, Any]) -> None:
    """Do nothing: each worker sets its threads and seeds itself."""


_SAME = ("warmup", "iteration", "device", "cuda_l2_cache", "cuda_graph", "pt2_model")


def param_options(run_options: Mapping[str, Any], **changes: Any) -> ParamOptions:
    """Return run options as `run_config` takes them; hyphens in their names are underscores, and enums may be texts."""
    given = {name.replace("-", "_"): value for name, value in run_options.items()}
    found: dict[str, Any] = {name: given[name] for name in _SAME if name in given}
    passes = _value("pass_type", given.get("pass_type", "forward"), ExecutionPass)
    mode = _value("op_exec_mode", given.get("op_exec_mode") or given.get("op_exe_mode") or "discrete", OpExecutionMode)
    found |= {"backward": passes == "backward", "exec_mode": mode, "db": ":memory:"}
    found |= {"resume_id": given.get("resume_op_run_id"), "stop_id": given.get("stop_op_run_id")}
    profilers = [name for name in ("run_ncu", "run_nsys") if given.get(name)]
    if profilers:
        raise UserError(f"run option `{profilers[0]}`: profilers run from the command line only", "opmark param --ncu")
    return ParamOptions(**found | changes)


def _value(name: str, given: Any, kind: type[enum.Enum]) -> str:
    """Return the value of an enum, given as such, as `ExecutionPass.BACKWARD` or as `backward`."""
    text = str(given.value if isinstance(given, enum.Enum) else given).rpartition(".")[2].lower()
    known = [str(item.value) for item in kind]
    if text not in known:
        raise UnknownName(f"value of the run option {name}", text, known)
    return text
