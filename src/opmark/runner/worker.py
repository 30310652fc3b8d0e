"""The child process: tasks in on stdin, records out on a pipe of its own, one JSON line each.

Standard output and standard error belong to whatever the framework prints; the parent keeps them for its reasons.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from opmark.hardware.detect import host
from opmark.hardware.nvml import visible_gpu
from opmark.interfaces import Backend, BackendInfo, Sensors
from opmark.registry import backend as find_backend
from opmark.runner.execute import Bench
from opmark.runner.gear import sensors_of
from opmark.runner.leash import die_with_parent
from opmark.runner.sides import facts_of_side, take_side
from opmark.schema import Environment, Record, Task
from opmark.version import VERSION

# Variables that change what a framework computes with, so that they belong to the record.
_TELLING = (
    "ONEDNN_MAX_CPU_ISA", "OMP_PROC_BIND", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OPENBLAS_CORETYPE",
    "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_CUDA_ALLOC_CONF",
)  # fmt: skip


class Hello(msgspec.Struct, frozen=True):
    """A worker's first line."""

    unavailable: str | None
    environment: Environment


class Stage(msgspec.Struct, frozen=True, tag=True):
    """A line in between: what it is about to do."""

    stage: Literal["compiling", "measuring"]


class Answer(msgspec.Struct, frozen=True, tag=True):
    """Its line for a task."""

    record: Record
    usable: bool = True
    """False: its device refuses everything since; a new process is needed."""


def main(backend_name: str, threads: int, pipe: int) -> None:
    settle_in(pipe)
    with os.fdopen(pipe, "wb", buffering=0) as out:
        info, backend, sensors, hello = opened(backend_name, threads)
        decoder, encoder = msgspec.json.Decoder(Task), msgspec.json.Encoder()

        def tell(stage: Literal["compiling", "measuring"]) -> None:
            out.write(encoder.encode(Stage(stage)) + b"\n")

        # Made before the hello: what it takes would disturb whoever measures after that.
        bench = None if hello.unavailable else Bench(info, backend, hello.environment.id, sensors, tell)
        out.write(encoder.encode(hello) + b"\n")
        if bench is None:
            return
        for line in sys.stdin.buffer:
            record = bench.record(decoder.decode(line))
            out.write(encoder.encode(Answer(record, bench.usable())) + b"\n")


def settle_in(pipe: int) -> None:
    """What any child process does first."""
    die_with_parent()
    _be_killed_first()
    take_side()
    os.set_inheritable(pipe, False)  # processes that a framework starts must not hold it open


def opened(backend_name: str, threads: int) -> tuple[BackendInfo, Backend, Sensors | None, Hello]:
    """A backend with its framework imported, and what is to be said of it first."""
    info = find_backend(backend_name)
    backend = info.load(threads)
    reason = backend.why_unavailable()
    facts = {} if reason else backend.environment()
    if info.device == "cuda" and not reason and "gpu" not in facts:
        facts |= visible_gpu()
    sensors, told = (None, reason) if reason else sensors_of(info, backend, facts)
    facts["sensors"] = told
    return info, backend, sensors, Hello(reason, Environment.of({**host(), **_common(backend_name), **facts}))


def _common(backend_name: str) -> dict[str, Any]:
    side = facts_of_side()
    variables = {name: os.environ[name] for name in _TELLING if name in os.environ} | side.pop("variables")
    return {"opmark": VERSION, "backend": backend_name, "interpreter": sys.executable, "variables": variables, **side}


def _be_killed_first() -> None:
    """When memory runs out the kernel picks a process; it is to be this one, not its parent or a bystander."""
    score = Path("/proc/self/oom_score_adj")
    if os.access(score, os.W_OK):
        score.write_text("1000")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
