"""Describes operators and quantities, and how many operators each framework and backend covers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.plugin import BackendInfo, Implementation, Operator, Param
from opmark.plugin.registry import MODEL, backends, candidates, implementations
from opmark.report.console.table import plain_table
from opmark.schema import Cost, Quantity
from opmark.schema.coverage import TIERS, Coverage, CoveredOperator, Matrix
from opmark.schema.tensor import is_float
from opmark.units import count_noun


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
    """Return the frameworks in which a backend looks for implementations; the first that has any is taken."""
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
    """Return a rule without the values of a case: `in_channels={in_channels}` becomes `in_channels`."""
    named = re.sub(r"\b(\w+)[= ]\{\1\}", r"\1", says.split(" (got")[0])
    return re.sub(r"\{(\w+)\}", r"\1", named)


def _marks(operator: Operator) -> list[Text]:
    """Return the special properties of an operator, as sentences."""
    properties = {
        "a view: the data stays where it is, so there is no bandwidth": operator.view,
        "its result is drawn anew by every call, and judged by its distribution": operator.result == "random",
        "several processes compute it together, as many as `ranks` says": operator.ranks,
        "means nothing where the device is the host": operator.device_only,
        f"changes {', '.join(operator.mutates)} in place": bool(operator.mutates),
        "touches only a part of its tensors; the cost is that of the part": operator.partial,
        f"its reference is computed by {operator.reference_by}": operator.reference_by != "NumPy",
        "not in the catalogue: its result is not verified, its cost is counted while it runs": operator.foreign,
    }
    return [Text(), *(Text(text) for text, holds in properties.items() if holds)] if any(properties.values()) else []


def _work(operator: Operator) -> list[RenderableType]:
    """Return cost and tolerance, which only operators of the catalogue have."""
    return [] if operator.foreign else [_costs_table(operator), Text(), _tolerances(operator), Text()]


def _costs_table(operator: Operator) -> Table:
    sends = operator.cost(operator.complete(operator.presets["typical"])).traffic is not None
    work = ("read", "written", "algbw counts", "busbw counts") if sends else ("flops", "read", "written", "flops/byte")
    table = plain_table("size", "phase", "parameters", *work)
    for size, preset in operator.presets.items():
        params = operator.complete(preset)
        text = ", ".join(f"{key}={'x'.join(map(str, v)) if isinstance(v, list) else v}" for key, v in preset.items())
        for phase in ("forward", "backward") if operator.gradients else ("forward",):
            cost = operator.phase_cost(params, phase)
            table.add_row(size, phase, Text(text), *(_sent_cells(cost) if cost and sends else _cost_cells(cost)))
    return table


def _sent_cells(cost: Cost) -> tuple[str, ...]:
    """Return the bytes of a rank's buffers, and the bytes that count for the two bandwidths."""
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
    if operator.category == MODEL:
        return Text("may differ from the reference by a multiple of what rounding to its element type does to it")
    params = operator.complete(operator.presets["typical"])
    dtypes = filter(is_float, next((p.choices for p in operator.params if p.name == "dtype"), ()))
    bounds = {dtype: operator.tolerance.bounds(dtype, {**params, "dtype": dtype}) for dtype in dtypes}
    if not any(near for near, _ in bounds.values()):
        return Text("has to equal the reference exactly")
    listed = ", ".join(f"{name} {near:g} x |expected| + {far:.2g} x rms" for name, (near, far) in bounds.items())
    return Text(f"may differ from the float64 reference (typical size) by {listed}; integers by nothing")


# The page of the catalogue: every operator by category, with its names in other systems.


def catalogue_page(operators: Iterable[Operator]) -> str:
    by_category: dict[str, list[Operator]] = {}
    for operator in operators:
        by_category.setdefault(operator.category, []).append(operator)
    sections = [_section(category, by_category[category]) for category in sorted(by_category)]
    return "\n".join([_HEAD.format(count=sum(map(len, by_category.values()))), *sections])


_HEAD = """# Operators

{count} operators. Names of other systems are in the last column: `opmark describe Convolution` finds them, and so does
`opmark run Convolution`.
`opmark describe NAME` tells parameters, sizes, rules, cost and tolerances. Written by `opmark list ops --markdown`.
"""


