"""What a driver does with answers of seats, on a cluster that is made up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from opmark.plugin.registry import operator
from opmark.runner.executors.base import Resumed
from opmark.runner.executors.cluster import Node
from opmark.runner.executors.dispatch import Dispatch
from opmark.runner.executors.seats import FleetOptions, SeatState
from opmark.runner.plan import make_plan, settings_for
from opmark.runner.session import Retries
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Record
from opmark.schema.fleet import SeatNews, TaskDone, UnitEnded, encode
from opmark.schema.options import MeasureOptions


class Desk:
    """All seats have answered when the driver asks."""

    options = FleetOptions()

    def __init__(self) -> None:
        self.news: dict[str, bytes] = {}

    def answers(self, refs: Sequence[str], timeout: float) -> set[str]:
        return set(refs)

    def read(self, ref: str) -> tuple[bytes, str]:
        return self.news[ref], ""


def test_what_several_seats_say_at_once_comes_as_one_batch() -> None:
    cases = [Case.of("exp", operator("exp").complete({"shape": [1, i + 1]}), "forward") for i in range(4)]
    work = make_plan(cases, ["null"], settings_for(MeasureOptions(processes=1)))
    desk, cluster = Desk(), SimpleNamespace(usable=[], nodes={}, ask_about=lambda names: None, refresh=lambda: None)
    fake: Any = cluster
    options = WorkerOptions(60.0, say=lambda text: None, keep=lambda found: None)
    dispatch = Dispatch(fake, desk, work, options, Retries(0), Resumed())  # type: ignore[arg-type]
    for name in ("a", "b"):
        bundles = [
            bundle
            for _ in range(2)
            for bundle in dispatch._queue.take(lambda group: True, lambda bundle: True, seats=9)
        ]  # fmt: skip
        tasks = [task for bundle in bundles for task in bundle.tasks]
        done = [TaskDone(Record(task, "ok")) for task in tasks]
        desk.news[name] = encode(SeatNews([*done, UnitEnded(1)], len(done) + 1))
        dispatch._seats.append(
            SeatState(
                Node(name, name, "10.0.0.1", {"CPU": 1.0}), "cpu", 1, None, name, time.monotonic(), ready=True,
                bundles=bundles, pending={task.id: task for task in tasks},
            )
        )  # fmt: skip
    (batch,) = dispatch.batches()
    assert {record.task.id for record in batch} == {task.id for task in work.tasks}
    assert len(batch) == 4
