"""Tables about a fleet: its nodes, who measures on them, and whether they agree."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from opmark.report.console.table import plain_table, print_lines, print_prose
from opmark.schema.fleet import Agreement, FleetNode, Lease, NodeRatio, device_name
from opmark.units import percent, seconds

_PACKAGES = ("torch", "jax", "numpy", "onnxruntime", "openvino", "tensorflow")
"""Frameworks whose versions are listed."""


def print_nodes(nodes: Sequence[FleetNode], console: Console) -> None:
    """Print a narrow table of the nodes, and below it whatever may be long: commands, reasons, versions."""
    table = plain_table("node", "device", "chip", "held by", "takes work")
    for node in nodes:
        state = Text("no", style="yellow") if node.reason else Text("yes", style="green")
        chips = node.report.chips if node.report else {"": ""}
        for i, (device, chip) in enumerate(chips.items()):
            lease = _lease(node, device)
            holder = f"{lease.owner.user}@{lease.owner.host}" if lease else ""
            table.add_row(Text(node.name if i == 0 else ""), device, Text(chip), Text(holder), state if i == 0 else "")
    print_lines(table, console)
    console.print()
    for line in _node_notes(nodes):
        print_prose(line, console)


def _node_notes(nodes: Sequence[FleetNode]) -> Iterator[str]:
    for node in nodes:
        for lease in node.leases:
            held = seconds(max(0.0, time.time() - lease.since))
            yield f"{', '.join(lease.devices)}: held for {held} by {lease.owner.text}"
        if node.reason:
            yield f"{node.name} takes no work: {node.reason}"
    alike: dict[str, list[str]] = {}
    for node in nodes:
        if node.report:
            alike.setdefault(_versions(node), []).append(node.name)
    for versions, names in alike.items():
        yield f"{', '.join(names)}: {versions}"


def _lease(node: FleetNode, device: str) -> Lease | None:
    return next((lease for lease in node.leases if device_name(node.name, device) in lease.devices), None)


def _versions(node: FleetNode) -> str:
    assert node.report is not None
    found = {"opmark": node.report.opmark, "Python": node.report.python}
    for backend in node.report.backends:
        found |= {name: str(backend.facts[name]) for name in _PACKAGES if name in backend.facts and not backend.reason}
    return ", ".join(f"{name} {version}" for name, version in found.items())


def agreement_text(found: Agreement) -> Group:
    table = plain_table("node", "time over the others'", "interval", "verdict")
    for one in found.nodes:
        table.add_row(Text(one.node), *_numbers(one), one.verdict)
    parts: list[RenderableType] = [
        Text(
            f"{found.kind}, {found.backend}, {found.processes} processes per node and case; differences up to "
            f"{percent(found.margin)} are none"
        ),
        Text(),
        table,
    ]
    if found.cases:
        single = plain_table("node", "case in which it differs", "time over the others'", "interval")
        for one in found.cases:
            single.add_row(Text(one.node), Text(one.case), *_numbers(one))
        parts += [Text(), single]
    if len(found.nodes) == 2:
        parts += [Text(), Text("two nodes cannot tell which of them is the odd one")]
    return Group(*parts)


def _numbers(one: NodeRatio) -> tuple[str, str]:
    return f"{one.ratio:.3f}", f"{one.low:.3f}–{one.high:.3f}"
