"""What the doctor found, as a table."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from opmark.report.tables import plain_table
from opmark.schema import Availability, Diagnosis, Finding
from opmark.units import count_bytes


def diagnosis_text(diagnosis: Diagnosis) -> Group:
    return Group(_host(diagnosis.host), Text(), _backends(diagnosis.backends), Text(), _findings(diagnosis.findings))


def _host(facts: dict[str, Any]) -> Text:
    return Text(
        f"{facts['cpu']}, {facts['cores']} cores, {count_bytes(facts['memory'])}; {facts['system']}, "
        f"Python {facts['python']}"
    )


def _backends(backends: list[Availability]) -> Table:
    table = plain_table("backend", "runs here")
    for backend in backends:
        keys = ("numpy", "torch", "cuda", "gpu", "chip")
        versions = [f"{key} {backend.facts[key]}" for key in keys if key in backend.facts]
        state = Text("yes" + (f", {', '.join(versions)}" if versions else ""), style="green")
        table.add_row(Text(backend.name), Text(f"no: {backend.reason}", style="yellow") if backend.reason else state)
    return table


def _findings(findings: list[Finding]) -> Table:
    table = plain_table("", "check", "found")
    for finding in findings:
        mark = Text("ok", style="green") if finding.ok else Text("!", style="bold yellow")
        text = finding.found if finding.ok or not finding.hint else f"{finding.found}\nhint: {finding.hint}"
        table.add_row(mark, Text(finding.name), Text(text))
    return table
