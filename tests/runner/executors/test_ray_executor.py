"""Runs on a real Ray cluster of several nodes, whose processes are killed, stopped, added and removed meanwhile.

Tasks are those of the backend `gated`: case 3 waits until the test has opened the gate for three rows. So nodes can be
struck while they are in the middle of a task, however busy the machine is. Every record has to be there exactly once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from postgres_server import Server
from ray_nodes import RayNodes

from opmark.runner.executors.leases import RENEW_EVERY
from opmark.schema import Record
from opmark.schema.fleet import NODE_FACT
from opmark.store.sql import open_sql

pytest.importorskip("ray")
pytestmark = [pytest.mark.fleet, pytest.mark.slow]

OPMARK = [sys.executable, "-m", "opmark.cli.main"]
GATED = Path(__file__).parents[2] / "helpers" / "gated"
ALL = 1000


class GatedNodes(RayNodes):
    """A cluster with a gate for its tasks."""

    def __init__(self, folder: Path) -> None:
        self.gate = folder / "gate"
        path = os.pathsep.join(filter(None, (str(GATED), os.environ.get("PYTHONPATH", ""))))
        self.environ = {"PYTHONPATH": path, "OPMARK_GATE": str(self.gate)}
        self.open(ALL)
        super().__init__("a", "b", environ=self.environ)

    def open(self, rows: int) -> None:
        """Let cases with up to so many rows go on, and all others wait."""
        fresh = self.gate.with_suffix(".fresh")
        fresh.write_text(str(rows))
        fresh.replace(self.gate)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatedNodes]:
    with closing(GatedNodes(tmp_path_factory.mktemp("fleet"))) as made:
        yield made


@pytest.fixture
def nodes(cluster: GatedNodes, monkeypatch: pytest.MonkeyPatch) -> GatedNodes:
    monkeypatch.setenv("PYTHONPATH", cluster.environ["PYTHONPATH"])
    cluster.open(ALL)
    return cluster


class Driver:
    """`opmark run` on the cluster."""

    def __init__(self, nodes: GatedNodes, db: str, *arguments: str, cases: int = 12) -> None:
        shapes = ",".join(f"{i + 1}x1" for i in range(cases))
        self.command = [
            *OPMARK, "run", "exp", "-p", f"shape={shapes}", "--backend", "gated", "--effort", "quick", "--samples", "3",
            "--warmup", "1", "--timeout", "300", "--executor", "ray", "--address", nodes.address, "--json", "--db", db,
            *arguments,
        ]  # fmt: skip
        self.db, self.cases = db, cases
        self.lines: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.no_data: list[str] = []
        """What stands on standard output and is no JSON."""
        self._start()

    def _start(self, *more: str) -> None:
        self.process = subprocess.Popen(
            [*self.command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, lambda x: self.lines.append(json.loads(x)))),
            threading.Thread(target=self._read, args=(self.process.stderr, self.said.append)),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: Any, keep: Callable[[str], None]) -> None:
        for line in pipe:
            try:
                keep(line)
            except json.JSONDecodeError:
                self.no_data.append(line)

    def resume(self) -> None:
        self._start("--resume")

    def await_records(self, count: int) -> None:
        until = time.monotonic() + 120
        while len(self.lines) < count:
            assert time.monotonic() < until, "".join(self.said)
            assert self.process.poll() is None, "".join(self.said)
            time.sleep(0.05)

    def await_words(self, *words: str) -> None:
        until = time.monotonic() + 120
        while not all(word in "".join(self.said) for word in words):
            assert time.monotonic() < until, "".join(self.said)
            assert self.process.poll() is None, "".join(self.said)
            time.sleep(0.05)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.wait()
        self.no_data.clear()  # half a line

    def finish(self, code: int = 0) -> str:
        """Wait for the end; return what it said."""
        assert self.wait() == code, "".join(self.said)
        assert "Traceback" not in "".join(self.said)
        assert self.no_data == []
        return "".join(self.said)

    def wait(self) -> int:
        returned = self.process.wait(120)
        for reader in self._readers:
            reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe
            pipe.close()
        return returned

    def stored(self) -> list[Record]:
        with closing(open_sql(self.db)) as store:
            (run,) = store.runs()
            return store.records(run.id)

    def nodes_of_records(self) -> Counter[str]:
        with closing(open_sql(self.db)) as store:
            (run,) = store.runs()
            records = store.records(run.id)
            facts = store.environments({record.environment for record in records})
            return Counter(facts[record.environment].facts[NODE_FACT] for record in records if record.environment)

    def confirm_complete(self, status: str = "ok") -> None:
        """Every task has exactly one record, and what was printed is what is stored."""
        records = self.stored()
        assert len(records) == len({record.task.id for record in records}) == self.cases
        assert {record.status for record in records} == {status}
        assert {line["case"] for line in self.lines} == {record.task.case.id for record in records}


@contextmanager
def driver(*arguments: Any, **options: Any) -> Iterator[Driver]:
    made = Driver(*arguments, **options)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            os.killpg(made.process.pid, signal.SIGKILL)
            made.wait()


def fleet(nodes: GatedNodes, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*OPMARK, "fleet", "--address", nodes.address, *arguments], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def confirm_one_at_a_time(*drivers: Driver) -> None:
    """No two tasks of any run were measured on one node at the same time."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for made in drivers:
        with closing(open_sql(made.db)) as store:
            (run,) = store.runs()
            records = store.records(run.id)
            facts = store.environments({record.environment for record in records})
        for record in records:
            begun = datetime.fromisoformat(record.started).timestamp()
            node = facts[record.environment].facts[NODE_FACT]
            spans.setdefault(node, []).append((begun, begun + record.duration))
    for own in spans.values():
        for (_, end), (begun, _) in pairwise(sorted(own)):
            assert begun > end - 0.1  # a record is stamped a moment before it is sent


