"""Reads Chrome traces of torch's profiler (Kineto): operators with shapes, and the kernels that they launched.

Calls nest by time within a thread. Work of a device belongs to the call in which it was launched: the kernel has the
correlation of a call of the runtime that lies inside of it. The `External id` of a kernel counts only where the launch
is not in the file: outside of any operator, as at the launch of a CUDA graph, it is that of an operator before. What no
call launched becomes a node of its own.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from opmark.errors import InvalidFile
from opmark.schema import ImportProblem
from opmark.schema.tensor import DTYPES
from opmark.traces.collectives import groups_of_description
from opmark.traces.execution_trace import DTYPE_NAMES, add_device_time, kind_of, place_collectives
from opmark.traces.json_lists import read_list
from opmark.traces.trace import LAUNCHED_ALONE, OpaqueValue, ProgramTrace, TensorRef, TraceNode, Value
from opmark.units import count_noun

NO_SHAPES = "record it with torch.profiler.profile(record_shapes=True), or with `opmark capture`, which records more"
UNKNOWN_DTYPE = ""
"""Element type of tensors in a list, which the profiler does not record."""
_CALLS = frozenset({"cpu_op", "operator", "user_annotation"})
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_LAUNCHES = ("runtime", "_driver")
_CLOCK_ERROR = 2e-6
"""Seconds by which the times of a launch and of the operator around it may disagree."""
_OPERATOR = re.compile(r"(?!autograd::|torch::|torch\.)[A-Za-z_][\w.]*::[\w.]+")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|inf|nan)", re.IGNORECASE)
_IDS = {"Record function id": "rf_id", "External id": "external_id"}
_KEPT = ("kernel_file", "kernel_backend", "kernel_hash", "range")
_COMMUNICATION = {
    "Collective name": "collective_name", "dtype": "dtype", "In msg nelems": "in_msg_nelems",
    "Out msg nelems": "out_msg_nelems", "In split size": "in_split_size", "Out split size": "out_split_size",
    "Group size": "pg_size", "Process Group Name": "pg_name", "Process Group Description": "pg_desc",
}  # fmt: skip
"""Arguments of the profiler's events, and the attributes of execution traces that say the same."""


class _ChromeEvent(Struct):
    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: Any = 0
    tid: Any = 0
    ts: float | str | None = None
    dur: float | str | None = None
    args: dict[str, Any] | None = None


class LaunchedWork(Struct):
    """Work of a device."""

    external: int | None
    correlation: int | None
    seconds: float
    stream: int | None
    name: str = ""
    start: float | None = None


class DeviceLaunch(NamedTuple):
    """A call of the runtime that launches work."""

    thread: int
    start: float
    name: str = ""


def read_chrome_trace(path: Path, content: Any, *, keep_ids: bool = False) -> ProgramTrace:
    """Read a Chrome trace with the calls of torch in it. Operators have no schema there, and no ids of tensors.

    `keep_ids` keeps the numbers by which nodes of an execution trace are found; without, large traces stay small.
    """
    listed = read_list(path, content, "traceEvents", _ChromeEvent)
    trace = ProgramTrace(str(path), "Chrome trace", [])
    launched: list[LaunchedWork] = []
    launches: dict[int, DeviceLaunch] = {}
    threads: dict[tuple[str, str], int] = {}
    texts: dict[str, str] = {}
    tensors: dict[Value, Value] = {}
    for _, event in listed.items():
        start = _seconds(event.ts)
        if event.ph != "X" or start is None:
            continue
        kind, args = event.cat.lower(), event.args or {}
        thread = threads.setdefault((str(event.pid), str(event.tid)), len(threads) + 1)
        correlation = _whole(args.get("correlation"))
        if kind in _ON_DEVICE:
            stream = _whole(args.get("stream", event.tid))
            external = _whole(args.get("External id", args.get("external id")))
            name, seconds = texts.setdefault(event.name, event.name), _seconds(event.dur) or 0.0
            launched.append(LaunchedWork(external, correlation, seconds, stream, name, start))
        elif kind.endswith(_LAUNCHES) and correlation:
            launches[correlation] = DeviceLaunch(thread, start, texts.setdefault(event.name, event.name))
        elif kind in _CALLS or (not kind and "::" in event.name):
            name = texts.setdefault(event.name, event.name)
            node = _node(name, start, _seconds(event.dur) or 0.0, thread, args, tensors)
            node.id = _whole(args.get("External id", args.get("external id"))) or 0  # until all nodes are known
            if keep_ids:
                node.attributes |= {short: args[long] for long, short in _IDS.items() if args.get(long)}
            trace.nodes.append(node)
    trace.problems += listed.problems
    _describe_ranks(trace, listed.head.get("distributedInfo"))
    finish_trace(trace, launched, launches)
    return trace


