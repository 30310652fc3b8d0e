"""A worker that is started before anybody needs it."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from opmark.registry import backend
from opmark.runner import early
from opmark.runner.process import WorkerProcess
from opmark.runner.supervisor import Supervisor


def running(worker: WorkerProcess) -> bool:
    return worker._process.poll() is None


def supervisor(threads: int) -> Supervisor:
    return Supervisor(backend("null"), threads, 60.0, lambda message: None, lambda environment: None)


def test_the_first_supervisor_takes_it_and_the_next_one_starts_its_own() -> None:
    with early.early("null", 1):
        (waiting,) = early._started.values()
        with closing(supervisor(1)) as first, closing(supervisor(1)) as second:
            assert first.start().unavailable is None
            assert first._worker is waiting
            second.start()
            assert second._worker is not waiting
        assert not running(waiting)


def test_it_is_for_its_backend_and_its_threads_alone() -> None:
    with early.early("null", 1):
        (waiting,) = early._started.values()
        with closing(supervisor(2)) as other:
            other.start()
            assert other._worker is not waiting
        assert running(waiting)
    assert not running(waiting)


def test_what_nobody_needed_is_ended_even_by_an_error() -> None:
    waiting: list[WorkerProcess] = []

    def read_a_config() -> None:
        waiting.extend(early._started.values())
        raise ValueError("bad config")

    with pytest.raises(ValueError, match="bad config"), early.early("null", 1):
        read_a_config()
    assert not early._started
    with pytest.raises(ProcessLookupError):
        os.kill(waiting[0]._process.pid, 0)
