"""The program that a profiler runs: tasks, each in a range of its own. It measures nothing.

`python -m opmark.runner.batch TASKS.json [--warmup 5] [--iterations 1] [--trace FILE] [--done FILE] [--parent PID]`
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from opmark.errors import TaskError
from opmark.interfaces import Backend, BackendInfo
from opmark.registry import backend as find_backend
from opmark.registry import implementations
from opmark.registry import operator as find_operator
from opmark.runner.execute import reason_of
from opmark.runner.host_trace import HostTrace, name_ranges
from opmark.runner.leash import die_with
from opmark.runner.prepare import Prepared, prepare, refuse_if_too_large
from opmark.schema import Task


class Item(msgspec.Struct, frozen=True):
    range: str
    """A plain word: what profilers filter by."""
    label: str
    """For people."""
    task: Task


class Batch(msgspec.Struct, frozen=True):
    """Tasks of one backend and one number of threads."""

    backend: str
    threads: int
    items: tuple[Item, ...]


class Done(msgspec.Struct, frozen=True):
    """A line of the file that says what became of the items, in their order."""

    range: str
    reason: str = ""
    """Why it could not be run; nothing if it was."""


class Program:
    def __init__(self, info: BackendInfo, backend: Backend, warmup: int, iterations: int) -> None:
        self._info = info
        self._backend = backend
        self._warmup = warmup
        self._iterations = iterations
        self._host: HostTrace | None = None

    def traced(self, path: Path) -> AbstractContextManager[Any]:
        """What the framework tells of its work, or else the ranges by the host's clock."""
        makes = getattr(self._backend, "traced", None)  # a backend of a stranger may be older than this socket
        own: AbstractContextManager[Any] | None = makes(path) if makes else None
        if own is not None:
            return own
        self._host = HostTrace(path)
        return self._host

    def run(self, item: Item) -> Done:
        """One item; whatever a framework raises ends here, as a reason."""
        try:
            self._launch_in_range(item)
        except TaskError as error:
            return Done(item.range, error.message)
        except Exception as error:  # noqa: BLE001 - frameworks raise anything; the other items are to go on
            return Done(item.range, reason_of(error))
        return Done(item.range)

    def usable(self) -> bool:
        return self._backend.usable()

    def _launch_in_range(self, item: Item) -> None:
        launch = self._prepared(item.task).launch
        for _ in range(self._warmup):
            launch()
        self._backend.synchronize()
        with self._annotated(item.range):
            for _ in range(self._iterations):
                with self._host.span(item.task.implementation, "cpu_op") if self._host else nullcontext():
                    launch()
            self._backend.synchronize()

    def _annotated(self, name: str) -> AbstractContextManager[Any]:
        if self._host:
            return self._host.span(name, "user_annotation")
        marks = getattr(self._backend, "annotated", None)
        opened: AbstractContextManager[Any] = marks(name) if marks else nullcontext()
        return opened

    def _prepared(self, task: Task) -> Prepared:
        """As the worker prepares what it measures."""
        operator, params = find_operator(task.case.op), task.case.params
        (implementation,) = (i for i in implementations(operator, self._info) if i.label == task.implementation)
        refuse_if_too_large(params, operator, self._backend)
        return prepare(params, task, operator, implementation, self._backend)


def run(batch: Batch, done: Path, warmup: int, iterations: int, trace: Path | None = None) -> int:
    """How many items failed. Each is written down as soon as it is done, in case the next one ends the process."""
    info = find_backend(batch.backend)
    backend = info.load(batch.threads)
    gone = backend.why_unavailable()
    program, failed = Program(info, backend, warmup, iterations), 0
    with done.open("wb", buffering=0) as lines, program.traced(trace) if trace and not gone else nullcontext():
        for item in batch.items:
            found = Done(item.range, gone) if gone else program.run(item)
            lines.write(msgspec.json.encode(found) + b"\n")
            if found.reason:
                failed += 1
                print(f"{item.label}: {found.reason}", file=sys.stderr, flush=True)
                gone = gone or (None if program.usable() else f"the process was of no use after {item.label}")
    if trace and trace.exists():
        name_ranges(trace, {item.range: item.label for item in batch.items})
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m opmark.runner.batch", description=__doc__)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--done", type=Path, help="what became of each task [default: beside TASKS.json]")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--parent", type=int, help="the process to die with")
    asked = parser.parse_args(arguments)
    if asked.parent:
        die_with(asked.parent)
    batch = msgspec.json.decode(asked.tasks.read_bytes(), type=Batch)
    done = asked.done or asked.tasks.with_suffix(".done")
    return 1 if run(batch, done, asked.warmup, asked.iterations, asked.trace) else 0


if __name__ == "__main__":
    sys.exit(main())
