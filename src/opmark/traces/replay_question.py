"""Asks child processes what a replay covers and how long its calls take; this process imports no framework."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from opmark.errors import Unsupported
from opmark.models.host import read_answer
from opmark.schema.replay import ReplayReport
from opmark.scratch import ScratchFolder


class ReplayQuestion(Struct, frozen=True):
    name: str
    """The trace, as the family takes it."""
    params: dict[str, Any]
    backend: str
    threads: int
    rank: int = 0
    world: int = 1
    meeting: str = ""
    """File in which several ranks find each other."""
    timeout: float = 600.0


def look_at_replay(
    name: str, params: dict[str, Any], backend: str, threads: int, ranks: int, timeout: float
) -> list[ReplayReport]:
    """Return what each rank of a replay covers. Raise Unsupported where a process ends without an answer."""
    world = max(1, ranks)
    with ScratchFolder("replay") as folder:
        meeting = str(Path(folder) / "meeting")
        questions = [
            ReplayQuestion(name, params, backend, threads, rank, world, meeting, timeout) for rank in range(world)
        ]
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "opmark.traces.replay_child", msgspec.json.encode(question).decode()],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for question in questions
        ]  # fmt: skip
        end = time.monotonic() + timeout
        try:
            return [_answer(process, end) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.communicate()


def _answer(process: subprocess.Popen[str], end: float) -> ReplayReport:
    try:
        out, err = process.communicate(timeout=max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Unsupported("the replay was not done in time, call by call") from None
    try:
        found: ReplayReport = read_answer((out.splitlines() or [""])[-1], ReplayReport)
    except msgspec.DecodeError:
        last = (err.strip().splitlines() or [f"its process ended with {process.returncode}"])[-1]
        raise Unsupported(f"the replay cannot be looked at call by call: {last}") from None
    return found
