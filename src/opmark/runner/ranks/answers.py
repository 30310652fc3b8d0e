"""What the ranks made of a task, as one record: right only if all of them were."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from opmark.runner.process import WorkerDied
from opmark.runner.ranks.orders import Done
from opmark.schema import Record, Task


def merged(task: Task, done: Mapping[int, Done], names: Mapping[int, str], death: WorkerDied | None) -> Record:
    """That of rank 0, which has every rank's samples; or the first failure that was heard of, with its rank.

    A process that died by itself is the cause of what the others say. Else a rank that says why it failed knows more
    than those that had to be ended because they waited for it.
    """
    if death and death.status != "timeout":
        return Record(task, death.status, death.reason)
    failed = {rank: one.record for rank, one in done.items() if one.record.status != "ok" and not one.follows}
    if failed:
        rank, first = next(iter(failed.items()))
        alike = len(failed) == len(names) and len({one.reason for one in failed.values()}) == 1
        return first if alike else replace(first, reason=f"{names[rank]}: {first.reason}")
    if death:
        return Record(task, death.status, death.reason)
    return done[0].record
