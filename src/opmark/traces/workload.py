"""Makes a workload of a trace: every distinct call once, with how often and how long it ran.

Operators of the catalogue are recognised by a process that has torch; other operators are callables of torch.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from opmark.models.calls import (
    KnownCall,
    OverloadQuestion,
    TorchCall,
    entry_of_call,
    find_overloads,
    recognise_calls,
)
from opmark.schema import Entry, Imported, ImportProblem
from opmark.schema.tensor import DTYPES, sizeof
from opmark.traces.calls import UnwritableArgument, argument_kind, torch_call
from opmark.traces.trace import ProgramTrace, TensorRef, TraceCollective, TraceNode, Value, tensors_of, why_no_operator
from opmark.units import count_noun
from opmark.units import seconds as format_seconds

_WHOLE = frozenset({"all_reduce", "reduce_scatter", "all_to_all", "broadcast", "reduce", "scatter"})
"""Collectives whose size is that of the input; that of the others is that of the output."""
_KNOWN_COLLECTIVES = _WHOLE | {"all_gather", "gather", "barrier"}


class _CallGroup(Struct):
    """Calls of the same operator with the same arguments."""

    node: TraceNode
    inputs: list[Value]
    schema: str
    count: int = 0
    seconds: float = 0.0
    timed: int = 0
    call: TorchCall | None = None
    known: KnownCall | None = None
    entry: Entry | None = None
    """The entry of a collective; other calls have theirs in `call` and `known`."""
    problem: str = ""


def workload_of_trace(trace: ProgramTrace) -> Imported:
    """Return the distinct calls of a program as entries of a workload; calls that cannot be expressed are problems."""
    groups = _group_calls(trace)
    _find_schemas([group for group in groups if group.node.kind == "operator" and not group.node.schema])
    for group in groups:
        _write(group, trace)
    written = [group for group in groups if group.call is not None]
    for group, known in zip(written, recognise_calls([group.call for group in written if group.call]), strict=True):
        group.known, group.problem = known, known.problem
    entries: list[Entry] = []
    problems = list(trace.problems)
    views = 0
    for group in groups:
        node = group.node
        duration = group.seconds / group.timed if group.timed and group.seconds > 0 else None
        source = f"{Path(trace.source).name}#{node.id} {node.name}"
        if group.problem:
            said = [f"{group.count} calls"] if group.count > 1 else []
            said += [f"{format_seconds(group.seconds)} recorded"] if group.seconds else []
            often = f" ({', '.join(said)})" if said else ""
            problems.append(ImportProblem(f"{trace.source}: node {node.id} ({node.name})", f"{group.problem}{often}"))
        elif group.entry is not None:
            entries.append(replace(group.entry, count=group.count, duration=duration, source=source))
        elif group.call is not None and group.known is not None:
            if group.known.no_data:
                views += group.count
            else:
                entries.append(entry_of_call(group.call, group.known, group.count, duration=duration, source=source))
    notes = list(trace.notes)
    uneven = sum(group.count for group in groups if group.entry and _is_uneven(group.node.collective))
    if uneven:
        many = count_noun(uneven, "collective")
        notes.append(f"{many} sent parts of different sizes; here the parts are equal, with the same sum")
    dense = sum(
        group.count
        for group in written
        if any(ref.strides is None and len(ref.shape) > 1 for ref in tensors_of(group.inputs))
    )
    if dense:
        notes.append(
            f"tensors of {count_noun(dense, 'call')} have no strides in the file, and are taken for contiguous"
        )
    if views:
        notes.append(f"{count_noun(views, 'call')} that only make views or tensors without values are left out")
    hosted = sum(group.count - group.timed for group in groups) if any(node.device_time for node in trace.calls) else 0
    if hosted:
        notes.append(f"{count_noun(hosted, 'call')} launched nothing on the device, and their durations are not kept")
    if find_spec("torch") is None:
        notes.append("torch is not installed: operators are callables, and none is recognised as one of the catalogue")
    return Imported(tuple(_join(entries)), problems=tuple(problems), notes=tuple(notes))


def _find_schemas(groups: list[_CallGroup]) -> None:
    """Find the overloads of calls that were recorded without one."""
    if find_spec("torch") is None:
        for group in groups:
            group.problem = "the file has no schema of this operator, and torch, which knows it, is not installed"
        return
    asked = [OverloadQuestion(group.node.name, [argument_kind(value) for value in group.inputs]) for group in groups]
    for group, schema in zip(groups, find_overloads(asked), strict=True):
        group.schema = schema
        if not schema:
            group.problem = f"this torch has no operator {group.node.name} that takes the arguments that were recorded"


def _write(group: _CallGroup, trace: ProgramTrace) -> None:
    """Write a call in the words of workloads, or say why it cannot be."""
    node = group.node
    if group.problem:
        return
    try:
        if node.collective is not None:
            group.entry = _collective_entry(node.collective, trace)
        elif node.kind == "kernel":
            raise UnwritableArgument(why_no_operator(node))
        else:
            group.call = torch_call(group.schema, group.inputs)
    except UnwritableArgument as error:
        group.problem = str(error)


def _group_calls(trace: ProgramTrace) -> list[_CallGroup]:
    found: dict[Any, _CallGroup] = {}
    on_device = any(node.device_time for node in trace.calls)
    for node in trace.calls:
        key = (node.name, node.schema, node.collective, _content(node.inputs))
        group = found.get(key)
        if group is None:
            group = found[key] = _CallGroup(node, list(node.inputs), node.schema)
        else:
            group.inputs = [_wider(*pair) for pair in zip(group.inputs, node.inputs, strict=True)]
        group.count += 1
        seconds = node.device_time if on_device else node.duration
        if seconds is not None:
            group.seconds += seconds
            group.timed += 1
    return list(found.values())


def _content(value: Value) -> Any:
    """Return what decides whether two arguments are the same: not which tensor it is, nor which values it holds."""
    if isinstance(value, list):
        return tuple(_content(one) for one in value)
    if isinstance(value, TensorRef):
        return value.shape, value.dtype, value.strides
    return type(value), repr(value)  # a NaN is not equal to itself


def _wider(one: Value, other: Value) -> Value:
    """Return a value with the bounds of two recorded ones; none if one of them has none."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_wider(*pair) for pair in zip(one, other, strict=True)]
    if not isinstance(one, TensorRef) or not isinstance(other, TensorRef) or one.low is None or one.high is None:
        return one
    if other.low is None or other.high is None:
        return replace(one, low=None, high=None)
    return replace(one, low=min(one.low, other.low), high=max(one.high, other.high))


