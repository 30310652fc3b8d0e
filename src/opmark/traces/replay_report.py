"""Adds up what a replay covers, and writes recorded and replayed calls side by side."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from opmark.schema.replay import OperatorTimes, ReplayedCall, ReplayGap, ReplayReport
from opmark.traces.replay_part import OmittedCall
from opmark.traces.trace import ProgramTrace, TraceNode


def recorded_time(node: TraceNode) -> float | None:
    """Return the time of a call: of its kernels where it ran on a device, else on the host."""
    return node.device_time if node.device_time else node.duration


def make_report(
    trace: ProgramTrace,
    calls: Sequence[ReplayedCall],
    left_out: Sequence[OmittedCall],
    notes: list[str],
    differences: list[str],
    compared: int,
    made_bytes: int,
    timed: bool,
) -> ReplayReport:
    """Add up the calls of a replay. Views that the replay makes itself were not recorded, and are not counted."""
    recorded_calls = [call for call in calls if call.recorded_start is not None or call.recorded is not None]
    own = recorded_calls if recorded_calls else list(calls)
    lost = [one for one in left_out if not one.chosen]
    known = [call.recorded for call in own if call.recorded is not None]
    missing = [recorded for one in lost if (recorded := recorded_time(one.node)) is not None]
    whole = sum(known) + sum(missing)
    by_name: dict[str, list[ReplayedCall]] = defaultdict(list)
    for call in calls:
        by_name[call.name].append(call)
    operators = [_operator_times(name, found, timed) for name, found in by_name.items()]
    operators.sort(key=lambda one: -(one.recorded or one.replayed or 0.0))
    return ReplayReport(
        source=trace.source,
        backend="",
        rank=trace.rank,
        calls=len(own) + len(lost),
        replayed=len(own),
        share=sum(known) / whole if whole else None,
        recorded_time=sum(known) if known else None,
        replayed_time=sum(call.replayed for call in calls) if timed else None,
        gaps=_by_reason(lost),
        chosen=_by_reason([one for one in left_out if one.chosen]),
        notes=notes,
        compared=compared,
        differences=differences,
        made_bytes=made_bytes,
        operators=operators,
        timeline=list(calls) if timed else [],
    )


def _operator_times(name: str, calls: Sequence[ReplayedCall], timed: bool) -> OperatorTimes:
    known = [call.recorded for call in calls if call.recorded is not None]
    recorded = sum(known) if known else None
    replayed = sum(call.replayed for call in calls) if timed else None
    ratio = replayed / recorded if recorded and replayed is not None else None
    return OperatorTimes(name, len(calls), recorded, replayed, ratio)


def _by_reason(left_out: Sequence[OmittedCall]) -> list[ReplayGap]:
    grouped: dict[str, list[OmittedCall]] = defaultdict(list)
    for one in left_out:
        grouped[one.reason].append(one)
    found = []
    for reason, calls in grouped.items():
        operators: dict[str, int] = defaultdict(int)
        for one in calls:
            operators[one.node.name] += 1
        times = [recorded for one in calls if (recorded := recorded_time(one.node)) is not None]
        found.append(ReplayGap(reason, len(calls), sum(times) if times else None, dict(operators)))
    return sorted(found, key=lambda gap: -gap.calls)


def chrome_trace(reports: Sequence[ReplayReport]) -> str:
    """Return a Chrome trace, which Perfetto opens, with the recorded and the replayed calls of each report as two
    processes that begin at the same time."""
    events: list[dict[str, Any]] = []
    for number, report in enumerate(reports):
        who = f"rank {report.rank}, " if report.rank is not None and len(reports) > 1 else ""
        for side, process in (("recorded", 2 * number + 1), ("replayed", 2 * number + 2)):
            title = f"{who}{side}" + (f" on {report.backend}" if side == "replayed" and report.backend else "")
            events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": title}})
            sorting = {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0}
            events.append({**sorting, "args": {"sort_index": process}})
        starts = [call.recorded_start for call in report.timeline if call.recorded_start is not None]
        first, began = min(starts, default=0.0), min((call.start for call in report.timeline), default=0.0)
        after = 0.0
        for call in report.timeline:
            if call.recorded is not None:  # without a clock in the trace, one call follows the other
                start = call.recorded_start - first if call.recorded_start is not None else after
                after = start + call.recorded
                events.append(_event(call.name, 2 * number + 1, call.thread, start, call.recorded))
            events.append(_event(call.name, 2 * number + 2, 0, call.start - began, call.replayed))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _event(name: str, process: int, thread: int, start: float, seconds: float) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": process, "tid": thread,
        "ts": start * 1e6, "dur": seconds * 1e6,
    }  # fmt: skip
