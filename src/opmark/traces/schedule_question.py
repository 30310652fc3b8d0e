"""Asks a child process for the operators of a program, or for times of schedules; this process imports no framework."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from opmark.models.host import HostProcess, read_answer
from opmark.schema.options import DEFAULT_COMPILE_TIMEOUT
from opmark.schema.schedule import (
    DescribedProgram,
    PlacedUnit,
    ProfiledProgram,
    Schedule,
    ScheduleQuestion,
    ScheduleTask,
    StageTimes,
    TransferTime,
)

_ROUNDS = 6
"""So many times the budget may be needed, because every schedule runs a few times in any case."""


class ProgramProcess:
    """A process that has loaded a program, and times schedules of it."""

    def __init__(
        self,
        name: str,
        params: dict[str, Any],
        backend: str,
        threads: int,
        environ: Mapping[str, str],
        starting: float = DEFAULT_COMPILE_TIMEOUT,
    ) -> None:
        """`starting`: seconds besides the rounds, to import a framework, to make the model and to find its graph."""
        self._program, self._starting = (name, params, backend, threads), starting
        self._process = HostProcess(sys.executable, "opmark.traces.schedule_child", environ)

    def __enter__(self) -> ProgramProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.close()

    def profile(self) -> ProfiledProgram:
        """Return the operators of the program with their times, called one after the other."""
        found: ProfiledProgram = self._ask("profile", ProfiledProgram)
        return found

    def describe(self) -> DescribedProgram:
        """Return the operators of the program with what they compute and move; it runs once for that."""
        found: DescribedProgram = self._ask("describe", DescribedProgram)
        return found

    def time_schedules(self, schedules: list[Schedule], budget: float) -> list[StageTimes]:
        """Return seconds of the stages of schedules, round by round, measured in turns."""
        found: list[StageTimes] = self._ask("time", list[StageTimes], schedules=schedules, budget=budget)
        return found

    def trace(self, schedule: Schedule) -> list[PlacedUnit]:
        """Return when each unit of a schedule ran, from the beginning of the call."""
        found: list[PlacedUnit] = self._ask("trace", list[PlacedUnit], schedules=[schedule])
        return found

    def transfers(self, devices: list[str]) -> list[TransferTime]:
        """Return what it costs to hand a result over between devices, in both directions."""
        found: list[TransferTime] = self._ask("transfer", list[TransferTime], devices=devices)
        return found

    def _ask(self, task: ScheduleTask, kind: Any, **options: Any) -> Any:
        question = ScheduleQuestion(task, *self._program, **options)
        return read_answer(self._process.ask(question, self._starting + _ROUNDS * question.budget), kind)
