"""The first line of PARAM's result file: run options, system and start."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from opmark.version import VERSION

PASSES = {False: "ExecutionPass.FORWARD", True: "ExecutionPass.BACKWARD"}
"""PARAM's value of `pass_type`, by whether there is a backward pass."""
MODES = {
    "discrete": "OpExecutionMode.DISCRETE",
    "continuous": "OpExecutionMode.CONTINUOUS",
    "continuous_events": "OpExecutionMode.CONTINUOUS_EVENTS",
}

DEFAULT_OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "pass_type": PASSES[False],
    "warmup": 1,
    "iteration": 1,
    "op_exec_mode": MODES["discrete"],
    "cuda_l2_cache": True,
    "time_unit": "millisecond",
    "out_file_prefix": None,
    "out_stream": None,
    "run_ncu": False,
    "ncu_bin": "ncu",
    "ncu_args": "",
    "ncu_warmup": 5,
    "ncu_iteration": 1,
    "run_nsys": False,
    "nsys_bin": "nsys",
    "nsys_args": "",
    "nsys_warmup": 5,
    "nsys_iteration": 10,
    "run_batch_size": 50,
    "batch_cuda_device": None,
    "batch_cmd": None,
    "resume_op_run_id": None,
    "stop_op_run_id": None,
    "pt2_model": False,
    "cuda_graph": False,
    "cmd_args": {},
}
"""PARAM's run options in its order, with its defaults."""


def header(options: Mapping[str, Any], facts: Mapping[str, Any], started: str) -> dict[str, Any]:
    """Return the first line; `facts` are those of the environment, and unknown ones are null."""
    machine_facts = {name: fact for name, fact in facts.items() if name not in ("pid", "cwd")}
    return {
        "run_options": {**DEFAULT_OPTIONS, **options},
        "sys_info": sys_info(facts),
        "start_time": format_time(started),
        "opmark": {"version": facts.get("opmark", VERSION), "environment": machine_facts},
    }


def last_line(ended: str) -> dict[str, Any]:
    return {"finish_time": format_time(ended)}


def format_time(stored: str) -> str:
    """Format a time to the second as PARAM does, but with its offset from UTC, which PARAM leaves out."""
    return datetime.fromisoformat(stored).isoformat(timespec="seconds") if stored else ""


def sys_info(facts: Mapping[str, Any]) -> dict[str, Any]:
    torch, on_cuda = facts.get("torch"), facts.get("device") == "cuda"
    without = torch is not None and torch.endswith("+cpu")
    found = {
        "hostname": facts.get("machine"),
        "pid": facts.get("pid"),
        "cwd": facts.get("cwd"),
        "python_version": facts.get("python"),
        "param_train_compute_version": f"opmark {facts.get('opmark', VERSION)}",
        "cuda_available": True if on_cuda else False if without else None,
    }
    if on_cuda:
        found |= {
            "cuda": facts.get("cuda"),
            "cuda_device_name": facts.get("gpu"),
            "cuda_device_property": {name: facts[name] for name in facts if name.startswith("gpu_")},
            "cudnn": facts.get("cudnn"),
        }
    return found | {"pytorch_version": torch, "pytorch_debug_build": None, "pytorch_build_config": None}