def _collective_entry(collective: TraceCollective, trace: ProgramTrace) -> Entry:
    """Return a collective as an operator of the catalogue."""
    if collective.name in ("send", "recv"):
        return _message_entry(collective)
    if collective.name not in _KNOWN_COLLECTIVES:
        raise UnwritableArgument(f"a {collective.name} is no operator of the catalogue")
    group = trace.groups.get(collective.group)
    ranks = collective.group_size or (group.size if group else None) or trace.world_size
    if not ranks:
        raise UnwritableArgument("the size of its process group is not in the file")
    if collective.name == "barrier":
        return Entry("barrier", {"ranks": ranks})
    elements = collective.in_elements if collective.name in _WHOLE else collective.out_elements
    if collective.name == "all_gather" and collective.in_elements:
        elements = collective.in_elements * ranks
    if collective.dtype not in DTYPES or not elements:
        raise UnwritableArgument(f"{elements} elements of type {collective.dtype or 'unknown'} are nothing to send")
    params: dict[str, Any] = {"size": elements * sizeof(collective.dtype), "dtype": collective.dtype, "ranks": ranks}
    return Entry(collective.name, params)


def _message_entry(collective: TraceCollective) -> Entry:
    """Return a message between two ranks as an operator of the catalogue."""
    elements = collective.in_elements or collective.out_elements
    if collective.dtype not in DTYPES or not elements:
        raise UnwritableArgument(f"{elements} elements of type {collective.dtype or 'unknown'} are nothing to send")
    size = elements * sizeof(collective.dtype)
    return Entry("p2p", {"size": size, "dtype": collective.dtype, "ranks": 2})


def _is_uneven(collective: TraceCollective | None) -> bool:
    return collective is not None and any(len(set(one)) > 1 for one in (collective.in_splits, collective.out_splits))


def _join(entries: list[Entry]) -> list[Entry]:
    """Join entries that became the same: calls that differ only in what does not matter to the catalogue."""
    found: dict[bytes, Entry] = {}
    for entry in entries:
        key = msgspec.json.encode(replace(entry, count=1, duration=None, source=""))
        known = found.get(key)
        if known is None:
            found[key] = entry
            continue
        count = known.count + entry.count
        duration = None
        if known.duration is not None and entry.duration is not None:
            duration = (known.duration * known.count + entry.duration * entry.count) / count
        found[key] = replace(known, count=count, duration=duration)
    return list(found.values())