def test_two_runs_of_two_people_share_the_nodes(nodes: GatedNodes, tmp_path: Path) -> None:
    """Both nodes measure, one thing at a time; whoever comes second waits, and everybody sees who measures."""
    nodes.open(2)
    with driver(nodes, str(tmp_path / "one.db")) as one:
        one.await_records(2)
        nodes.seat("a"), nodes.seat("b")
        with driver(nodes, str(tmp_path / "two.db"), cases=2) as two:
            two.await_words("node a takes no work: held by", "node b takes no work: held by")
            listed = fleet(nodes, "--json")
            nodes.open(ALL)
            one.finish()
            two.finish()
    leases = [lease for node in listed for lease in node["leases"]]
    assert sorted(lease["devices"] for lease in leases) == [["a/cpu"], ["b/cpu"]]
    assert all(" run exp " in lease["owner"]["what"] for lease in leases)
    one.confirm_complete()
    two.confirm_complete()
    assert one.nodes_of_records().keys() == {"a", "b"}
    confirm_one_at_a_time(one, two)
    assert all(not node["leases"] for node in fleet(nodes, "--json"))  # given back, not only expired


def test_all_processes_of_a_case_are_measured_on_one_node(nodes: GatedNodes, tmp_path: Path) -> None:
    with driver(nodes, str(tmp_path / "s.db"), "--processes", "2", cases=6) as made:
        made.finish()
    with closing(open_sql(made.db)) as store:
        (run,) = store.runs()
        records = store.records(run.id)
        facts = store.environments({record.environment for record in records})
    assert len(records) == len({record.task.id for record in records}) == 12
    by_case: dict[str, set[str]] = {}
    for record in records:
        by_case.setdefault(record.task.case.id, set()).add(facts[record.environment].facts[NODE_FACT])
    assert all(len(own) == 1 for own in by_case.values())
    assert set.union(*by_case.values()) == {"a", "b"}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_seat_that_dies_or_hangs_costs_its_task_one_retry(
    how: signal.Signals, nodes: GatedNodes, tmp_path: Path
) -> None:
    nodes.open(2)
    with driver(nodes, str(tmp_path / "s.db")) as made:
        made.await_records(2)
        await_worker(nodes, "b")
        victim = nodes.seat("b")
        victim.send_signal(how)
        made.await_words("node b was lost while it ran exp")
        nodes.open(ALL)
        made.finish()
        with suppress(psutil.NoSuchProcess):
            victim.kill()
    made.confirm_complete()


