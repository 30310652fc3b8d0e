"""Chooses the part of a trace that is replayed: a step, what a label contains, computation or communication."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from opmark.errors import UserError
from opmark.traces.trace import ProgramTrace, TraceNode
from opmark.units import count_noun

Only = Literal["all", "compute", "comms"]
_STEP = re.compile(r"ProfilerStep#?(\d+)")
_ENGINE_MARKS = ("gloo:", "nccl:", "ucc:", "mpi:", "xccl:")
"""Begin the names of what an engine of communication writes beside the call of the framework."""
_ENGINE = "autograd::engine::"
"""Begins labels that are around those that say the same."""
_MOST_NAMES = 12
_SIZES = re.compile(r"(\d+)=(\d+)")


class ReplayPart(Struct, frozen=True):
    """What is replayed of a trace; the fields are parameters of the case."""

    step: str = "last"
    """`last`: the last complete step; `all`; or the number of a step."""
    subgraph: str = ""
    """Label, as of a module or of record_function, whose calls are replayed."""
    only: Only = "all"
    skip: str = ""
    """Patterns of names that are left out, separated by commas."""


def parse_sizes(text: str) -> dict[int, int]:
    """Return new sizes by recorded size for `32=64` or `32=64,128=256`; UserError for anything else."""
    found = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        pair = _SIZES.fullmatch(part)
        if pair is None or int(pair[1]) < 2 or int(pair[2]) < 1:
            raise UserError(
                f"--scale: expected OLD=NEW with a recorded size of at least 2, got `{part}`",
                "as in --scale 32=64: every dimension of 32 becomes one of 64",
            )
        found[int(pair[1])] = int(pair[2])
    return found


class OmittedCall(Struct, frozen=True):
    """A call that is not replayed, and why."""

    node: TraceNode
    reason: str
    chosen: bool = False
    """Whether the request left it out, so that it is no gap."""


def is_communication(node: TraceNode) -> bool:
    return node.kind == "collective" or node.name.startswith(("c10d::", "_c10d_functional::", "record_param_comms"))


def choose_calls(trace: ProgramTrace, part: ReplayPart) -> tuple[list[TraceNode], list[OmittedCall]]:
    """Return the calls of a part, and those of its step that the request leaves out."""
    within = _step_range(trace, part.step)
    place = {node.id: i for i, node in enumerate(trace.nodes)}
    calls = [
        node for node in trace.calls if place[node.id] in within and not node.name.startswith(_ENGINE_MARKS)
    ]  # fmt: skip
    left_out: list[OmittedCall] = []
    if part.subgraph:
        labels = _find_labels(trace, part.subgraph, [trace.nodes[i] for i in within])
        calls = [node for node in calls if any(one.id in labels for one in trace.ancestors(node))]
    patterns = [one.strip() for one in part.skip.split(",") if one.strip()]
    kept = []
    for node in calls:
        reason = ""
        if part.only != "all" and is_communication(node) != (part.only == "comms"):
            reason = f"--only {part.only}"
        elif pattern := next((one for one in patterns if fnmatchcase(node.name, one)), ""):
            reason = f"--skip {pattern}"
        if reason:
            left_out.append(OmittedCall(node, reason, chosen=True))
        else:
            kept.append(node)
    if not kept:
        raise UserError(
            f"{trace.source}: nothing is left to replay: {_describe_part(part)} of {count_noun(len(calls), 'call')}",
            "leave out --only, --skip, --subgraph or --step",
        )
    return kept, left_out


def _step_range(trace: ProgramTrace, step: str) -> range:
    """Return the places of the nodes of a step: from its mark to the next one. Threads have no common parent, so that
    the order decides."""
    marks = [(i, int(found[1])) for i, node in enumerate(trace.nodes) if (found := _STEP.fullmatch(node.name))]
    whole = range(len(trace.nodes))
    if step == "all" or (step == "last" and not marks):
        return whole
    ends = [*(place for place, _ in marks[1:]), len(trace.nodes)]
    ranges = {number: range(place, end) for (place, number), end in zip(marks, ends, strict=False)}
    if step != "last":
        if not step.isdecimal() or int(step) not in ranges:
            listed = ", ".join(map(str, ranges)) or "no steps"
            raise UserError(
                f"{trace.source}: there is no step `{step}`; it has {listed}", "--step last, --step all, or a number"
            )
        return ranges[int(step)]
    calls = {node.id for node in trace.calls}
    counts = {number: sum(trace.nodes[i].id in calls for i in places) for number, places in ranges.items()}
    filled = [number for number, count in counts.items() if count]
    if not filled:
        return whole
    last = filled[-1]
    # A profiler that stops within a step leaves a part of it behind.
    if len(filled) > 1 and counts[last] < counts[filled[-2]] and ranges[last].stop == len(trace.nodes):
        last = filled[-2]
    return ranges[last]


def _find_labels(trace: ProgramTrace, wanted: str, nodes: list[TraceNode]) -> set[int]:
    """Return the ids of the nodes with a label: its exact name, or the only one that contains the text."""
    labels = [node for node in nodes if node.kind == "label" and not node.name.startswith("[")]
    names = list(dict.fromkeys(node.name for node in labels))
    if wanted not in names:
        similar = [name for name in names if wanted in name]
        if len(similar) != 1:
            candidates = [name for name in similar or names if not name.startswith(_ENGINE)] or similar or names
            listed = ", ".join(candidates[:_MOST_NAMES]) + (", ..." if len(candidates) > _MOST_NAMES else "")
            what = "several labels contain" if similar else "no label is or contains"
            raise UserError(f"{trace.source}: {what} `{wanted}`", f"labels: {listed}" if listed else "it has no labels")
        wanted = similar[0]
    return {node.id for node in labels if node.name == wanted}


def _describe_part(part: ReplayPart) -> str:
    said = [f"step {part.step}"]
    said += [f"subgraph `{part.subgraph}`"] if part.subgraph else []
    said += [f"only {part.only}"] if part.only != "all" else []
    said += [f"without {part.skip}"] if part.skip else []
    return ", ".join(said)
