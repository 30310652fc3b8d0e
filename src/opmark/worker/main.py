"""The worker process. It reads commands from standard input and writes replies to a pipe, one JSON line each.

Standard output and standard error are left to the framework; the parent keeps them to explain a death.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from opmark.hardware.host import host
from opmark.hardware.sensors import visible_gpu
from opmark.plugin import Backend, BackendInfo, Sensors
from opmark.plugin.registry import backend as find_backend
from opmark.schema import Environment
from opmark.schema.messages import Command, Hello, Reply, decode_command, encode
from opmark.version import VERSION
from opmark.worker.measure.instruments import sensors_of
from opmark.worker.process_setup import apply_resources, apply_side, die_with_parent, facts_of_side, read_resources
from opmark.worker.task_runner import TaskRunner

# Variables that change what a framework computes with, so that they belong to the record.
_RECORDED_VARIABLES = (
    "ONEDNN_MAX_CPU_ISA", "OMP_PROC_BIND", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OPENBLAS_CORETYPE",
    "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_CUDA_ALLOC_CONF",
)  # fmt: skip


def main(backend_name: str, threads: int, pipe: int, role: str = "") -> None:
    """Serve the parent until its end of standard input is closed. `role`: `rank` for one rank of a group."""
    set_up_process(pipe)
    with os.fdopen(pipe, "wb", buffering=0) as out:

        def send(message: Hello | Reply) -> None:
            out.write(encode(message) + b"\n")

        info, backend, sensors, hello = open_backend(backend_name, threads)
        if role == "rank" and not hello.unavailable and type(backend).join is Backend.join:
            hello = Hello(f"{info.name} has no way to join several processes", hello.environment)
        if hello.unavailable:
            send(hello)
            return
        # Made before the hello, after which other workers may measure: making it would disturb them.
        if role == "rank":
            from opmark.worker.ranks.main import RankTaskRunner

            runner: TaskRunner = RankTaskRunner(info, backend, hello.environment.id, sensors, send)
        else:
            runner = TaskRunner(info, backend, hello.environment.id, sensors, send, read_command)
        send(hello)
        for line in sys.stdin.buffer:
            send(runner.reply(decode_command(line)))


def read_command() -> Command:
    """Return the next command for a task that is under way. Without a parent there is nothing left to do."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit()
    found: Command = decode_command(line)
    return found


def set_up_process(pipe: int) -> None:
    """Make this process end with its parent, and be the one that the kernel kills when memory runs out."""
    die_with_parent()
    score = Path("/proc/self/oom_score_adj")
    if os.access(score, os.W_OK):
        score.write_text("1000")
    apply_side()
    apply_resources()
    os.set_inheritable(pipe, False)  # processes that a framework starts must not hold it open


def open_backend(backend_name: str, threads: int) -> tuple[BackendInfo, Backend, Sensors | None, Hello]:
    """Import the framework of a backend, and describe the environment that it runs in."""
    info = find_backend(backend_name)
    backend = info.load(threads)
    reason = backend.why_unavailable()
    if not reason and (resources := read_resources()) and resources.sms:
        reason = backend.limit_multiprocessors(resources.sms)
    facts = {} if reason else backend.environment()
    if info.device == "cuda" and not reason and "gpu" not in facts:
        facts |= visible_gpu()
    sensors, facts["sensors"] = (None, reason) if reason else sensors_of(info, backend, facts)
    side = facts_of_side()
    variables = {name: os.environ[name] for name in _RECORDED_VARIABLES if name in os.environ} | side.pop("variables")
    common = {"opmark": VERSION, "backend": backend_name, "interpreter": sys.executable, "variables": variables, **side}
    return info, backend, sensors, Hello(reason, Environment.of({**host(), **common, **facts}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