def await_worker(nodes: GatedNodes, name: str, seconds: float = 120.0) -> None:
    """Wait until a seat on a node has a worker, and this a task, which waits at the gate."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(psutil.Error):
            for worker in nodes.seat(name, until - time.monotonic()).children():
                if "opmark.worker.main" in worker.cmdline() and worker.cpu_times().user > 0.2:
                    time.sleep(1.5)
                    return
        time.sleep(0.05)
    raise AssertionError(f"the seat on node {name} has no worker")


def test_a_task_on_which_two_nodes_are_lost_becomes_a_record(nodes: GatedNodes, tmp_path: Path) -> None:
    nodes.open(0)
    with driver(nodes, str(tmp_path / "s.db"), cases=1) as made:
        killed: list[str] = []
        while len(killed) < 2:
            for name in {"a", "b"} - set(killed):
                with suppress(AssertionError):
                    await_worker(nodes, name, 0.5)
                    nodes.seat(name).kill()
                    killed.append(name)
                    made.await_words(f"node {name} was lost while it ran exp")
        made.finish(code=1)
    (record,) = made.stored()
    assert record.status == "killed"
    assert record.reason.startswith(f"nodes were lost while running it: {killed[0]}: ")
    assert f"; {killed[1]}: " in record.reason


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_was_killed_goes_on(nodes: GatedNodes, tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM ends it as it ends a run without Ray, which has a handler of its own: what to do next is said."""
    nodes.open(3)
    with driver(nodes, str(tmp_path / "s.db")) as made:
        made.await_records(3)
        if number == signal.SIGKILL:
            made.kill()
        else:
            os.kill(made.process.pid, number)
            assert "interrupted; the same command with --resume goes on" in made.finish(128 + number).replace("\n", " ")
        nodes.open(ALL)
        before = {record.task.id: record for record in made.stored()}
        assert len(before) >= 3
        made.resume()
        made.finish()
    made.confirm_complete()
    after = {record.task.id: record for record in made.stored()}
    assert all(after[key] == record for key, record in before.items())


def test_nodes_join_and_leave(nodes: GatedNodes, tmp_path: Path) -> None:
    """`c` joins in the middle and loses its raylet; `d` joins and leaves in good order."""
    nodes.open(2)
    with driver(nodes, str(tmp_path / "s.db"), cases=24) as made:
        made.await_records(2)
        nodes.add("c", **nodes.environ)
        await_worker(nodes, "c")
        nodes.raylet("c").kill()
        made.await_words("node c has joined", "node c was lost while it ran exp")
        nodes.add("d", **nodes.environ)
        await_worker(nodes, "d")
        nodes.remove("d")
        made.await_words("node d has joined", "node d was lost while it ran exp")
        nodes.open(ALL)
        assert made.wait() in (0, 1)
    assert made.no_data == []  # Ray's own words about lost nodes are not data
    records = made.stored()
    assert len(records) == len({record.task.id for record in records}) == made.cases
    # The task that `c` was lost with may have been given to `d`, of all nodes.
    for record in records:
        assert record.status == "ok" or (record.status == "killed" and "it: c: " in record.reason)
    assert sum(record.status == "killed" for record in records) <= 1


def test_a_drained_node_finishes_its_task_and_takes_no_other(nodes: GatedNodes, tmp_path: Path) -> None:
    nodes.open(2)
    try:
        with driver(nodes, str(tmp_path / "s.db")) as made:
            made.await_records(2)
            await_worker(nodes, "b")
            before = made.nodes_of_records()["b"]
            fleet(nodes, "drain", "b")
            time.sleep(2 * RENEW_EVERY)  # its seat hears of it when it renews the lease
            nodes.open(ALL)
            said = made.finish()
        assert "node b takes no work: drained by" in said
        assert "lost" not in said
        made.confirm_complete()
        assert made.nodes_of_records()["b"] == before + 1
        (drained,) = [node for node in fleet(nodes, "--json") if node["name"] == "b"]
        assert drained["reason"].startswith("drained by")
    finally:
        fleet(nodes, "drain", "b", "--undo")


