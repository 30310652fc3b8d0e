"""An operator, described: what it takes, what it costs, who implements it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.interfaces import BackendInfo
from opmark.registry import backends, implementations
from opmark.report.overrides import implementations_table, steps
from opmark.report.tables import plain_table
from opmark.schema import Cost, Operator, Param
from opmark.schema.dtype import is_float


def operator_view(operator: Operator) -> dict[str, Any]:
    return {
        "op": operator.name,
        "summary": operator.summary,
        "category": operator.category,
        "view": operator.view,
        "result": operator.result,
        "mutates": list(operator.mutates),
        "partial": operator.partial,
        "reference_by": None if operator.foreign else operator.reference_by,
        "aliases": list(operator.aliases),
        "phases": ["forward", "backward"] if operator.gradients else ["forward"],
        "params": [_param(param) for param in operator.params],
        "rules": [{"param": rule.param, "must": rule.says} for rule in operator.rules],
        "presets": {size: _preset(operator, size) for size in operator.presets},
        "implementations": {info.name: _labels(operator, info) for info in backends().values()},
        "override_order": {info.name: _order(operator, info) for info in backends().values()},
    }


def _order(operator: Operator, info: BackendInfo) -> list[dict[str, Any]]:
    """Where a backend looks for implementations, in this order; those of the first that has any are taken."""
    return [
        {
            "framework": step.framework,
            "taken": step.taken,
            "implementations": [{"label": one.label, "source": one.source, "path": one.path} for one in step.found],
        }
        for step in steps(operator, info)
    ]


def _param(param: Param) -> dict[str, Any]:
    described = {"name": param.name, "kind": param.kind, "doc": param.doc, "required": param.required}
    if not param.required:
        described["default"] = param.default
    if param.choices:
        described["choices"] = list(param.choices)
    return described


def _preset(operator: Operator, size: str) -> dict[str, Any]:
    params = operator.complete(operator.presets[size])
    backward = operator.phase_cost(params, "backward") if operator.gradients else None
    return {
        "params": params,
        "inputs": {name: f"{spec.dtype}{list(spec.shape)}" for name, spec in operator.inputs(params).items()},
        "cost": msgspec.to_builtins(operator.cost(params)),
        "backward_cost": msgspec.to_builtins(backward),
    }


def _labels(operator: Operator, info: BackendInfo) -> list[str]:
    return [implementation.label for implementation in implementations(operator, info)]


def operator_text(operator: Operator) -> Group:
    title = Text.assemble((operator.name, "bold"), f" ({operator.category}): {operator.summary}")
    also = [Text(f"also called {', '.join(operator.aliases)}")] if operator.aliases else []
    sections: list[RenderableType] = [
        _params_table(operator),
        *_rules(operator),
        *_marks(operator),
        Text(),
        *_work(operator),
        implementations_table(operator),
        Text(),
        Text(
            "measured: device_time, device_span, latency, host_time, throughput on a device, latency elsewhere; "
            "`opmark list quantities` says what they are"
        ),
    ]
    return Group(title, *also, Text(), *sections)


def _params_table(operator: Operator) -> Table:
    table = plain_table("parameter", "type", "default", "meaning")
    for param in operator.params:
        default = "required" if param.required else msgspec.json.encode(param.default).decode()
        meaning = param.doc + (f": {', '.join(param.choices)}" if param.choices else "")
        table.add_row(Text(param.name), param.kind, Text(default), Text(meaning))
    return table


def _rules(operator: Operator) -> list[Text]:
    return [Text(f"{rule.param} must {_plain(rule.says)}") for rule in operator.rules]


def _plain(says: str) -> str:
    """A rule without the values of a case: `in_channels={in_channels}` is `in_channels`."""
    named = re.sub(r"\b(\w+)[= ]\{\1\}", r"\1", says.split(" (got")[0])
    return re.sub(r"\{(\w+)\}", r"\1", named)


def _marks(operator: Operator) -> list[Text]:
    """What is special about it."""
    said = {
        "a view: the data stays where it is, so there is no bandwidth": operator.view,
        "its result is drawn anew by every call, and judged by its distribution": operator.result == "random",
        "several processes compute it together, as many as `ranks` says": operator.ranks,
        "means nothing where the device is the host": operator.device_only,
        f"changes {', '.join(operator.mutates)} in place": bool(operator.mutates),
        "touches only a part of its tensors; the cost is that of the part": operator.partial,
        f"its reference is computed by {operator.reference_by}": operator.reference_by != "NumPy",
        "not in the catalogue: its result is not verified, its cost is counted while it runs": operator.foreign,
    }
    return [Text(), *(Text(text) for text, holds in said.items() if holds)] if any(said.values()) else []


def _work(operator: Operator) -> list[RenderableType]:
    """Cost and tolerance, which only an entry of the catalogue has."""
    return [] if operator.foreign else [_costs_table(operator), Text(), _tolerances(operator), Text()]


def _costs_table(operator: Operator) -> Table:
    sends = operator.cost(operator.complete(operator.presets["typical"])).traffic is not None
    work = ("read", "written", "algbw counts", "busbw counts") if sends else ("flops", "read", "written", "flops/byte")
    table = plain_table("size", "phase", "parameters", *work)
    for size, given in operator.presets.items():
        params = operator.complete(given)
        shown = ", ".join(f"{key}={'x'.join(map(str, v)) if isinstance(v, list) else v}" for key, v in given.items())
        for phase in ("forward", "backward") if operator.gradients else ("forward",):
            cost = operator.phase_cost(params, phase)
            table.add_row(size, phase, Text(shown), *(_sent_cells(cost) if cost and sends else _cost_cells(cost)))
    return table


def _sent_cells(cost: Cost) -> tuple[str, ...]:
    """What a rank's buffers take, and what of them the two bandwidths are about."""
    moved = cost.traffic
    counted = (moved.size, round(moved.bus)) if moved else (0, 0)
    return tuple(units.count_bytes(n) for n in (cost.bytes_read, cost.bytes_written, *counted))


def _cost_cells(cost: Cost | None) -> tuple[str, ...]:
    if cost is None:
        return ("unknown",) * 4
    flops = cost.flops or 0
    intensity = flops / cost.bytes_moved if cost.bytes_moved else 0.0
    return (
        units.rate(flops, "").strip() or "0",
        units.count_bytes(cost.bytes_read),
        units.count_bytes(cost.bytes_written),
        units.significant(intensity),
    )


def _tolerances(operator: Operator) -> Text:
    params = operator.complete(operator.presets["typical"])
    dtypes = next((p.choices for p in operator.params if p.name == "dtype"), ())
    bounds = {dtype: operator.tolerance.bounds(dtype, params) for dtype in dtypes if is_float(dtype)}
    if not any(near for near, _ in bounds.values()):
        return Text("has to equal the reference exactly")
    listed = ", ".join(f"{name} {near:g} x |expected| + {far:.2g} x rms" for name, (near, far) in bounds.items())
    return Text(f"may differ from the float64 reference (typical size) by {listed}; integers by nothing")
