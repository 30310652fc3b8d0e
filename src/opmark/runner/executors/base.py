"""What an executor is, and the one that runs tasks on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from opmark.hardware.host import why_no_device
from opmark.plugin import BackendInfo
from opmark.runner.guests.placement import why_missing
from opmark.runner.plan import Plan
from opmark.runner.ranks.launcher import RankLauncher
from opmark.runner.session import Job, Retries, run_jobs, run_plan
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Record

Announce = Callable[[int], None]
"""Is given the position of a job that is about to be measured."""


@dataclass(frozen=True)
class Resumed:
    """What is known of a run that goes on."""

    fresh: bool = True
    """Whether it has no record yet."""
    homes: Mapping[str, str] = field(default_factory=dict)
    """By id of a case: the node of a fleet that has measured a part of it."""


class Executor(Protocol):
    """Where tasks run."""

    threads: int | None
    """Threads of a task unless the user says how many; None: as many as this machine has cores."""

    def why_missing(self, info: BackendInfo) -> str | None:
        """Say why a backend certainly cannot run here, as far as this is known without starting it."""

    def why_no_device(self, device: str) -> str | None:
        """Say why there is no device of this kind."""

    def run(self, plan: Plan, options: WorkerOptions, retries: Retries, resumed: Resumed) -> Iterator[list[Record]]:
        """Yield a record for each task of a plan; those that arrive together are stored together."""

    def run_jobs(self, jobs: Sequence[Job], options: WorkerOptions, announce: Announce) -> Iterator[tuple[int, Record]]:
        """Do jobs in their order on one device, and yield the position of each record's job with the record."""

    def close(self) -> None: ...


class LocalExecutor:
    """Runs tasks in worker processes of this machine."""

    threads: int | None = None

    def __init__(self, launcher: RankLauncher | None = None) -> None:
        self._launcher = launcher

    def why_missing(self, info: BackendInfo) -> str | None:
        return why_missing(info)

    def why_no_device(self, device: str) -> str | None:
        return why_no_device(device)

    def run(self, plan: Plan, options: WorkerOptions, retries: Retries, resumed: Resumed) -> Iterator[list[Record]]:
        return ([record] for record in run_plan(plan, options, self._launcher, retries, fresh=resumed.fresh))

    def run_jobs(self, jobs: Sequence[Job], options: WorkerOptions, announce: Announce) -> Iterator[tuple[int, Record]]:
        return run_jobs(jobs, options, announce)

    def close(self) -> None:
        """There is nothing to close: workers end with the plan."""
