"""Tuned operators inside a model: their schedules, on the kernels that compute them and what was fused with these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opmark.frameworks.tvm.knobs import window_sizes
from opmark.frameworks.tvm.library import first_line, tvm
from opmark.frameworks.tvm.operators import SCHEDULED, Kind
from opmark.frameworks.tvm.schedules.cpu import is_data_parallel
from opmark.plugin import Params

_ANCHORS = {
    "matmul": "matmul",
    "batched_matmul": "matmul",
    "conv2d": "conv2d_nchw",
    "pointwise_conv2d": "conv2d_nchw",
    "depthwise_conv2d": "depthwise_conv2d_nchw",
}
"""The block of TVM that computes an operator of the catalogue, with the same loops in the same order."""
_PADS = "pad_temp"


@dataclass(frozen=True)
class AppliedOperators:
    module: Any
    applied: tuple[str, ...]
    """Kernels that have got a tuned schedule."""
    refused: tuple[str, ...]
    """Kernels whose schedule TVM did not take, with the reason: they stay as they were."""


def apply_operators(lowered: Any, kind: Kind, entries: Sequence[Mapping[str, Any]]) -> AppliedOperators:
    """Return the module of a model with the schedules of tuned operators: objects with op, params and configuration. A
    kernel that no operator fits stays as it is."""
    by_loops = {
        (_ANCHORS[one["op"]], *loops_of(one["op"], one["params"])): one
        for one in (*map(_in_a_batch_of_one, entries), *entries)
        if one["op"] in _ANCHORS
    }
    functions, applied, refused = dict(lowered.functions), list[str](), list[str]()
    for variable, function in lowered.functions.items():
        if not isinstance(function, tvm.tirx.PrimFunc):
            continue
        module = tvm.IRModule({"main": function})
        named = _NamedSchedule.find(tvm.s_tir.Schedule(module), set(_ANCHORS.values()))
        entry = by_loops.get((named.anchor, *named.extents())) if named else None
        if named is None or entry is None:
            continue
        try:
            named.arrange(kind, entry)
        except Exception as error:  # noqa: BLE001 - a kernel may be fused with what the schedule does not expect
            refused.append(f"{variable.name_hint}: {first_line(error)}")
        else:
            functions[variable] = named.schedule.mod["main"].with_attr("tirx.is_scheduled", True)
            applied.append(str(variable.name_hint))
    changed = tvm.IRModule(functions, attrs=lowered.attrs, global_infos=lowered.global_infos)
    return AppliedOperators(changed, tuple(applied), tuple(refused))


def _in_a_batch_of_one(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a product as a batched one: a model that is given a batch of one has a loop more than the operator."""
    if entry["op"] != "matmul":
        return entry
    return {**entry, "op": "batched_matmul", "params": {**entry["params"], "B": 1}}


def loops_of(op: str, p: Params) -> tuple[tuple[int, ...], ...]:
    """Return the lengths of the loops over the result and of those over the sum."""
    if "matmul" in op:
        return ((*([p["B"]] if "B" in p else []), p["M"], p["N"]), (p["K"],))
    p = SCHEDULED[op].general(p)
    sizes = window_sizes(p)
    if op == "depthwise_conv2d":
        return ((p["batch"], p["channels"] * p["multiplier"], *sizes), tuple(p["kernel"]))
    return ((p["batch"], p["out_channels"], *sizes), (p["in_channels"] // p["groups"], *p["kernel"]))


class _NamedSchedule:
    """A kernel of a model, whose blocks are known by the names that schedules look for."""

    def __init__(self, schedule: Any, anchor: str, names: Mapping[str, str]) -> None:
        self.schedule = schedule
        self.anchor = anchor
        self._names = names

    @classmethod
    def find(cls, schedule: Any, anchors: set[str]) -> _NamedSchedule | None:
        """Return the kernel with its blocks named; None if it computes none of these. What follows the sum works by
        elements, and becomes one block."""
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
        hints = [str(schedule.get(block).name_hint) for block in blocks]
        anchor = next((hint for hint in hints if hint in anchors), None)
        if anchor is None:
            return None
        names = {"acc": anchor}
        if _PADS in hints:
            names["pad"] = _PADS
        after = hints[hints.index(anchor) + 1 :]
        try:
            for hint in after[:-1]:
                schedule.compute_inline(hint)
        except tvm.s_tir.ScheduleError:
            return None
        if after:
            names["out"] = after[-1]
        return cls(schedule, anchor, names)

    def extents(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        block = self.schedule.get_sblock(self.anchor)
        pairs = [(is_data_parallel(one), int(one.dom.extent)) for one in self.schedule.get(block).iter_vars]
        return tuple(n for ours, n in pairs if ours), tuple(n for ours, n in pairs if not ours)

    def arrange(self, kind: Kind, entry: Mapping[str, Any]) -> None:
        row, params = SCHEDULED[entry["op"]], entry["params"]
        # A model may have kernels that are padded although the operator is not, and the other way round.
        configuration = {"pad_at": "root", **row.space(kind, params).check(entry["configuration"])}
        row.arrange(kind, params)(self, row.general(params), configuration)

    def get_sblock(self, name: str) -> Any:
        return self.schedule.get_sblock(self._names.get(name, f"no {name} here"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.schedule, name)
