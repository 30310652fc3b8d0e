"""Runs the benchmarks and prints their table as it is in README.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks import (
    ab_real,
    capture,
    catalogue,
    collectives,
    dashboard,
    engine,
    general_perf,
    importing,
    memory,
    models,
    param,
    requests,
    side_by_side,
    startup,
    statistics,
    sweep,
    tiny_cases,
    verification,
)
from benchmarks.common import Bystanders, Row, Shell, markdown, wait_for_quiet
from opmark.hardware.host import host

MODULES = (
    startup,
    tiny_cases,
    verification,
    sweep,
    memory,
    engine,
    catalogue,
    importing,
    param,
    side_by_side,
    models,
    general_perf,
    requests,
    collectives,
    statistics,
    ab_real,
    capture,
    dashboard,
)
BENCHMARKS = {module.__name__.rpartition(".")[2]: module.rows for module in MODULES}
README = Path(__file__).with_name("README.md")
BEGIN = "<!-- the output of `python -m benchmarks`: begin -->"
END = "<!-- the output of `python -m benchmarks`: end -->"


def main() -> None:
    arguments = _arguments()
    load = os.getloadavg()[0]
    rows: list[Row] = []
    others: dict[str, float] = {}
    for name in arguments.names or BENCHMARKS:
        found, others[name] = _run(name)
        rows += found
    text = f"{BEGIN}\n{markdown(rows)}\n\n{_machine(load, others)}\n{END}"
    print(text)
    if arguments.write:
        _write(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the cost of opmark itself.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"benchmarks to run: {', '.join(BENCHMARKS)}. [default: all]"
    )
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark `{name}`; there are {', '.join(BENCHMARKS)}")
    if arguments.write and arguments.names:
        parser.error("--write needs all benchmarks, so that the table stays whole")
    return arguments


def _run(name: str) -> tuple[Sequence[Row], float]:
    """Return the rows of a benchmark, and the share of the cores that other processes took meanwhile."""
    print(f"{name} ...", file=sys.stderr)
    wait_for_quiet()
    bystanders = Bystanders()
    with tempfile.TemporaryDirectory() as folder:
        rows = BENCHMARKS[name](Shell(Path(folder)))
    return rows, bystanders.share()


def _machine(load: float, others: dict[str, float]) -> str:
    facts = host()
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in others.items())
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}, torch {version('torch')}. "
        f"Load average before the start {load:.1f}; cores taken by other processes: {shares}."
    )


def _write(text: str) -> None:
    before, begin, rest = README.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{README} lacks the lines between which the table goes:\n{BEGIN}\n{END}")
    README.write_text(before + text + after)


if __name__ == "__main__":
    main()