def _section(category: str, operators: list[Operator]) -> str:
    rows = [_row(operator) for operator in sorted(operators, key=lambda op: op.name)]
    head = [f"## {category}", "", "| operator | what it computes | phases | also called |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _row(operator: Operator) -> str:
    phases = "forward, backward" if operator.gradients else "forward"
    marks = [mark for mark, there in (("view", operator.view), ("in place", bool(operator.mutates))) if there]
    summary = operator.summary.replace("|", "\\|")
    return f"| `{operator.name}` | {summary} | {', '.join([phases, *marks])} | {', '.join(operator.aliases)} |"


# The coverage of a framework, as a table and as data.


def coverage_view(found: Coverage) -> dict[str, Any]:
    return {
        "framework": found.framework,
        "run": found.run,
        "operators": len(found.operators),
        "functions": len({covered.function for covered in found.operators}),
        "tiers": {tier: _coverage_counts(found, found.of_tier(tier)) for tier in TIERS},
        "uncovered": {covered.name: covered.reason for covered in found.uncovered()},
        "details": msgspec.to_builtins(found.operators),
    }


def _coverage_counts(found: Coverage, among: list[CoveredOperator]) -> dict[str, int]:
    return {
        "operators": len(among),
        "differentiable": sum(covered.differentiable for covered in among),
        "forward_measured": found.count(among, "forward"),
        "backward_measured": found.count(among, "backward"),
    }


def coverage_text(found: Coverage) -> Group:
    functions = len({covered.function for covered in found.operators})
    table = plain_table("tier", "operators", "have a gradient", "measured forward", "measured backward", "what it is")
    groups = [(str(tier), found.of_tier(tier), what) for tier, what in TIERS.items()]
    groups += [("all", found.operators, ""), ("none", [c for c in found.operators if not c.tiers], "not covered")]
    for name, among, what in groups:
        counts = _coverage_counts(found, among)
        measured = [str(counts[f"{phase}_measured"]) if found.run else "" for phase in ("forward", "backward")]
        table.add_row(name, str(counts["operators"]), str(counts["differentiable"]), *measured, what)
    return Group(
        Text(f"{found.framework}: {count_noun(len(found.operators), 'operator')}, {count_noun(functions, 'function')}"),
        table,
        *_reasons(found),
        Text(_where(found)),
    )


def _reasons(found: Coverage) -> list[Text]:
    return [Text(f"{covered.name}: {covered.reason}") for covered in found.uncovered()]


def _where(found: Coverage) -> str:
    if found.run:
        return f"measured: in run {found.run}"
    if found.framework == "torch":
        return "`opmark run --suite torch-all --effort quick` tries every one of them"
    return ""


# The operators of each backend: numbers by category as a table, and each operator as data.


def matrix_view(found: Matrix) -> dict[str, Any]:
    return {
        "operators": len(found.operators),
        "runs": found.runs,
        "backends": {
            name: {
                "forward": len(found.forward(name)),
                "backward": len(found.backward(name)),
                "verified_forward": len(found.verified(name, "forward")),
                "verified_backward": len(found.verified(name, "backward")),
            }
            for name in found.backends
        },
        "details": msgspec.to_builtins(found.operators),
    }


Columns = dict[str, list[str]]
"""Backends by the head of their column."""


def matrix_text(found: Matrix) -> Group:
    columns = _columns(found)
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))  # ten heads and more have to fit
    table.add_column("category", no_wrap=True)
    for head in ("all", *columns):
        table.add_column(head.replace("-", "-\n"), justify="right", overflow="fold", vertical="bottom")
    categories: dict[str, set[str]] = {}
    for one in found.operators:
        categories.setdefault(one.category, set()).add(one.op)
    for name in sorted(categories):
        table.add_row(name, str(len(categories[name])), *_matrix_counts(columns, found.forward, categories[name]))
    everything = {one.op for one in found.operators}
    for name, total, of in _totals(found):
        table.add_row(Text(name, style="bold"), total, *_matrix_counts(columns, of, everything))
    return Group(table, Text(), *map(Text, _legend(found, columns)))


