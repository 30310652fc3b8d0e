"""Makes a workload of a trace: every distinct call once, with how often and how long it ran.

Operators of the catalogue are recognised by a process that has torch; other operators are callables of torch.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from opmark.errors import Unsupported
from opmark.schema import Entry, Imported, ImportProblem, TensorSpec
from opmark.schema.arguments import canonical
from opmark.schema.tensor import DTYPES, sizeof
from opmark.traces.calls import NotExpressible, pack_value, parse_schema, unpack_value, write_call
from opmark.traces.trace import ProgramTrace, TensorRef, TraceCollective, TraceNode, Value
from opmark.units import count_noun

_TIMEOUT = 1800
_WHOLE = frozenset({"all_reduce", "reduce_scatter", "all_to_all", "broadcast", "reduce", "scatter"})
"""Collectives whose size is that of the input; that of the others is that of the output."""
_KNOWN_COLLECTIVES = _WHOLE | {"all_gather", "gather", "barrier"}


class RecordedCall(Struct, frozen=True):
    """A call for the process that has torch."""

    name: str
    schema: str
    inputs: list[Any]
    """Packed values."""


class ResolvedCall(Struct, frozen=True):
    entry: Entry | None = None
    problem: str = ""
    no_data: bool = False
    """Whether the call only makes a view or a tensor without values."""


class _CallGroup(Struct):
    """Calls of the same operator with the same arguments."""

    node: TraceNode
    inputs: list[Value]
    count: int = 0
    seconds: float = 0.0
    timed: int = 0


def workload_of_trace(trace: ProgramTrace) -> Imported:
    """Return the distinct calls of a program as entries of a workload; calls that cannot be expressed are problems."""
    groups = _group_calls(trace)
    if find_spec("torch") is not None:
        resolved = _ask_torch([_recorded(group) for group in groups if group.node.kind == "operator"])
        notes = []
    else:
        resolved = [_without_torch(group) for group in groups if group.node.kind == "operator"]
        notes = ["torch is not installed: every operator is a callable, and none is recognised as one of the catalogue"]
    answers = iter(resolved)
    entries: list[Entry] = []
    problems = list(trace.problems)
    views = 0
    for group in groups:
        node = group.node
        if node.collective is not None:
            found = _collective_entry(node.collective, trace)
        elif node.kind == "kernel":
            found = ResolvedCall(problem="a kernel that a compiler made is no operator that a workload can name")
        else:
            found = next(answers)
        if found.no_data:
            views += group.count
        elif found.entry is None:
            often = f" ({group.count} calls)" if group.count > 1 else ""
            problems.append(ImportProblem(f"{trace.source}: node {node.id} ({node.name})", f"{found.problem}{often}"))
        else:
            duration = group.seconds / group.timed if group.timed and group.seconds > 0 else None
            source = f"{Path(trace.source).name}#{node.id} {node.name}"
            entries.append(replace(found.entry, count=group.count, duration=duration, source=source))
    if views:
        notes.append(f"{count_noun(views, 'call')} that only make views or tensors without values are left out")
    return Imported(tuple(_join(entries)), problems=tuple(problems), notes=(*trace.notes, *notes))


def _group_calls(trace: ProgramTrace) -> list[_CallGroup]:
    found: dict[bytes, _CallGroup] = {}
    on_device = any(node.device_time for node in trace.calls)
    for node in trace.calls:
        packed = [pack_value(_without_bounds(value)) for value in node.inputs]
        key = msgspec.json.encode([node.name, node.schema, node.collective, packed])
        group = found.get(key)
        if group is None:
            group = found[key] = _CallGroup(node, list(node.inputs))
        else:
            group.inputs = [_wider(*pair) for pair in zip(group.inputs, node.inputs, strict=True)]
        group.count += 1
        seconds = node.device_time if on_device and node.device_time else node.duration
        if seconds is not None:
            group.seconds += seconds
            group.timed += 1
    return list(found.values())


def _without_bounds(value: Value) -> Value:
    if isinstance(value, list):
        return [_without_bounds(one) for one in value]
    if isinstance(value, TensorRef) and (value.low is not None or value.high is not None):
        return replace(value, low=None, high=None)
    return value


def _wider(one: Value, other: Value) -> Value:
    """Return a value with the bounds of two recorded ones; none if one of them has none."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_wider(*pair) for pair in zip(one, other, strict=True)]
    if not isinstance(one, TensorRef) or not isinstance(other, TensorRef) or one.low is None or one.high is None:
        return one
    if other.low is None or other.high is None:
        return replace(one, low=None, high=None)
    return replace(one, low=min(one.low, other.low), high=max(one.high, other.high))


