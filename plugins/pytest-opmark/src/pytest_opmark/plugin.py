"""What pytest sees: options, the fixture, and the table at the end of a session."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_opmark.fixture import PROPERTY, OpmarkFixture

_HEADS = ("test", "case", "backend", "baseline", "now", "B/A", "interval", "outcome")
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("opmark", "speed of operators and functions")
    group.addoption("--opmark-db", help="The store with the baselines. [default: ini opmark_db, or opmark's own]")
    group.addoption(
        "--opmark-baseline", help="Label, id or STORE::RUN of the baseline. [default: ini opmark_baseline, or pytest]"
    )
    group.addoption("--opmark-update", action="store_true", help="Measure the baseline anew, and compare nothing.")
    parser.addini("opmark_db", "the store with the baselines")
    parser.addini("opmark_baseline", "label, id or STORE::RUN of the baseline", default="pytest")


@pytest.fixture
def opmark(request: pytest.FixtureRequest) -> OpmarkFixture:
    """Holds operators and functions against a stored baseline."""
    config = request.config
    return OpmarkFixture(
        request.node,
        config.getoption("--opmark-baseline") or config.getini("opmark_baseline"),
        config.getoption("--opmark-db") or config.getini("opmark_db") or None,
        update=config.getoption("--opmark-update"),
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for some in terminalreporter.stats.values() for report in some]
    rows = [
        [report.nodeid, *_cells(row)]
        for report in reports if getattr(report, "when", "") == "call"
        for name, row in report.user_properties if name == PROPERTY
    ]  # fmt: skip
    if not rows:
        return
    terminalreporter.section("opmark")
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    for row in (list(_HEADS), *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        terminalreporter.write_line(line)


def _cells(row: dict[str, Any]) -> list[str]:
    interval = "" if row["low"] is None else f"{row['low']:.3f}–{row['high']:.3f}"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}x"
    case = f"{row['op']} {row['params']}".strip()
    return [case, row["where"], _duration(row["a"]), _duration(row["b"]), ratio, interval, row["outcome"]]


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds / size:.3g} {unit}"
