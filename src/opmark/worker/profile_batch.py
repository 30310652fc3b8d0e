"""The program that a profiler runs: tasks, each in a range of its own. It measures nothing.

`python -m opmark.worker.profile_batch TASKS.json [--warmup 5] [--iterations 1] [--trace FILE [--et]]
[--done FILE] [--parent PID]`
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from opmark.errors import TaskError
from opmark.plugin import Backend, BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Task
from opmark.schema.messages import ProfileBatch, ProfileTask, ProfileTaskResult, execution_trace_beside
from opmark.worker.preparation import PreparedLaunch, prepare, refuse_if_too_large
from opmark.worker.process_setup import die_with
from opmark.worker.task_runner import find_implementation, reason_of


class HostTrace:
    """A Chrome trace by the host's clock, for frameworks without a profiler. It is written when it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> HostTrace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._path.write_bytes(msgspec.json.encode({"traceEvents": self._events}))

    @contextmanager
    def span(self, name: str, category: str) -> Iterator[None]:
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            end = time.perf_counter_ns()
            where = {"pid": os.getpid(), "tid": os.getpid()}
            times = {"ts": start / 1000, "dur": (end - start) / 1000}
            self._events.append({"ph": "X", "cat": category, "name": name, **where, **times})


def name_ranges(path: Path, labels: Mapping[str, str]) -> None:
    """Replace the names of ranges in a trace by readable labels; the original names stay as arguments."""
    trace = msgspec.json.decode(path.read_bytes())
    for event in trace["traceEvents"]:
        name = event.get("name")
        if name in labels:
            event["name"] = labels[name]
            event["args"] = {**event.get("args", {}), "range": name}
    path.write_bytes(msgspec.json.encode(trace))


class ProfileProgram:
    def __init__(self, info: BackendInfo, backend: Backend, warmup: int, iterations: int) -> None:
        self._info = info
        self._backend = backend
        self._warmup = warmup
        self._iterations = iterations
        self._host: HostTrace | None = None

    def traced(self, path: Path) -> AbstractContextManager[Any]:
        """A trace of what the framework tells of its work, or else of the ranges by the host's clock."""
        makes = getattr(self._backend, "traced", None)  # a backend of a stranger may be older than this socket
        own: AbstractContextManager[Any] | None = makes(path) if makes else None
        if own is not None:
            return own
        self._host = HostTrace(path)
        return self._host

    def execution_traced(self, path: Path) -> AbstractContextManager[Any]:
        """An execution trace, if the framework writes such; else a message."""
        makes = getattr(self._backend, "execution_traced", None)
        if makes is None:
            print(f"{self._info.name} writes no execution traces", file=sys.stderr, flush=True)
            return nullcontext()
        own: AbstractContextManager[Any] = makes(path)
        return own

    def run(self, item: ProfileTask) -> ProfileTaskResult:
        """Run one item. Whatever a framework raises ends here, as a reason."""
        try:
            self._launch_in_range(item)
        except TaskError as error:
            return ProfileTaskResult(item.range, error.message)
        except Exception as error:  # noqa: BLE001 - frameworks raise anything; the other items are to go on
            return ProfileTaskResult(item.range, reason_of(error))
        return ProfileTaskResult(item.range)

    def usable(self) -> bool:
        return self._backend.usable()

    def _launch_in_range(self, item: ProfileTask) -> None:
        launch = self._prepare(item.task).launch
        for _ in range(self._warmup):
            launch()
        self._backend.synchronize()
        with self._annotate(item.range):
            for _ in range(self._iterations):
                with self._host.span(item.task.implementation, "cpu_op") if self._host else nullcontext():
                    launch()
            self._backend.synchronize()

    def _annotate(self, name: str) -> AbstractContextManager[Any]:
        if self._host:
            return self._host.span(name, "user_annotation")
        marks = getattr(self._backend, "annotated", None)
        opened: AbstractContextManager[Any] = marks(name) if marks else nullcontext()
        return opened

    def _prepare(self, task: Task) -> PreparedLaunch:
        """The launch as the worker prepares it for measuring."""
        operator, params = find_operator(task.case.op), task.case.params
        implementation = find_implementation(task, operator, self._info)
        refuse_if_too_large(params, operator, self._backend)
        return prepare(params, task, operator, implementation, self._backend)


def run(
    batch: ProfileBatch,
    done: Path,
    warmup: int,
    iterations: int,
    trace: Path | None = None,
    execution: Path | None = None,
) -> int:
    """Run all items and return how many failed. Each result is written as soon as it is known, in case the next item
    ends the process."""
    info = find_backend(batch.backend)
    backend = info.load(batch.threads)
    unavailable = backend.why_unavailable()
    program, failed = ProfileProgram(info, backend, warmup, iterations), 0
    with ExitStack() as open_files:
        lines = open_files.enter_context(done.open("wb", buffering=0))
        if trace and not unavailable:
            open_files.enter_context(program.traced(trace))
        if execution and not unavailable:
            open_files.enter_context(program.execution_traced(execution))
        for item in batch.items:
            found = ProfileTaskResult(item.range, unavailable) if unavailable else program.run(item)
            lines.write(msgspec.json.encode(found) + b"\n")
            if found.reason:
                failed += 1
                print(f"{item.label}: {found.reason}", file=sys.stderr, flush=True)
                unavailable = unavailable or (
                    None if program.usable() else f"the process was of no use after {item.label}"
                )
    if trace and trace.exists():
        name_ranges(trace, {item.range: item.label for item in batch.items})
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m opmark.worker.profile_batch", description=__doc__)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--done", type=Path, help="what became of each task [default: beside TASKS.json]")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--et", action="store_true", help="write PyTorch's execution trace beside the trace")
    parser.add_argument("--parent", type=int, help="the process to die with")
    options = parser.parse_args(arguments)
    if options.parent:
        die_with(options.parent)
    batch = msgspec.json.decode(options.tasks.read_bytes(), type=ProfileBatch)
    done = options.done or options.tasks.with_suffix(".done")
    execution = execution_trace_beside(options.trace) if options.et and options.trace else None
    return 1 if run(batch, done, options.warmup, options.iterations, options.trace, execution) else 0


if __name__ == "__main__":
    sys.exit(main())
