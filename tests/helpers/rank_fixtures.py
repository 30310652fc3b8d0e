"""Ranks as threads, for what needs several of them and no framework; tasks for ranks; opmark under a launcher."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from opmark.plugin import Peers
from opmark.plugin.registry import operator
from opmark.runner.plan import settings_for
from opmark.schema import Case, Task
from opmark.schema.options import MeasureOptions

T = TypeVar("T")


class ThreadTeam:
    """One rank of a world whose ranks are threads of this process."""

    engine = "threads"

    def __init__(self, rank: int, table: list[list[float]], barrier: threading.Barrier) -> None:
        self.rank = rank
        self._table = table
        self._barrier = barrier

    def peers(self, size: int) -> Peers:
        return Peers(self.rank, size)

    def barrier(self) -> None:
        self._barrier.wait()

    def gathered(self, values: Sequence[float]) -> list[list[float]]:
        self._table[self.rank] = list(values)
        self._barrier.wait()
        found = [list(row) for row in self._table]
        self._barrier.wait()
        return found

    def leave(self) -> None:
        pass


@pytest.fixture
def on_ranks() -> Callable[[int, Callable[[ThreadTeam], Any]], list[Any]]:
    """Runs a function on so many ranks at once: what each returned, or the exception that it ended with."""

    def run(size: int, work: Callable[[ThreadTeam], Any]) -> list[Any]:
        barrier = threading.Barrier(size, timeout=60)
        table: list[list[float]] = [[] for _ in range(size)]

        def one(rank: int) -> Any:
            try:
                return work(ThreadTeam(rank, table, barrier))
            except Exception as error:  # noqa: BLE001 - the tests look at it
                return error

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(one, range(size)))

    return run


@pytest.fixture
def rank_task() -> Callable[..., Task]:
    def make(op: str = "all_reduce", backend: str = "torch-cpu", **params: Any) -> Task:
        found = operator(op)
        given = {"size": 4096, "ranks": 2, **params}
        known = {name: value for name, value in given.items() if name in found.by_name}
        case = Case.of(found.name, found.complete(known), "forward")
        label = found.implementations[0].label
        return Task(case, backend, label, settings_for(MeasureOptions(effort="quick", threads=[1]))[0])

    return make


STRANGER = Path(__file__).parents[1] / "runner" / "ranks" / "stranger"
"""Holds the backend `lines-cpu`, whose ranks start in a moment."""
ENTRY = "import sys\n{changes}\nfrom opmark.cli.main import main\nmain()\n"


class Launched:
    """One process that a launcher would have started."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env=environ, start_new_session=True)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def code(self, within: float = 90.0) -> int:
        """Its exit code; a test that has to wait for so long has failed."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {within} s: {self.out} {self.err}") from None

    def workers(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children()
            return [child for child in children if child.cmdline()[-1:] == ["rank"]]
        return []

    def end(self) -> None:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


Launch = Callable[..., Launched]


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: int = server.getsockname()[1]
    return found


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts `opmark ARGUMENTS` with these variables; `changes` are made in that process first, `before` stands before
    the command. Each process has a store of its own: so one can see who wrote."""
    started: list[Launched] = []
    usual = {name: value for name, value in os.environ.items() if name not in ("MASTER_ADDR", "MASTER_PORT")}

    def start(environ: Mapping[str, str], *arguments: str, changes: str = "", before: Sequence[str] = ()) -> Launched:
        folder = tmp_path / f"process{len(started)}"
        folder.mkdir()
        (folder / "entry.py").write_text(ENTRY.format(changes=changes))
        paths = filter(None, [str(STRANGER), os.environ.get("PYTHONPATH")])
        own = {"OPMARK_DB": str(folder / "store.db"), "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "300"}
        command = [*before, sys.executable, str(folder / "entry.py"), *arguments]
        started.append(Launched(command, {**usual, **own, **environ}, folder))
        return started[-1]

    yield start
    for one in started:
        one.end()
