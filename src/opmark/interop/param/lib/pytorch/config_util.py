"""PARAM's lib.pytorch.config_util: run options, and helpers to write a config in code."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from opmark.errors import UserError
from opmark.interop.param.exporter import DEFAULT_OPTIONS
from opmark.interop.param.library import create_bench_config, create_op_args, create_op_info, create_type
from opmark.interop.param.options import ParamOptions
from opmark.interop.param.run_options import read_run_options

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


def param_options(run_options: Mapping[str, Any], **changes: Any) -> ParamOptions:
    """Return run options as `run_config` takes them; hyphens in their names are underscores, and enums may be texts."""
    given = {name.replace("-", "_"): value for name, value in run_options.items()}
    found = read_run_options(given)
    for name, error in found.mistakes.items():
        raise UserError(f"run option `{name}`: {error.message}", error.hint)
    cases = {"resume_id": given.get("resume_op_run_id"), "stop_id": given.get("stop_op_run_id")}
    profilers = [name for name in ("run_ncu", "run_nsys") if given.get(name)]
    if profilers:
        raise UserError(f"run option `{profilers[0]}`: profilers run from the command line only", "opmark param --ncu")
    return ParamOptions(**{"db": ":memory:", **cases, **found.fields, **changes})
