"""What the calls of a program compute and move, found by one run of it. Only child processes import this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from opmark.models.calls import call_path
from opmark.models.counting import flop_formula
from opmark.models.execution import flatten
from opmark.models.program import GraphProgram
from opmark.models.scheduled import compile_units, first_values
from opmark.models.tracing import CallRecorder, entry_of_record
from opmark.schema import Entry
from opmark.schema.call_sizes import CalledOperator, CallSizes
from opmark.schema.schedule import DescribedProgram, one_by_one

_PRODUCTS = {"mm": "linear_no_bias", "addmm": "linear", "bmm": "batched_matmul", "baddbmm": "batched_matmul"}
_PICKING = frozenset({"embedding", "gather", "index", "index_select", "take"})
"""Calls that read of their first tensor what they return."""
_BAGS = frozenset({"_embedding_bag", "_embedding_bag_forward_only"})
"""Calls that read a row of their first tensor for each index."""
_ROW = 1024
"""Elements of a row of a call whose sizes are not known otherwise."""


@dataclass
class WorkRecorder(CallRecorder):
    """Records calls with their work, in their order."""

    work: list[tuple[str, CallSizes, str]] = field(default_factory=list)
    """(the call as text or nothing, its sizes, its element type)."""

    def record(self, func: Any, name: str, args: Any, kwargs: Any, outputs: Any) -> str:
        key = super().record(func, name, args, kwargs, outputs)
        given = [one for one in flatten([args, kwargs]) if isinstance(one, torch.Tensor)]
        made = [one for one in flatten(outputs) if isinstance(one, torch.Tensor)]
        floats = next((one for one in (*given, *made) if one.is_floating_point()), None)
        dtype = str(floats.dtype).removeprefix("torch.") if floats is not None else "float32"
        self.work.append((key, _sizes(func, name, args, kwargs, outputs, given, made), dtype))
        return key


def _sizes(
    func: Any, name: str, args: Any, kwargs: Any, outputs: Any, given: Sequence[Any], made: Sequence[Any]
) -> CallSizes:
    flops, written = float(_flops(func, args, kwargs, outputs)), float(sum(map(_extent, made)))
    read = float(sum(map(_extent, given)))
    if name in _PICKING | _BAGS:
        table = given[0]
        picked = given[1].numel() * prod(table.shape[1:]) * table.element_size() if name in _BAGS else written
        read += min(0, picked - _extent(table))
    work: dict[str, Any] = {"flops": flops, "nbytes": written + read, "written": written}
    if name in _PRODUCTS and len(given) > 1:
        a, b = given[-2:]
        return CallSizes(_PRODUCTS[name], prod(a.shape[:-2]), a.shape[-2], b.shape[-1], a.shape[-1], **work)
    if name == "convolution" and len(made[0].shape) == 4:
        out, weight, transposed, groups = made[0].shape, given[1].shape, args[6], args[8]
        channels = weight[0] // groups if transposed else weight[1]
        return CallSizes(
            "conv2d", out[0], out[0] * out[2] * out[3], out[1], channels * prod(weight[2:]), image=out[2],
            channels=channels, stride=1 / args[3][0] if transposed else args[3][0], **work,
        )  # fmt: skip
    path = call_path(f"{func._schema.name}.{func._overloadname}")
    return CallSizes(path, 1, max(1.0, work["nbytes"] / 4 / _ROW), _ROW, 1, **work)


def _extent(tensor: Any) -> int:
    """Return the bytes of the elements that differ: an expanded tensor has each once."""
    elements = prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size)
    return int(elements * tensor.element_size())


def _flops(func: Any, args: Any, kwargs: Any, outputs: Any) -> int:
    formula = flop_formula(func._overloadpacket)
    return int(formula(*args, **kwargs, out_val=outputs)) if formula else 0


def describe_program(program: GraphProgram, inputs: Sequence[Any], device: str) -> DescribedProgram:
    """Run a program once, operator by operator, and return what torch calls for each of them."""
    graph = program.graph()
    alone = one_by_one(graph.digest, [[number] for number in range(len(graph.operators))], 1)
    values, calls = first_values(program, inputs), []
    known: dict[str, Entry] = {}
    for run in compile_units(program, alone):
        with WorkRecorder() as recorder:
            run(values)
        for key in recorder.found.keys() - known.keys():
            known[key] = entry_of_record(recorder, key, device)
        calls.append([CalledOperator(known.get(key), sizes, dtype) for key, sizes, dtype in recorder.work])
    return DescribedProgram(graph, calls)
