"""How much of a framework can be measured, as a table and as data."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Group
from rich.text import Text

from opmark.report.tables import plain_table
from opmark.schema.coverage import TIERS, Coverage, Covered
from opmark.units import counted


def coverage_view(found: Coverage) -> dict[str, Any]:
    return {
        "framework": found.framework,
        "run": found.run,
        "operators": len(found.operators),
        "functions": len({covered.function for covered in found.operators}),
        "tiers": {tier: _counts(found, found.of_tier(tier)) for tier in TIERS},
        "uncovered": {covered.name: covered.reason for covered in found.uncovered()},
        "details": msgspec.to_builtins(found.operators),
    }


def _counts(found: Coverage, among: list[Covered]) -> dict[str, int]:
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
        counts = _counts(found, among)
        measured = [str(counts[f"{phase}_measured"]) if found.run else "" for phase in ("forward", "backward")]
        table.add_row(name, str(counts["operators"]), str(counts["differentiable"]), *measured, what)
    return Group(
        Text(f"{found.framework}: {counted(len(found.operators), 'operator')}, {counted(functions, 'function')}"),
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
