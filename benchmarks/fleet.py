"""A fleet: what sending tasks to other nodes costs, how it scales, and how soon a dead node is noticed.

    python -m benchmarks.fleet                  all of it, six to eight minutes on two cores
    python -m benchmarks.fleet --on null,sink   parts: null, scaling, loss, limits, sink

Nodes are Ray nodes on this machine: they share its cores, so tasks either do nothing (`null`) or sleep (`null-device`).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psutil
from msgspec.structs import replace

from benchmarks.common import Row, markdown
from opmark.plugin.registry import operator as find_operator
from opmark.runner.executors.base import LocalExecutor, Resumed
from opmark.runner.executors.cluster import RayCluster
from opmark.runner.executors.ray_executor import RayExecutor
from opmark.runner.executors.seats import FleetOptions, SeatDesk
from opmark.runner.executors.units import WorkQueue
from opmark.runner.plan import Plan, make_plan, settings_for
from opmark.runner.session import Retries, RunRecorder, new_run
from opmark.runner.supervisor import WorkerOptions
from opmark.schema import Case, Record
from opmark.schema.fleet import NODE_FACT, Owner, SeatNews, TaskDone, decode_news, encode
from opmark.schema.options import MeasureOptions
from opmark.store.sql import open_sql

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from postgres_server import Server, programs
from ray_nodes import RayNodes

NODES = (1, 2, 4)
NULL_TASKS = 1500
SLEEPING_TASKS = 40
"""Tasks per node that sleep for half a second."""
PLANNED = 50_000
ANSWERS = 5_000
WRITERS = 16
WRITTEN = 200
"""Records of each writer."""
PARTS = ("null", "scaling", "loss", "limits", "sink")
SLOW = {"OPMARK_NULL_DEVICE": "slow"}


def plan(backend: str, count: int) -> Plan:
    cases = [Case.of("exp", find_operator("exp").complete({"shape": [1, i + 1]}), "forward") for i in range(count)]
    options = MeasureOptions(threads=[1], effort="quick", processes=1, samples=3, warmup=1)
    return make_plan(cases, [backend], settings_for(options))


class Timed:
    """A run of a plan: when each record came, and what was said."""

    def __init__(
        self,
        executor: LocalExecutor | RayExecutor,
        work: Plan,
        at: Callable[[str], None] | None = None,
        recorder: RunRecorder | None = None,
    ) -> None:
        """`at` is given the node of each record; `recorder` stores what comes, as `opmark run` does."""
        self.times: list[float] = []
        self.batches = 0
        self.records: list[Record] = []
        self.said: list[tuple[float, str]] = []
        nodes: dict[str, str] = {}
        options = WorkerOptions(
            60.0,
            say=lambda text: self.said.append((time.perf_counter(), text)),
            keep=lambda found: nodes.update({found.id: found.facts.get(NODE_FACT, "")}),
        )
        self.begun = time.perf_counter()
        for arrived in executor.run(work, options, Retries(0), Resumed()):
            if recorder:
                recorder.add(*arrived)
            self.batches += 1
            self.times += [time.perf_counter()] * len(arrived)
            self.records += arrived
            for record in arrived if at else ():
                at(nodes[record.environment])
        assert len({record.task.id for record in self.records}) == len(work.tasks)

    @property
    def span(self) -> float:
        """Seconds from the first record to the last: without starting seats and workers."""
        return self.times[-1] - self.times[0]


def on_fleet(nodes: RayNodes) -> RayExecutor:
    return RayExecutor(RayCluster(nodes.address), FleetOptions("benchmarks.fleet"))


def null_tasks(folder: Path) -> Iterator[Row]:
    """Tasks that do nothing: what is left is the way there and back."""
    local = Timed(LocalExecutor(), plan("null", NULL_TASKS))
    here = local.span / NULL_TASKS
    yield Row("null tasks on this machine, without a fleet", "", f"{1 / here:,.0f} a second", None)
    for count in NODES:
        with closing(RayNodes(*"abcd"[:count])) as nodes, closing(on_fleet(nodes)) as fleet:
            there = Timed(fleet, plan("null", NULL_TASKS))
        each = there.span / NULL_TASKS
        text = f"{1 / each:,.0f} a second; {there.times[0] - there.begun:.1f} s to the first record"
        yield Row(f"null tasks, {count_nodes(count)}", "", text, None)
        if count == 1:
            more = 1e3 * (each - here)
            yield Row(
                "overhead of a task on one node over the local executor", "at most 20 ms", f"{more:.2f} ms", more <= 20
            )
    with closing(RayNodes(*"abcd")) as nodes, closing(on_fleet(nodes)) as fleet, closing(
        open_sql(folder / "fleet.db", create=True)
    ) as store:  # fmt: skip
        work = plan("null", NULL_TASKS)
        done = Timed(fleet, work, recorder=RunRecorder(store, new_run(work, "")))
    text = f"{NULL_TASKS / done.span:,.0f} a second, {NULL_TASKS / done.batches:.1f} per transaction"
    yield Row("null tasks, 4 nodes, stored in SQLite by the driver", "", text, None)


def count_nodes(count: int) -> str:
    return f"{count} node{'s' * (count > 1)}"


def scaling() -> Iterator[Row]:
    """Tasks that sleep half a second. The ideal is what they take locally, divided by the number of nodes."""
    os.environ.update(SLOW)
    local = Timed(LocalExecutor(), plan("null-device", 12))
    each = local.span / 11
    for count in NODES:
        total = SLEEPING_TASKS * count
        with closing(RayNodes(*"abcd"[:count], environ=SLOW)) as nodes, closing(on_fleet(nodes)) as fleet:
            done = Timed(fleet, plan("null-device", total))
        ideal = total * each / count
        wall = done.span + each  # the first task is a part of it
        share = ideal / wall
        text = f"{100 * share:.1f} % ({total} tasks in {wall:.1f} s, at best {ideal:.1f} s)"
        limited = count == NODES[-1]
        target = "at least 95 %" if limited else ""
        yield Row(f"share of ideal scaling, {count_nodes(count)}, {each:.3f} s a task", target, text,
                  share >= 0.95 if limited else None)  # fmt: skip
    for name in SLOW:
        del os.environ[name]


def loss() -> Iterator[Row]:
    """How long until the driver knows that a node is gone."""
    os.environ.update(SLOW)
    how = {
        "a raylet that is killed": lambda nodes: nodes.raylet("b").kill(),
        "a seat that is killed": lambda nodes: nodes.seat("b").kill(),
        "a node that hangs (its processes are stopped)": lambda nodes: [
            one.send_signal(signal.SIGSTOP) for one in (nodes.seat("b"), nodes.raylet("b"))
        ],
    }
    for what, end in how.items():
        with closing(RayNodes("a", "b", environ=SLOW)) as nodes, closing(on_fleet(nodes)) as fleet:
            ended: list[float] = []

            def strike(node: str, nodes: RayNodes = nodes, end: object = end, ended: list[float] = ended) -> None:
                if node == "b" and not ended:
                    ended.append(time.perf_counter())
                    end(nodes)  # type: ignore[operator]

            done = Timed(fleet, plan("null-device", 40), strike)
        noticed = [when - ended[0] for when, text in done.said if "lost" in text or "has died" in text]
        found = f"{noticed[0]:.2f} s; all {len(done.records)} records" if noticed else "not noticed"
        yield Row(f"noticed: {what}", "within 10 s", found, bool(noticed) and noticed[0] <= 10)
    for name in SLOW:
        del os.environ[name]


def limits(folder: Path) -> Iterator[Row]:
    """The parts that are there once, however many nodes there are: the driver, its store, the lease book."""
    records = Timed(LocalExecutor(), plan("null", 300)).records
    news = encode(SeatNews([TaskDone(record) for record in records], len(records)))
    spent = _seconds(lambda: decode_news(news)) / len(records)
    yield Row(
        "driver: reading a record of a seat", "", f"{1e6 * spent:.0f} µs, {len(news) // len(records):,} bytes", None
    )
    with closing(open_sql(folder / "one.db", create=True)) as store:
        run = new_run(plan("null", 300), "")
        store.begin(run)
        rate = len(records) / _seconds(lambda: [store.append(run.id, record) for record in records])
        yield Row("driver: records that SQLite takes, one at a time", "", f"{rate:,.0f} a second", None)
        again = new_run(plan("null", 300), "")
        store.begin(again)
        rate = len(records) / _seconds(lambda: store.extend(again.id, records))
        yield Row("driver: records that SQLite takes, 300 at a time", "", f"{rate:,.0f} a second", None)
    before = psutil.Process().memory_info().rss
    many = plan("null", PLANNED)
    spent = _seconds(lambda: WorkQueue(many.tasks, lambda task: "1 null", {}))
    grown = (psutil.Process().memory_info().rss - before) / PLANNED
    text = f"{grown / 1024:.1f} KiB, {1e6 * spent / PLANNED:.0f} µs to queue"
    yield Row("driver: memory of a planned task", "", text, None)
    with closing(RayNodes("a")) as nodes, closing(RayCluster(nodes.address)) as cluster:
        desk = SeatDesk(cluster, FleetOptions())
        book = cluster.book._actor
        waiting, answered, begun = {book.renew.remote("x") for _ in range(1000)}, 0, time.perf_counter()
        while answered < ANSWERS:
            for ref in desk.answers(list(waiting), 1.0):
                desk.read(ref)
                waiting.remove(ref)
                waiting.add(book.renew.remote("x"))
                answered += 1
        spent = (time.perf_counter() - begun) / answered
        yield Row("driver: an answer of a seat, 1,000 of them awaited", "", f"{1e3 * spent:.2f} ms", None)
        lease = cluster.book.acquire(["x/cpu"], Owner("a", "b", "c")).lease
        rate = 500 / _seconds(lambda: [cluster.book.renew(lease.token) for _ in range(500)])
        yield Row("lease book: renewals, one after the other", "", f"{rate:,.0f} a second", None)


def sink(folder: Path) -> Iterator[Row]:
    """PostgreSQL with several drivers that write at the same time, each a process of its own."""
    installed = programs()
    if installed is None:
        yield Row("PostgreSQL", "", "no server is installed here", None)
        return
    records = Timed(LocalExecutor(), plan("null", WRITTEN)).records
    (folder / "records").write_bytes(encode(records))
    server = Server(installed, durable=True)
    try:
        for writers, size in ((1, 1), (1, 100), (WRITERS, 1)):
            db = server.new_database()
            open_sql(db, create=True).close()
            command = [sys.executable, "-m", "benchmarks.fleet", "--write", db, "--records", str(folder / "records"),
                       "--together", str(size)]  # fmt: skip
            processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(writers)]
            spans = [tuple(map(float, process.communicate()[0].split())) for process in processes]
            wall = max(end for _, end in spans) - min(begun for begun, _ in spans)
            with closing(open_sql(db)) as store:
                stored = sum(len(store.records(run.id)) for run in store.runs())
            text = f"{stored / wall:,.0f} records a second; {stored:,} of {writers * WRITTEN:,} stored"
            many = "one record" if size == 1 else f"{size} records"
            yield Row(f"PostgreSQL: {writers} writer{'s' * (writers > 1)}, {many} at a time", "", text, None)
    finally:
        server.remove()


def write(db: str, file: Path, together: int) -> None:
    """Write records as a driver does, so many in a transaction; print when it began and ended."""
    records = msgspec.json.decode(file.read_bytes(), type=list[Record])
    with closing(open_sql(db, create=True)) as store:
        run = replace(new_run(Plan(tuple(record.task for record in records), ()), ""), tasks=len(records))
        store.begin(run)
        begun = time.time()
        for start in range(0, len(records), together):
            store.extend(run.id, records[start : start + together])
        print(begun, time.time())


def _seconds(what: Callable[[], object]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def rows(parts: Sequence[str], folder: Path) -> Iterator[Row]:
    made: dict[str, Callable[[], Iterator[Row]]] = {
        "null": lambda: null_tasks(folder), "scaling": scaling, "loss": loss, "limits": lambda: limits(folder),
        "sink": lambda: sink(folder),
    }  # fmt: skip
    for part in parts:
        yield from made[part]()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--on", default=",".join(PARTS), help="parts to run. [%(default)s]")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--records", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--together", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write, arguments.records, arguments.together)
        return
    load, table = os.getloadavg()[0], list[Row]()
    with TemporaryDirectory() as folder:
        for row in rows(arguments.on.split(","), Path(folder)):
            print(row.what, row.measured, sep=": ", file=sys.stderr)
            table.append(row)
    print(markdown(table))
    print(f"\nLoad average before the start: {load:.1f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