def finish_trace(trace: ProgramTrace, launched: Sequence[LaunchedWork], launches: dict[int, DeviceLaunch]) -> None:
    """Put calls that have times into their order, nest them, say what each is, and add the work of devices to those
    that launched it.

    `launches` are calls of the runtime by correlation. The id of a node is its external id before.
    """
    trace.nodes.sort(key=lambda node: (node.start or 0.0, -(node.duration or 0.0)))
    by_external = {node.id: number for number, node in enumerate(trace.nodes, 1) if node.id} if launched else {}
    _nest(trace.nodes)
    _find_element_types(trace)
    for node in trace.nodes:
        node.kind, node.collective = kind_of(node)
        if node.kind == "label" and _OPERATOR.fullmatch(node.name):
            node.kind = "operator"
    place_collectives(trace)
    _add_launched(trace, launched, launches, by_external)


def has_shapes(trace: ProgramTrace) -> bool:
    """Return whether any call of a Chrome trace has its arguments."""
    return any(node.inputs for node in trace.nodes if node.kind != "label")


def check_shapes(trace: ProgramTrace) -> None:
    """Raise InvalidFile if a Chrome trace does not say what its operators were called with."""
    if not any(node.kind != "label" for node in trace.nodes):
        raise InvalidFile(
            f"{trace.source}: is a Chrome trace without operators of torch", "record it with torch.profiler.profile()"
        )
    if not has_shapes(trace):
        raise InvalidFile(f"{trace.source}: has operators, but not the shapes that they were called with", NO_SHAPES)


def _seconds(written: float | str | None) -> float | None:
    try:
        return None if written is None else float(written) * 1e-6
    except ValueError:
        return None


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if type(value) is int else None


def _node(
    name: str, start: float, duration: float, thread: int, args: dict[str, Any], tensors: dict[Value, Value]
) -> TraceNode:
    kept = {key: args[key] for key in _KEPT if args.get(key)}
    if "Collective name" in args:
        kept |= {short: args[long] for long, short in _COMMUNICATION.items() if args.get(long) not in (None, "")}
    inputs = [tensors.setdefault(one, one) if isinstance(one, TensorRef) else one for one in _inputs(args)]
    return TraceNode(0, name, "label", "", None, inputs, thread=thread, start=start, duration=duration, attributes=kept)


def _inputs(args: dict[str, Any]) -> list[Value]:
    dims = args.get("Input Dims", args.get("Input dims"))
    types = args.get("Input type", args.get("Input types"))
    if not isinstance(dims, list) or not isinstance(types, list):
        return []
    strides, concrete = args.get("Input Strides"), args.get("Concrete Inputs")

    def at(values: Any, place: int) -> Any:
        return values[place] if isinstance(values, list) and place < len(values) else None

    return [
        input_of(kind, at(dims, i), at(strides, i), None if concrete is None else at(concrete, i))
        for i, kind in enumerate(types)
    ]


def input_of(kind: Any, dims: Any, strides: Any, concrete: Any) -> Value:
    """Return an argument as the profiler records it: its type, sizes and strides of a tensor, the value of a scalar."""
    if kind == "TensorList" and isinstance(dims, list):
        steps = strides if isinstance(strides, list) and len(strides) == len(dims) else [None] * len(dims)
        return [_tensor(UNKNOWN_DTYPE, size, step) for size, step in zip(dims, steps, strict=True)]
    if not isinstance(kind, str):
        return None
    if kind in DTYPE_NAMES or kind.startswith("c10::") or kind in DTYPES:
        return _tensor(DTYPE_NAMES.get(kind, kind), dims, strides)
    if kind in ("Scalar", "ScalarList", "Int", "Double", "Bool", "String") or concrete:
        return OpaqueValue("Scalar") if concrete is None or concrete == "" else parse_concrete(str(concrete))
    return None


def _tensor(dtype: str, dims: Any, strides: Any) -> Value:
    if not _are_sizes(dims):
        return OpaqueValue("Object", f"a tensor of shape {dims}")
    known = _are_sizes(strides) and len(strides) == len(dims)
    return TensorRef(tuple(dims), dtype, strides=tuple(strides) if known else None)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)