def _recorded(group: _CallGroup) -> RecordedCall:
    return RecordedCall(group.node.name, group.node.schema, [pack_value(value) for value in group.inputs])


def _ask_torch(calls: list[RecordedCall]) -> list[ResolvedCall]:
    """Let a process that may import torch resolve calls."""
    if not calls:
        return []
    command = [sys.executable, "-m", "opmark.traces.resolution"]
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(calls), capture_output=True, timeout=_TIMEOUT, check=False
        )
        return msgspec.json.decode((done.stdout.splitlines() or [b""])[-1], type=list[ResolvedCall])
    except subprocess.TimeoutExpired:
        raise Unsupported(f"torch did not resolve {len(calls)} calls of a trace within {_TIMEOUT} s") from None
    except msgspec.DecodeError:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise Unsupported(f"the process that resolves the calls of a trace failed: {last}") from None


def _without_torch(group: _CallGroup) -> ResolvedCall:
    """Return a callable for a call whose schema the file has."""
    schema = parse_schema(group.node.schema)
    if schema is None:
        return ResolvedCall(
            problem="the file has no schema of this operator, and torch, which knows it, is not installed"
        )
    try:
        written = write_call(schema, [unpack_value(pack_value(value)) for value in group.inputs])
    except NotExpressible as error:
        return ResolvedCall(problem=str(error))
    args = [write_node(one) for one in written.args]
    kwargs = {name: write_node(one) for name, one in written.kwargs.items()}
    return ResolvedCall(Entry(schema.path, args=args, kwargs=kwargs or None))


def write_node(value: Any) -> Any:
    """Return an argument as a workload writes it."""
    if isinstance(value, TensorSpec):
        spec = {"shape": list(value.shape), "dtype": value.dtype, "low": value.low, "high": value.high}
        return canonical({**spec, "strides": list(value.strides)} if value.strides else spec)
    if isinstance(value, list):
        return [write_node(one) for one in value]
    return canonical(value)


def _collective_entry(collective: TraceCollective, trace: ProgramTrace) -> ResolvedCall:
    """Return a collective as an operator of the catalogue."""
    if collective.name not in _KNOWN_COLLECTIVES:
        return ResolvedCall(problem=f"a {collective.name} between two ranks is not imported")
    group = trace.groups.get(collective.group)
    ranks = collective.group_size or (group.size if group else None) or trace.world_size
    if not ranks:
        return ResolvedCall(problem="the size of its process group is not in the file")
    if collective.name == "barrier":
        return ResolvedCall(Entry("barrier", {"ranks": ranks}))
    elements = collective.in_elements if collective.name in _WHOLE else collective.out_elements
    if collective.name == "all_gather" and collective.in_elements:
        elements = collective.in_elements * ranks
    if collective.dtype not in DTYPES or not elements:
        return ResolvedCall(problem=f"{elements} elements of type {collective.dtype or 'unknown'} are nothing to send")
    params: dict[str, Any] = {"size": elements * sizeof(collective.dtype), "dtype": collective.dtype, "ranks": ranks}
    return ResolvedCall(Entry(collective.name, params))


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
