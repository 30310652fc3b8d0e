"""Asks a child process for the operators of a program, or for times of schedules; this process imports no framework."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from opmark.errors import Unsupported
from opmark.models.host import LOADS, read_answer
from opmark.schema.schedule import ProfiledProgram, ScheduleQuestion, StageTimes
from opmark.scratch import ScratchFolder

_STARTING = 240.0
"""Seconds besides the rounds: importing a framework, making the model, finding its graph."""


def profile_program(question: ScheduleQuestion, environ: Mapping[str, str]) -> ProfiledProgram:
    """Return the operators of a program with their times."""
    found: ProfiledProgram = _ask(question, environ, ProfiledProgram)
    return found


def time_schedules(question: ScheduleQuestion, environ: Mapping[str, str]) -> list[StageTimes]:
    """Return seconds of the stages of schedules, round by round."""
    found: list[StageTimes] = _ask(question, environ, list[StageTimes])
    return found


def _ask(question: ScheduleQuestion, environ: Mapping[str, str], kind: Any) -> Any:
    with ScratchFolder("schedule") as folder:
        file = Path(folder) / "question.json"  # too long for a command line
        file.write_bytes(msgspec.json.encode(question))
        limit = _STARTING + 3 * question.budget
        try:
            done = subprocess.run(
                [sys.executable, "-m", "opmark.traces.schedule_child", str(file)], stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=limit, check=False, env={**environ, LOADS: "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Unsupported(f"`{question.name}` was not timed within {limit:.0f} s") from None
    try:
        return read_answer((done.stdout.splitlines() or [""])[-1], kind)
    except msgspec.DecodeError:
        last = (done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"])[-1]
        raise Unsupported(f"`{question.name}` cannot be scheduled: {last}") from None
