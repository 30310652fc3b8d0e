"""The framework's own profiler: no external program, a Chrome trace for Perfetto, also on a CPU."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opmark.plugin import Watched
from opmark.schema import KernelMetrics

_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = ("_runtime", "_driver")

Event = Mapping[str, Any]


class ChromeTrace:
    name = "trace"
    summary = "the framework's own profiler: a Chrome trace that opens in Perfetto"

    def command(self, watched: Watched) -> Sequence[str]:
        return [*watched.program, "--trace", str(self.file(watched.stem)), *watched.args]

    def file(self, stem: Path) -> Path:
        return stem.with_name(f"{stem.name}.json")

    def read(self, stem: Path, ranges: Sequence[str]) -> Mapping[str, Sequence[KernelMetrics]]:
        path = self.file(stem)
        try:
            events = [e for e in msgspec.json.decode(path.read_bytes())["traceEvents"] if e.get("ph") == "X"]
        except (OSError, KeyError, TypeError, msgspec.DecodeError) as error:
            raise ValueError(f"expected a Chrome trace in {path}: {type(error).__name__}: {error}") from None
        spans = Spans(events, frozenset(ranges))
        found: dict[str, list[KernelMetrics]] = {}
        for start, event in _activities(events):
            inside = spans.at(start)
            if inside:
                found.setdefault(inside, []).append(KernelMetrics(event["name"], {"duration [us]": event["dur"]}))
        return found


class Spans:
    """The ranges of a trace by time; they do not overlap."""

    def __init__(self, events: Iterable[Event], ranges: frozenset[str]) -> None:
        named = (e for e in events if e.get("cat") == "user_annotation" and _range(e) in ranges)
        self._spans = sorted((e["ts"], e["ts"] + e["dur"], _range(e)) for e in named)
        self._starts = [start for start, _, _ in self._spans]

    def at(self, moment: float) -> str:
        """The range that was open then, or nothing."""
        place = bisect_right(self._starts, moment) - 1
        if place < 0 or moment > self._spans[place][1]:
            return ""
        return self._spans[place][2]


def _range(event: Event) -> str:
    return str((event.get("args") or {}).get("range", ""))


def _activities(events: Sequence[Event]) -> list[tuple[float, Event]]:
    """Activities of a device with the time of their launch; where no device did anything, the outermost calls."""
    on_device = sorted((e for e in events if e.get("cat") in _ON_DEVICE), key=_start)
    if not on_device:
        return [(_start(event), event) for event in _outermost(e for e in events if e.get("cat") == "cpu_op")]
    launched = {
        _correlation_id(e): _start(e) for e in events if str(e.get("cat")).endswith(_LAUNCHES) and _correlation_id(e)
    }
    return [(launched.get(_correlation_id(event), _start(event)), event) for event in on_device]


def _outermost(events: Iterable[Event]) -> list[Event]:
    found: list[Event] = []
    ends: dict[Any, float] = {}
    for event in sorted(events, key=lambda e: (_start(e), -e["dur"])):
        if _start(event) >= ends.get(event.get("tid"), float("-inf")):
            found.append(event)
            ends[event.get("tid")] = _start(event) + event["dur"]
    return found


def _start(event: Event) -> float:
    return float(event["ts"])


def _correlation_id(event: Event) -> Any:
    return (event.get("args") or {}).get("correlation")


TRACE = ChromeTrace()
