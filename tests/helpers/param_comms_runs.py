"""Helpers for tests of `opmark param comms`: rows of a command line, and records without a measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.api.result import Result
from opmark.catalogue.expansion import expand
from opmark.interop.param.comms.options import CommsRequest, make_request, parse_options
from opmark.interop.param.comms.rows import CommsRow, rows_of
from opmark.plugin.registry import operator as find_operator
from opmark.runner.plan import Plan, settings_for
from opmark.schema import Case, Measurement, Record, Run, Status, Task, Verification, Workload
from opmark.schema.options import MeasureOptions

MICRO = 1e-6

COLLECTIVES = (
    "reduce", "all_reduce", "all_to_all", "all_to_allv", "all_gather", "all_gather_v", "all_gather_object", "broadcast",
    "broadcast_object_list", "reduce_scatter", "reduce_scatter_v", "reduce_scatter_base", "all_gather_base", "incast",
    "multicast", "gather", "scatter",
)  # fmt: skip
"""The collectives that PARAM documents."""


def request_of(*options: str, ranks: int = 2) -> CommsRequest:
    return make_request(parse_options(["--device", "cpu", *options]), ranks)


def rows(*options: str, ranks: int = 2) -> list[CommsRow]:
    return rows_of(request_of(*options, ranks=ranks))


def task_from_name(case: Case) -> Task:
    (settings,) = settings_for(MeasureOptions(effort="quick", processes=1, threads=[1]))
    return Task(case, "torch-cpu", "torch", settings)


def record(case: Case, micros: Sequence[Sequence[float]], status: Status = "ok", reason: str = "") -> Record:
    """Make a record; `micros` are the microseconds of every rank."""
    slowest = [max(times) * MICRO for times in zip(*micros, strict=True)]
    by_rank = tuple(tuple(time * MICRO for time in own) for own in micros)
    found = Measurement("latency", "warm", "host", slowest, 1, 0.0, 5, 0.0, "count", by_rank=by_rank)
    return Record(
        task_from_name(case), status, reason, measurements=(found,) if status == "ok" else (),
        cost=find_operator(case.op).cost(case.params), verification=Verification("full"),
    )  # fmt: skip


class FakeRun:
    """Replaces `opmark.run`: a function makes the records of its cases, in any order."""

    def __init__(self, of: Callable[[Case], Record], *, backwards: bool = False, skipped: Sequence[str] = ()) -> None:
        self.asked: Mapping[str, Any] = {}
        self.others: int | None = None
        """If set, the result is that of rank 3, which has no records, but the exit code of rank 0."""
        self.journals: tuple[Path, ...] = ()
        self.stops_after: int | None = None
        """If set, Ctrl-C comes after so many records."""
        self._of = of
        self._backwards = backwards
        self._skipped = skipped

    def __call__(self, *, workload: Workload, on_start: Any, on_record: Any, **more: Any) -> Result:
        self.asked = more
        self.cases = expand(workload, find_operator)
        run = Run("20260101-000000-abcd", "2026-01-01T00:00:00", "plan", len(self.cases))
        left = [Record(task_from_name(case), "skipped", "not here") for case in self.cases if case.op in self._skipped]
        records = [self._of(case) for case in self.cases if case.op not in self._skipped]
        if self.others is not None:
            return Result(run, [], Path("store"), rank=3, rank_exit_code=self.others)
        on_start(run, Plan(tuple(one.task for one in records), tuple(left)), [])
        for number, one in enumerate(reversed(records) if self._backwards else records):
            if number == self.stops_after:
                raise KeyboardInterrupt
            on_record(one)
        if len(records) == self.stops_after:
            raise KeyboardInterrupt
        return Result(run, records, Path("store"), journals=self.journals)
