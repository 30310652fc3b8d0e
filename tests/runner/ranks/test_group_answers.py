"""What several ranks say of one task, as one record."""

from __future__ import annotations

from collections.abc import Callable

from opmark.runner.ranks.group import merge_replies
from opmark.runner.worker_process import WorkerDied
from opmark.schema import Record, Task
from opmark.schema.messages import TaskReply

NAMES = {0: "rank 0", 1: "rank 1 on node-b"}


def test_all_right_is_the_record_of_the_first(rank_task: Callable[..., Task]) -> None:
    task = rank_task()
    records = [Record(task, "ok", started="a"), Record(task, "ok", started="b")]
    assert merge_replies(task, {i: TaskReply(r) for i, r in enumerate(records)}, NAMES, None) is records[0]


def test_a_failure_of_one_names_the_rank(rank_task: Callable[..., Task]) -> None:
    task = rank_task()
    done = {
        0: TaskReply(Record(task, "error", "rank 1 failed"), follows=True),
        1: TaskReply(Record(task, "wrong", "7 is not 8")),
    }
    found = merge_replies(task, done, NAMES, None)
    assert (found.status, found.reason) == ("wrong", "rank 1 on node-b: 7 is not 8")


def test_the_same_failure_of_all_is_said_once_and_of_nobody(rank_task: Callable[..., Task]) -> None:
    task = rank_task()
    done = {i: TaskReply(Record(task, "skipped", "no such type")) for i in range(2)}
    assert merge_replies(task, done, NAMES, None).reason == "no such type"


def test_who_says_why_counts_more_than_who_was_ended_waiting(rank_task: Callable[..., Task]) -> None:
    task = rank_task()
    death = WorkerDied("timeout", "no answer of rank 0; killed")
    found = merge_replies(task, {1: TaskReply(Record(task, "error", "raised"))}, NAMES, death)
    assert (found.status, found.reason) == ("error", "rank 1 on node-b: raised")


def test_a_process_that_died_is_the_cause_of_what_others_say(rank_task: Callable[..., Task]) -> None:
    task = rank_task()
    done = {0: TaskReply(Record(task, "error", "connection closed by peer"))}
    found = merge_replies(task, done, NAMES, WorkerDied("error", "rank 1: its process ended"))
    assert found.reason == "rank 1: its process ended"


def test_a_death_alone_is_the_record(rank_task: Callable[..., Task]) -> None:
    task = rank_task()
    found = merge_replies(task, {0: TaskReply(Record(task, "ok"))}, NAMES, WorkerDied("oom", "rank 1: killed"))
    assert (found.status, found.reason) == ("oom", "rank 1: killed")
