"""Chrome traces: ranges by the host's clock, where a framework tells no more, and names for people."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec


class HostTrace:
    """A trace that is written when it ends, to be opened in Perfetto like any other."""

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
    """Replace the plain words in a trace by names for people; the words are kept beside them."""
    trace = msgspec.json.decode(path.read_bytes())
    for event in trace["traceEvents"]:
        name = event.get("name")
        if name in labels:
            event["name"] = labels[name]
            event["args"] = {**event.get("args", {}), "range": name}
    path.write_bytes(msgspec.json.encode(trace))