def bring_in(db: str) -> list[str]:
    """Write to a store once more, which brings in what waits for it; return the ids of all tasks but the new one."""
    subprocess.run(
        [*OPMARK, "run", "add", "--size", "small", "--backend", "null", "--effort", "quick", "--db", db], check=True
    )
    with closing(open_sql(db)) as store:
        runs = store.runs()
        return [record.task.id for run in runs for record in store.records(run.id) if record.task.case.op == "exp"]


def test_a_server_that_is_restarted_loses_nothing(
    nodes: GatedNodes, postgres_server: Server, postgres_url: str
) -> None:
    nodes.open(2)
    with driver(nodes, postgres_url, cases=16) as made:
        made.await_records(2)
        postgres_server.stop()
        nodes.open(8)
        time.sleep(2)
        postgres_server.start()
        nodes.open(ALL)
        assert made.wait() in (0, 1)  # 1 where a part is still in the journal
    assert "Traceback" not in "".join(made.said)
    found = bring_in(postgres_url)
    assert len(found) == len(set(found)) == 16


def test_a_full_disk_of_the_driver_loses_nothing(nodes: GatedNodes, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        nodes.open(3)
        with driver(nodes, str(small / "s.db"), cases=16) as made:
            made.await_records(3)
            with suppress(OSError), (small / "fill").open("wb") as fill:
                while True:
                    fill.write(b"x" * 4096)
                    fill.flush()
            nodes.open(ALL)
            code = made.wait()
        assert "Traceback" not in "".join(made.said)
        assert code in (0, 1)
        (small / "fill").unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        found = bring_in(made.db)
        assert len(found) == len(set(found)) == 16
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_both_sides_of_ab_are_measured_on_one_node(nodes: GatedNodes, tmp_path: Path) -> None:
    db = str(tmp_path / "s.db")
    done = subprocess.run(
        [*OPMARK, "ab", "add", "-p", "shape=64x64", "--backend", "null,null-device", "--processes", "4", "--executor",
         "ray", "--address", nodes.address, "--db", db],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with closing(open_sql(db)) as store:
        runs = store.runs()
        records = [record for run in runs for record in store.records(run.id)]
        facts = store.environments({record.environment for record in records})
    assert len(runs) == 2
    assert len(records) == 8
    assert len({found.facts[NODE_FACT] for found in facts.values()}) == 1


def failing(nodes: GatedNodes, *arguments: str) -> str:
    """What is said by a command that is refused."""
    done = subprocess.run(
        [*OPMARK, *arguments, "--executor", "ray", "--address", nodes.address, "--db", ":memory:"],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "hint: " in done.stderr
    return done.stderr


def test_mistakes_are_explained(nodes: GatedNodes) -> None:
    """Those that need no cluster are in test_cluster.py."""
    nobody = failing(nodes, "run", "add", "--size", "small", "--backend", "torch-cuda")
    assert "no node of the cluster" in nobody
    assert ": no driver of an NVIDIA or AMD GPU is loaded here" in nobody.replace("\n", " ")
    assert "no node named z" in failing(nodes, "run", "add", "--size", "small", "--backend", "null", "--nodes", "z")


def test_a_node_with_another_torch_is_named(nodes: GatedNodes, tmp_path: Path) -> None:
    """A package that only looks like another torch: what is installed is told from metadata."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('not a real torch')\n")
    metadata = tmp_path / "torch-2.9.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    nodes.add("odd", PYTHONPATH=path)
    try:
        said = failing(nodes, "run", "add", "--size", "small", "--backend", "torch-cpu", "--nodes", "odd")
        assert "odd: it has torch 2.9.0, the driver " in said.replace("\n", " ")
    finally:
        nodes.remove("odd")
