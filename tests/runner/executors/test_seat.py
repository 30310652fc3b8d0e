"""A seat without Ray: what it measures, says, and when it stops."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opmark.plugin.registry import operator as find_operator
from opmark.runner.executors import seat as seat_module
from opmark.runner.executors.leases import LeaseBook
from opmark.runner.executors.node import reasons_of
from opmark.runner.executors.seat import Seat
from opmark.runner.plan import make_plan, settings_for
from opmark.schema import Case, Record, Task
from opmark.schema.fleet import (
    EnvironmentFound,
    FileWritten,
    Owner,
    ProfilerChoice,
    SeatAnswer,
    SeatMessage,
    SeatOptions,
    TaskBegun,
    TaskDone,
    Unit,
    UnitEnded,
    UnitJob,
    decode_news,
    encode,
)
from opmark.schema.machine import DiagnosisItem
from opmark.schema.messages import Side
from opmark.schema.options import MeasureOptions

OWNER = Owner("ann", "desk", "opmark run")


def tasks(count: int, processes: int = 1, backend: str = "null") -> tuple[Task, ...]:
    cases = [Case.of("add", find_operator("add").complete({"shape": [i + 1]}), "forward") for i in range(count)]
    measure = MeasureOptions(threads=[1], effort="quick", processes=processes, samples=3, warmup=1)
    return make_plan(cases, [backend], settings_for(measure)).tasks


OpenSeat = Callable[..., Seat]


@pytest.fixture
def book() -> LeaseBook:
    return LeaseBook()


@pytest.fixture
def open_seat(book: LeaseBook) -> Iterator[OpenSeat]:
    opened: list[Seat] = []

    def make(accelerators: Sequence[str] = (), **options: Any) -> Seat:
        given = {"must_be_fit": False, **options}
        made = Seat(encode(SeatOptions("n", "cpu", OWNER, 60.0, 60.0, 0, **given)), accelerators, book)
        opened.append(made)
        assert answer_of(made).reason == ""
        return made

    yield make
    for one in opened:
        one.close()


def answer_of(made: Seat) -> SeatAnswer:
    import msgspec

    return msgspec.json.decode(made.open(), type=SeatAnswer)


def hear(made: Seat, unit: Unit, after: int = 0) -> tuple[list[SeatMessage], int]:
    """Give a unit to a seat; return what it says until the unit has ended, and the number of its messages."""
    made.submit(encode(unit))
    found: list[SeatMessage] = []
    until = time.monotonic() + 60
    while not (found and isinstance(found[-1], UnitEnded)):
        assert time.monotonic() < until
        news = decode_news(made.news(after))
        after = news.upto
        found += news.messages
    return found, after


def records_of(messages: Sequence[SeatMessage]) -> list[Record]:
    return [message.record for message in messages if isinstance(message, TaskDone)]


def test_a_unit_becomes_records_with_the_environment_of_the_node(open_seat: OpenSeat) -> None:
    unit = Unit(1, tasks(3, processes=2))
    messages, _ = hear(open_seat(), unit)
    records = records_of(messages)
    assert {record.task.id for record in records} == {task.id for task in unit.tasks}
    assert {record.status for record in records} == {"ok"}
    environments = {m.environment.id: m.environment.facts for m in messages if isinstance(m, EnvironmentFound)}
    assert {environments[record.environment]["node"] for record in records} == {"n"}
    begun = [message.task for message in messages if isinstance(message, TaskBegun)]
    assert begun == [record.task.id for record in records]


def test_messages_stay_until_the_driver_has_them(open_seat: OpenSeat) -> None:
    made = open_seat()
    hear(made, Unit(1, tasks(2)))
    again = decode_news(made.news(0))  # as if the answer had been lost
    assert len(records_of(again.messages)) == 0  # all but the last answer were confirmed
    assert isinstance(again.messages[-1], UnitEnded)
    assert decode_news(made.news(again.upto)).messages == []


def test_a_kept_worker_goes_on_with_the_next_unit(open_seat: OpenSeat) -> None:
    keeping = open_seat(keep_workers=True)
    first, after = hear(keeping, Unit(1, tasks(2)))
    second, _ = hear(keeping, Unit(2, tasks(4)[2:]), after)
    assert {record.status for record in records_of([*first, *second])} == {"ok"}
    assert environment_pids(first) == environment_pids(second)


def environment_pids(messages: Sequence[SeatMessage]) -> set[str]:
    return {message.environment.id for message in messages if isinstance(message, EnvironmentFound)}


def test_a_kept_worker_that_was_killed_is_replaced(open_seat: OpenSeat, monkeypatch: pytest.MonkeyPatch) -> None:
    made = open_seat(keep_workers=True)
    pids: list[int] = []
    keep = seat_module.KeptWorkers.give_back

    def note(pool: Any, worker: Any, *rest: Any) -> None:
        pids.append(worker.pid)
        keep(pool, worker, *rest)

    monkeypatch.setattr(seat_module.KeptWorkers, "give_back", note)
    _, after = hear(made, Unit(1, tasks(1)))
    import os
    import signal

    os.kill(pids[0], signal.SIGKILL)
    time.sleep(0.2)
    messages, _ = hear(made, Unit(2, tasks(2)[1:]), after)
    assert [record.status for record in records_of(messages)] == ["ok"]
    assert pids[1] != pids[0]


def test_both_sides_of_a_pair_are_done_in_their_order(open_seat: OpenSeat) -> None:
    sides = [Side("a", "null", 1), Side("b", "null-device", 1)]
    jobs = tuple(UnitJob(side.backend, 1, 0, tasks(2, backend=side.backend), side) for side in sides)
    messages, _ = hear(open_seat(), Unit(1, jobs=jobs))
    done = [(message.job, message.record.task.backend) for message in messages if isinstance(message, TaskDone)]
    assert done == [(0, "null"), (0, "null"), (1, "null-device"), (1, "null-device")]


def test_a_stop_ends_the_unit_after_the_current_task(open_seat: OpenSeat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_NULL_DEVICE", "slow")
    made = open_seat()
    made.submit(encode(Unit(1, tasks(50, backend="null-device"))))
    after, found = 0, list[SeatMessage]()
    while not records_of(found):
        news = decode_news(made.news(after))
        after, found = news.upto, [*found, *news.messages]
    made.stop("drained by ann")
    while not isinstance(found[-1], UnitEnded):
        news = decode_news(made.news(after))
        after, found = news.upto, [*found, *news.messages]
    assert found[-1].reason == "drained by ann"
    assert not found[-1].failed
    assert 1 <= len(records_of(found)) < 10
    begun = [message.task for message in found if isinstance(message, TaskBegun)]
    assert begun == [record.task.id for record in records_of(found)]  # nothing that was begun is lost


def test_two_seats_on_one_node_exclude_each_other(open_seat: OpenSeat, book: LeaseBook) -> None:
    first = open_seat()
    options = SeatOptions("n", "gpu", Owner("bob", "shelf", "opmark ab"), 60.0, 60.0, 0, must_be_fit=False)
    assert answer_of(Seat(encode(options), ["0"], book)).reason == "held by ann@desk: opmark run"
    first.close()
    with closing(Seat(encode(options), ["0"], book)) as second:
        assert answer_of(second) == SeatAnswer(("n/gpu:0",))


def test_an_unfit_node_says_why_and_gives_its_devices_back(book: LeaseBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seat_module, "why_unfit", lambda *_: "other processes: busy: make 99 %")
    unfit = Seat(encode(SeatOptions("n", "cpu", OWNER, 60.0, 60.0, 0)), (), book)
    assert answer_of(unfit).reason == "other processes: busy: make 99 %"
    assert book.state().leases == []


def test_what_makes_a_node_unfit() -> None:
    def item(name: str) -> DiagnosisItem:
        return DiagnosisItem(name, ok=False, found="bad")

    findings = [item("load"), item("turbo"), item("throttling of GPU 1"), item("power limit of GPU 1")]
    assert reasons_of(findings, ["cpu"], idle=1e9) == ["load: bad"]
    assert reasons_of(findings, ["cpu"], idle=1.0) == []  # the load is that of the measurements before
    assert reasons_of(findings, ["gpu:1"], idle=1.0) == ["throttling of GPU 1: bad"]
    assert reasons_of(findings, ["gpu:0"], idle=1.0) == []
    assert reasons_of([DiagnosisItem("load", ok=True, found="0.1")], ["cpu"], idle=1e9) == []


def test_files_of_a_profiler_come_to_the_driver(open_seat: OpenSeat, tmp_path: Path) -> None:
    script = tmp_path / "profiler.py"
    script.write_text(
        "import subprocess, sys\n"
        "open(sys.argv[1] + '.txt', 'w').write('seen')\n"
        "raise SystemExit(subprocess.call(sys.argv[2:]))\n"
    )
    line = f"{sys.executable} {script} {{output}} {{program}}"
    chosen = ProfilerChoice("command", None, (), 1, 1, 50, line, 60.0, str(tmp_path / "here"))
    messages, _ = hear(open_seat(profilers=(chosen,), run="run-1"), Unit(1, tasks(2, backend="numpy-cpu")))
    files = {message.name: message for message in messages if isinstance(message, FileWritten)}
    written = [message for name, message in files.items() if name.endswith(".txt") and message.content == b"seen"]
    assert written
    assert all(name.startswith("run-1-n-1") for name in files)
    for record in records_of(messages):
        for profile in record.profiles:
            assert Path(profile.file).parent == tmp_path / "here"


def test_an_operator_that_the_node_lacks_fails_the_unit(open_seat: OpenSeat) -> None:
    (known,) = tasks(1)
    import msgspec

    unknown = msgspec.structs.replace(known, case=Case.of("no_such_operator", {}, "forward"))
    messages, _ = hear(open_seat(), Unit(1, (unknown,)))
    ended = messages[-1]
    assert isinstance(ended, UnitEnded)
    records = records_of(messages)
    assert ended.failed or [record.status for record in records] == ["error"]


def test_what_it_cannot_read_fails_the_unit(open_seat: OpenSeat) -> None:
    made = open_seat()
    made.submit(b'{"number": "one"}')
    (ended,) = decode_news(made.news(0)).messages
    assert isinstance(ended, UnitEnded)
    assert ended.failed
    assert "cannot read the unit" in ended.reason
