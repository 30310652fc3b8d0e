"""Groups the calls of a captured program by operator and shapes, with the time that they took and what they cost.

Only a child process runs it: torch's counter supplies the operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import prod
from statistics import median
from typing import Any

import torch

from opmark.models.counting import flop_formula
from opmark.schema.call_group import CallGroup, CapturedSteps
from opmark.schema.tensor import DTYPES, is_float, sizeof
from opmark.traces.trace import ProgramTrace, TensorRef, TraceNode, Value, tensors_of

_STEP = "ProfilerStep#"
_NO_DATA = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"})
"""Calls that make tensors without values."""
_LOOKUPS = frozenset({"embedding", "index_select", "gather", "index", "take"})
"""Calls that read as many elements of their first tensor as they return."""
_BAGS = frozenset({"embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"})
"""Calls that read a row of their first tensor for each index."""
_MOST_SHAPES = 3
_VIEW = re.compile(r"-> \(?Tensor\(\w+\)")
"""Result of a schema that is a view: `Tensor(a)`; what is written to is `Tensor(a!)`."""


def group_calls(trace: ProgramTrace) -> CapturedSteps:
    """Return the calls that the program itself made, grouped. Calls of calls belong to these."""
    on_device = any(node.device_time for node in trace.nodes)
    children: dict[int, list[TraceNode]] = {}
    for node in trace.nodes:
        if node.parent is not None:
            children.setdefault(node.parent, []).append(node)
    totals: dict[tuple[str, str, str], list[Any]] = {}
    views, busy = 0, 0.0
    for node in trace.calls:
        taken = (node.device_time if on_device else node.duration) or 0.0
        busy += taken
        if is_view(node.schema):
            views += 1
        shapes, dtype = describe_tensors(tensors_of(node.inputs))
        found = totals.setdefault((node.name, part_of(trace, node), shapes), [dtype, 0, 0.0, node])
        found[1] += 1
        found[2] += taken
    groups = [
        CallGroup(name, part, shapes, dtype, count, taken, count_flops(node, children), *count_bytes(node))
        for (name, part, shapes), (dtype, count, taken, node) in totals.items()
    ]
    steps = [node for node in trace.nodes if node.name.startswith(_STEP)]
    times = [node.duration for node in steps if node.duration] or [_span(trace)]
    whole = sum(times)
    groups.sort(key=lambda group: -group.seconds)
    return CapturedSteps(
        trace.source,
        len(steps) or 1,
        whole,
        groups,
        median(times),
        on_device,
        views=views,
        between=max(0.0, whole - busy),
    )


def _span(trace: ProgramTrace) -> float:
    """Return the time from the first call to the end of the last one."""
    timed = [(node.start, node.start + (node.duration or 0.0)) for node in trace.nodes if node.start is not None]
    return max(end for _, end in timed) - min(start for start, _ in timed) if timed else 0.0


def part_of(trace: ProgramTrace, node: TraceNode) -> str:
    """Return the part of a training step that called a node."""
    for above in trace.ancestors(node):
        if above.name.startswith("autograd::engine::evaluate_function"):
            return "backward"
        if above.name.startswith("Optimizer."):
            return "optimizer"
    return ""


def is_view(schema: str) -> bool:
    return bool(_VIEW.search(schema))


def describe_tensors(tensors: Iterable[TensorRef]) -> tuple[str, str]:
    """Return the shapes of tensors as text, and their first floating-point type."""
    found = list(tensors)
    found = [one for one in found if one.shape] or found  # numbers that became tensors say little
    dtypes = list(dict.fromkeys(one.dtype for one in found))
    shapes = ["x".join(map(str, one.shape)) or "()" for one in found[:_MOST_SHAPES]]
    if len(dtypes) > 1:
        shapes = [f"{shape} {one.dtype}" for shape, one in zip(shapes, found, strict=False)]
    text = ", ".join(shapes) + (f" {dtypes[0]}" if len(dtypes) == 1 else "")
    if len(found) > _MOST_SHAPES:
        text += f", and {len(found) - _MOST_SHAPES} more"
    return text, next((dtype for dtype in dtypes if dtype in DTYPES and is_float(dtype)), "")


def count_bytes(node: TraceNode) -> tuple[int, int]:
    """Return the bytes that a call has to read and to write: each tensor once, what is not there not at all."""
    name = node.name.rpartition("::")[2]
    if is_view(node.schema) or name in _NO_DATA:
        return 0, 0
    inputs, outputs = list(tensors_of(node.inputs)), list(tensors_of(node.outputs))
    written = sum(_size(one) for one in outputs)
    if not outputs and name.startswith("_foreach_"):  # these change their first list
        first = node.inputs[0] if node.inputs else []
        written = sum(_size(one) for one in tensors_of(first if isinstance(first, list) else [first]))
    sizes = [_size(one) for one in inputs]
    if inputs and name in _LOOKUPS:
        sizes[0] = min(sizes[0], written)
    elif len(inputs) > 1 and name in _BAGS and inputs[0].shape:
        row = sizes[0] // max(1, inputs[0].shape[0])
        sizes[0] = min(sizes[0], row * prod(inputs[1].shape))
    if name.endswith(("zero_", "fill_", "uniform_", "normal_")):
        sizes[:1] = []
    return sum(sizes), written


def _size(tensor: TensorRef) -> int:
    """Return the bytes of the elements that differ: an expanded tensor has each once."""
    if tensor.dtype not in DTYPES:
        return 0
    strides = tensor.strides or (1,) * len(tensor.shape)
    elements = prod(size for size, stride in zip(tensor.shape, strides, strict=False) if stride or not size)
    return elements * sizeof(tensor.dtype)


def count_flops(node: TraceNode, children: dict[int, list[TraceNode]]) -> int | None:
    """Return the operations of a call and of what it called; None if torch's counter knows none of them."""
    found = [count for one in _counted(node, children) if (count := _flops(one)) is not None]
    return sum(found) if found else None


def _counted(node: TraceNode, children: dict[int, list[TraceNode]]) -> Iterator[TraceNode]:
    """Yield the outermost calls that torch's counter knows: the inner ones are the same operations again."""
    if _formula(node) is not None:
        yield node
    else:
        for child in children.get(node.id, ()):
            if child.id != node.id:
                yield from _counted(child, children)


def _formula(node: TraceNode) -> Any:
    space, _, name = node.name.partition("::")
    if space != "aten":
        return None
    return flop_formula(getattr(torch.ops.aten, name, None))


def _flops(node: TraceNode) -> int | None:
    outputs = [_meta(one) for one in node.outputs]
    try:
        by_position = [not one.kwarg_only for one in torch._C.parse_schema(node.schema).arguments]
        inputs = [_meta(one) for one, counts in zip(node.inputs, by_position, strict=False) if counts]
        found = _formula(node)(*inputs, out_val=outputs[0] if len(outputs) == 1 else tuple(outputs))
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError):
        return None  # a schema or arguments of another version of torch
    return int(found)


def _meta(value: Value) -> Any:
    """Return a value as torch's counter takes it: tensors without data."""
    if isinstance(value, TensorRef):
        return torch.empty(value.shape, device="meta")
    if isinstance(value, list):
        return [_meta(one) for one in value]
    return value if isinstance(value, bool | int | float | str) else None
