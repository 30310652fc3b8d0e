"""Workers that are started before anybody needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from opmark.plugin.registry import backend
from opmark.runner.instruction_set import limit_for
from opmark.runner.supervisor import Supervisor, WorkerOptions, WorkerPool
from opmark.runner.worker_process import WorkerProcess


def running(worker: WorkerProcess) -> bool:
    return worker._process.poll() is None


def supervisor(threads: int, pool: WorkerPool) -> Supervisor:
    return Supervisor(backend("null"), threads, WorkerOptions(60.0, pool=pool))


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with closing(WorkerPool()) as found:
        found.prestart("null", 1)
        yield found


def test_the_first_supervisor_takes_it_and_the_next_one_starts_its_own(pool: WorkerPool) -> None:
    (waiting,) = pool._waiting.values()
    with closing(supervisor(1, pool)) as first, closing(supervisor(1, pool)) as second:
        assert first.start().unavailable is None
        assert first._worker is waiting
        second.start()
        assert second._worker is not waiting
    assert not running(waiting)


def test_it_is_for_its_backend_and_its_threads_alone(pool: WorkerPool) -> None:
    (waiting,) = pool._waiting.values()
    with closing(supervisor(2, pool)) as other:
        other.start()
        assert other._worker is not waiting
    assert running(waiting)
    pool.close()
    assert not running(waiting)


def test_a_backend_by_another_of_its_names_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.runner.supervisor.WorkerProcess", lambda *_, **__: object())
    pool = WorkerPool()
    pool.prestart("torch-compile-cpu/default", 1)
    (waiting,) = pool._waiting.values()
    info = backend("torch-compile-cpu/default")
    assert info.name == "torch-compile-cpu"
    assert pool.take(info, 1, limit_for(info), None) is waiting


def test_what_nobody_needed_is_ended_even_by_an_error() -> None:
    waiting: list[WorkerProcess] = []

    def read_a_config() -> None:
        with closing(WorkerPool()) as pool:
            pool.prestart("null", 1)
            waiting.extend(pool._waiting.values())
            raise ValueError("bad config")

    with pytest.raises(ValueError, match="bad config"):
        read_a_config()
    with pytest.raises(ProcessLookupError):
        os.kill(waiting[0]._process.pid, 0)


def test_a_worker_that_is_launched_is_the_one_that_starts() -> None:
    with closing(supervisor(1, WorkerPool())) as one:
        one.launch()
        launched = one._worker
        assert one.start().unavailable is None
        assert one._worker is launched
