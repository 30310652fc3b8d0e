"""A gate of made-up runs, whose second look is made up as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checks import compared, pairing
from compared import QUIET, keep

from opmark.api import confirm
from opmark.api.check import check
from opmark.api.requests import TurnOptions
from opmark.schema.comparison import CheckResult, Compared, Verdict
from opmark.schema.messages import Side
from opmark.schema.options import StoreOptions

BASE, NOW = "20300101-000000-aaaa", "20300102-000000-bbbb"
OPS = ("exp", "tanh")


def times(factor: float) -> list[float]:
    return [1e-3 * factor * one for one in QUIET]


def rows(**factors: float | str | list[float]) -> dict[tuple[str, str], Any]:
    return {
        ("torch-cpu", op): value if isinstance(value, str | list) else times(value) for op, value in factors.items()
    }


class Turns:
    """Instead of measuring in turns: this verdict for every case."""

    def __init__(self, verdict: Verdict | None = "slower", ratio: float | None = 1.1, **more: Any) -> None:
        self.verdict = verdict
        self.ratio = ratio
        self.more = more
        self.asked: list[dict[str, Any]] = []

    def __call__(self, a: Side, b: Side, cases: Any, options: TurnOptions, keep: StoreOptions, **how: Any) -> Compared:
        ops = sorted(case.op for case in cases)
        self.asked.append({"a": a, "b": b, "ops": ops, **vars(options), **vars(keep), **how})
        told = {"verdict": self.verdict, **self.more}
        pairs = [pairing(case.op, self.ratio, case=case.id, **told) for case in cases if self.verdict]
        return compared(*pairs, runs=("again-a", "again-b"))


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What can be measured again, by the name of the side; another commit each, unless a test says otherwise."""
    known: dict[str, Any] = {}

    def again(then: Any, ops: Any, stack: Any, *, here: bool = False, command: str = "") -> Any:
        return known.get(then.name, Side(then.name, then.backend, then.threads, {"COMMIT": then.name}))

    monkeypatch.setattr(confirm, "baseline_side", again)
    return known


Gate = Callable[..., CheckResult]


@pytest.fixture
def gate(tmp_path: Path, sides: Any) -> Gate:
    db = tmp_path / "store.db"

    def run(base: dict[Any, Any], now: dict[Any, Any], in_turns: Any = None, **options: Any) -> CheckResult:
        facts = options.pop("facts", {})
        keep(db, BASE, "main", base)
        keep(db, NOW, "now", now, facts=facts)
        given = {"db": db, "say": lambda text: None, "in_turns": in_turns or Turns(), **options}
        return check(baseline="main", current="now", **given)

    return run


def outcomes(found: CheckResult) -> dict[str, str]:
    return {finding.pair.op: finding.outcome for finding in found.findings}


NOISY = [1e-3 * one for one in (1.0, 1.3, 0.9, 1.2, 1.1)]
FAILS: dict[str, Any] = {"ratio": None, "a": None, "statuses": ("ok", "error"), "note": "failed in now: error: new"}