def _columns(found: Matrix) -> Columns:
    """Return the columns; backends that differ only in their device and have the same operators share one."""
    alike: dict[tuple[str, frozenset[str], bool], list[str]] = {}
    for name, plain in found.backends.items():
        alike.setdefault((plain, found.forward(name), name in found.differentiate), []).append(name)
    plains = [plain for plain, _, _ in alike]
    return {(plain if plains.count(plain) == 1 else names[0]): names for (plain, _, _), names in alike.items()}


def _matrix_counts(columns: Columns, of: Callable[[str], frozenset[str]], among: set[str]) -> Iterator[str]:
    """Yield for each column the number of operators that any of its backends has."""
    for names in columns.values():
        number = len(among.intersection(frozenset().union(*map(of, names))))
        yield str(number) if number else "-"


def _totals(found: Matrix) -> Iterator[tuple[str, str, Callable[[str], frozenset[str]]]]:
    yield "forward", str(len(found.operators)), found.forward
    if found.runs:
        yield "  verified", "", lambda backend: found.verified(backend, "forward")
    yield "backward", str(sum(one.differentiable for one in found.operators)), found.backward
    if found.runs:
        yield "  verified", "", lambda backend: found.verified(backend, "backward")


def _legend(found: Matrix, columns: Columns) -> Iterator[str]:
    yield "columns: " + ", ".join(_backends(head, names) for head, names in columns.items())
    if found.runs:
        yield f"verified: in {count_noun(found.runs, 'stored run')}, on any of the backends of a column"
    else:
        yield "no stored runs; `opmark run --op '*' --size small --effort quick --backend NAME` tries every operator"


def _backends(head: str, names: Sequence[str]) -> str:
    return head if names == [head] else f"{head} ({', '.join(name.removeprefix(f'{head}-') for name in names)})"


# The implementations of an operator on every backend, and those that were passed over for them.

OURS = "opmark"


class OverrideStep(NamedTuple):
    """A framework in the search order of a backend; the first one with implementations is taken."""

    framework: str
    found: tuple[Implementation, ...]
    taken: bool


def steps(operator: Operator, info: BackendInfo) -> list[OverrideStep]:
    known = [one for one in candidates(operator, info.frameworks) if not one.on_request]
    taken = implementations(operator, info)
    found = [(name, tuple(one for one in known if one.framework == name)) for name in info.frameworks]
    return [OverrideStep(name, ones, bool(taken) and taken == ones) for name, ones in found]


def implementations_table(operator: Operator) -> Table:
    table = plain_table("backend", "implementations", "looked for in", "passed over")
    for info in backends().values():
        order = steps(operator, info)
        chosen = next((i for i, step in enumerate(order) if step.taken), len(order))
        taken = ", ".join(map(_implementation_name, order[chosen].found)) if chosen < len(order) else ""
        runs = _lack(operator, info) or taken or ("none" if info.computes else "any")
        asked = [one for one in implementations(operator, info, every=True) if one.on_request]
        runs += f"; on request {', '.join(map(_implementation_name, asked))}" if asked else ""
        over = ", ".join(_implementation_name(one) for step in order[chosen + 1 :] for one in step.found)
        table.add_row(Text(info.name), Text(runs), Text(", then ".join(info.frameworks)), Text(over))
    return table


def _implementation_name(one: Implementation) -> str:
    """Return the label, with the distribution if it is not opmark."""
    return one.label if one.source == OURS else f"{one.label} ({one.source})"


def _lack(operator: Operator, info: BackendInfo) -> str:
    """Return the reason why the engine of a backend cannot run the operator, if it is known beforehand."""
    return f"none: {info.lacks[operator.name]}" if operator.name in info.lacks else ""


# The description of a quantity.

_WHERE = {
    "device": "on a device with a clock of its own, cold and warm",
    "host": "where a call returns before its work is done, warm; cold by --cache cold",
    "any": "on every backend, warm; cold by --cache cold",
}


def quantity_text(quantity: Quantity) -> Text:
    unit = {"s": "seconds", "J": "joules"}[quantity.unit]
    return Text.assemble(
        (quantity.name, "bold"), f" ({unit} a call): {quantity.meaning}\n",
        f"look at it for: {quantity.use}\n",
        f"measured: {_WHERE[quantity.on]}",
    )  # fmt: skip
