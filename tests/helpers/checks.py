"""Made-up comparisons for tests of reports."""

from __future__ import annotations

from typing import Any

from opmark.schema.comparison import CheckedCase, CheckResult, Compared, Geomean, Outcome, Pairing


def pairing(op: str = "exp", ratio: float | None = 1.1, **more: Any) -> Pairing:
    given: dict[str, Any] = {
        "case": f"id-{op}", "op": op, "params": "4x8 float32", "phase": "forward",
        "where": ("torch-cpu ×2", "torch-cpu ×2"), "quantity": "latency", "cache": "warm", "a": 1e-3,
        "b": None if ratio is None else 1e-3 * ratio, "processes": (5, 5), "ratio": ratio,
        "low": None if ratio is None else ratio - 0.01, "high": None if ratio is None else ratio + 0.01, "p": 0.001,
        "verdict": "slower", "floor": 0.0,
    }  # fmt: skip
    return Pairing(**{**given, **more})


def compared(*pairs: Pairing, **more: Any) -> Compared:
    given: dict[str, Any] = {
        "a": "main", "b": "now", "runs": ("20300101-000000-aaaa", "20300102-000000-bbbb"), "paired": False,
        "margin": 0.01, "drift": 0.02, "pairs": pairs, "geomean": Geomean(1.05, 1.01, 1.09, len(pairs)),
    }  # fmt: skip
    return Compared(**{**given, **more})


def checked(*findings: CheckedCase, **more: Any) -> CheckResult:
    given: dict[str, Any] = {
        "compared": compared(*(finding.pair for finding in findings), margin=0.03), "findings": findings, "missing": (),
        "fail_on": ("slower", "failed"),
    }  # fmt: skip
    return CheckResult(**{**given, **more})


def finding(outcome: Outcome, op: str = "exp", **more: Any) -> CheckedCase:
    ratios = {"same": 1.0, "faster": 0.8, "failed": None, "missing": None, "broken": None}
    pair = pairing(op, ratios.get(outcome, 1.1), verdict="undecided" if outcome == "undecided" else "slower")
    return CheckedCase(more.pop("pair", pair), outcome, **more)