def parse_concrete(text: str) -> Value:
    """Return the value that the profiler writes as a text: `1`, `1.`, `1e-05`, `False`, `[2, 3]`."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        inside = text[1:-1].strip()
        return [parse_concrete(part) for part in inside.split(",")] if inside else []
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return None if text in ("None", "") else text.strip("\"'")


def _nest(nodes: Sequence[TraceNode]) -> None:
    """Number nodes in the order in which they began, and find the node around each in its thread."""
    around: dict[int, list[tuple[float, int]]] = {}
    for number, node in enumerate(nodes, 1):
        node.id = number
        stack = around.setdefault(node.thread, [])
        start = node.start or 0.0
        while stack and stack[-1][0] <= start:
            stack.pop()
        if stack:
            node.parent = stack[-1][1]
        stack.append((start + (node.duration or 0.0), number))


def _describe_ranks(trace: ProgramTrace, described: Any) -> None:
    if isinstance(described, dict):
        trace.rank, trace.world_size = _whole(described.get("rank")), _whole(described.get("world_size"))
        trace.groups = groups_of_description(described.get("pg_config"))


def _add_launched(
    trace: ProgramTrace,
    launched: Sequence[LaunchedWork],
    launches: dict[int, DeviceLaunch],
    by_external: dict[int, int],
) -> None:
    """Add the time of device work to the calls that launched it, and a node for what no call launched."""
    threads: dict[int, tuple[list[float], list[TraceNode]]] = {}
    for node in trace.nodes:
        starts, nodes = threads.setdefault(node.thread, ([], []))
        starts.append(node.start or 0.0)
        nodes.append(node)
    alone: dict[int, TraceNode] = {}
    for number, work in enumerate(launched):
        launch = launches.get(work.correlation or 0)
        named = trace.by_id.get(by_external.get(work.external or 0, 0))
        owner = named
        if launch is not None and launch.thread in threads:
            starts, nodes = threads[launch.thread]
            owner = _innermost(trace, nodes, bisect_right(starts, launch.start) - 1, launch.start)
            if not _is_in_call(trace, owner) and named is not None and _is_open_at(named, launch.start, _CLOCK_ERROR):
                owner = named
        if owner is not None and _is_in_call(trace, owner):
            add_device_time(trace, owner.id, work.seconds, work.stream)
            continue
        key = work.correlation or -1 - number  # the kernels of one launch of a graph have one correlation
        if key not in alone:
            graph = launch is not None and "Graph" in launch.name
            name = launch.name if graph and launch is not None else work.name or "work of a device"
            start = launch.start if launch is not None else work.start
            alone[key] = TraceNode(
                len(trace.nodes) + len(alone) + 1, name, "kernel", parent=None if owner is None else owner.id,
                thread=0 if launch is None else launch.thread, start=start, device_time=0.0, stream=work.stream,
                attributes={LAUNCHED_ALONE: 0},
            )  # fmt: skip
        node = alone[key]
        node.device_time = (node.device_time or 0.0) + work.seconds
        node.attributes[LAUNCHED_ALONE] += 1
    insert_nodes(trace, list(alone.values()))


def insert_nodes(trace: ProgramTrace, nodes: Sequence[TraceNode]) -> None:
    """Add nodes where they began among those that have times."""
    if not nodes:
        return
    waiting = deque(sorted(nodes, key=lambda node: node.start or 0.0))
    found = []
    for node in trace.nodes:
        while waiting and node.start is not None and (waiting[0].start or 0.0) < node.start:
            found.append(waiting.popleft())
        found.append(node)
    trace.nodes = [*found, *waiting]
    trace.forget()


def _is_in_call(trace: ProgramTrace, node: TraceNode | None) -> bool:
    """Return whether a node is a call or was called by one, not by labels alone."""
    return node is not None and any(one.kind != "label" for one in (node, *trace.ancestors(node)))


def _is_open_at(node: TraceNode, moment: float, error: float) -> bool:
    start = node.start or 0.0
    return start - error <= moment <= start + (node.duration or 0.0) + error


def _innermost(trace: ProgramTrace, nodes: Sequence[TraceNode], place: int, moment: float) -> TraceNode | None:
    """Return the innermost node that was open at a moment; the node at `place` is the last that began before."""
    if place < 0:
        return None
    return next((one for one in (nodes[place], *trace.ancestors(nodes[place])) if _is_open_at(one, moment, 0.0)), None)


def _find_element_types(trace: ProgramTrace) -> None:
    """Give tensors in lists the element type of tensors of the same shape that the call passes on, or of its other
    tensors; else the commonest of the trace, which is noted."""
    open_nodes = [node for node in trace.nodes if any(_is_open(value) for value in node.inputs)]
    if not open_nodes:
        return
    wanted = {node.id: node for node in open_nodes}
    below: dict[int, dict[tuple[int, ...], str]] = {}
    common: Counter[str] = Counter()
    for node in trace.nodes:
        known = [value for value in node.inputs if isinstance(value, TensorRef) and value.dtype]
        common.update(value.dtype for value in known)
        for above in trace.ancestors(node) if known else ():
            if above.id in wanted:
                below.setdefault(above.id, {}).update({value.shape: value.dtype for value in known})
    usual = max(common, key=lambda name: common[name], default="float32")
    guessed = 0
    for node in open_nodes:
        found = below.get(node.id, {})
        others = [value.dtype for value in node.inputs if isinstance(value, TensorRef)]
        first = next(iter(found.values()), others[0] if others else "")
        guessed += not first
        node.inputs = [_close(value, found, first or usual) for value in node.inputs]
    if guessed:
        trace.notes.append(
            f"{count_noun(guessed, 'call')} with lists of tensors, whose element type the profiler does not record: "
            f"taken for {usual}, the commonest of this trace"
        )


def _is_open(value: Value) -> bool:
    return isinstance(value, list) and any(isinstance(one, TensorRef) and not one.dtype for one in value)


def _close(value: Value, by_shape: dict[tuple[int, ...], str], otherwise: str) -> Value:
    if not _is_open(value):
        return value
    return [
        replace(one, dtype=by_shape.get(one.shape, otherwise)) if isinstance(one, TensorRef) else one for one in value
    ]


# Times of a profiler's file for an execution trace of the same program.


def merge_times(trace: ProgramTrace, profiled: ProgramTrace) -> None:
    """Give the nodes of an execution trace the times that the profiler recorded, and numbers with all their digits."""
    matches = _match_records(trace, profiled) or _match_names(trace, profiled)
    calls = sum(node.kind != "label" for node in trace.nodes)
    if not matches:
        message = f"times for {count_noun(calls, 'call')}, but none of its events is one of them"
        trace.problems.append(ImportProblem(profiled.source, f"expected {message}"))
    for node, event in matches:
        node.start, node.duration = event.start, event.duration
        node.device_time, node.stream = event.device_time, event.stream
        if len(node.inputs) == len(event.inputs):
            node.inputs = [_precise(ours, theirs) for ours, theirs in zip(node.inputs, event.inputs, strict=True)]
    fresh = max((node.id for node in trace.nodes), default=0)
    alone = [node for node in profiled.nodes if LAUNCHED_ALONE in node.attributes] if matches else []
    insert_nodes(trace, [replace(node, id=fresh + i, parent=None) for i, node in enumerate(alone, 1)])
    if trace.rank is None:
        trace.rank = profiled.rank
    trace.world_size = trace.world_size or profiled.world_size
    trace.groups = {**profiled.groups, **trace.groups}


def _match_records(trace: ProgramTrace, profiled: ProgramTrace) -> list[tuple[TraceNode, TraceNode]]:
    """Return the nodes of both traces that have the same number of a record function and the same name."""
    for key in ("rf_id", "external_id"):
        events = {(event.attributes[key], event.name): event for event in profiled.nodes if key in event.attributes}
        found = [
            (node, event)
            for node in trace.nodes
            if (event := events.get((node.attributes.get("rf_id"), node.name))) is not None
        ]
        if len(found) * 2 > min(len(events), len(trace.nodes)):
            return found
    return []


def _match_names(trace: ProgramTrace, profiled: ProgramTrace) -> list[tuple[TraceNode, TraceNode]]:
    """Return the nodes of both traces by their names and the order in which they began, for names that both have
    equally often."""
    ours: dict[str, list[TraceNode]] = {}
    theirs: dict[str, list[TraceNode]] = {}
    for nodes, found in ((trace.nodes, ours), (profiled.nodes, theirs)):
        for node in nodes:
            found.setdefault(node.name, []).append(node)
    return [
        pair
        for name, nodes in ours.items()
        if len(nodes) == len(theirs.get(name, ()))
        for pair in zip(nodes, theirs[name], strict=True)
    ]


def _precise(ours: Value, theirs: Value) -> Value:
    """Return a number as the profiler has it: execution traces have six digits behind the point."""
    if isinstance(ours, float) and type(theirs) is float and abs(ours - theirs) <= 1e-6:
        return theirs
    return ours
