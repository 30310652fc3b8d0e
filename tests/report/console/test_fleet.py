"""The table of a fleet: narrow, with whatever is long below it."""

from __future__ import annotations

import io
import time

import pytest

from opmark.report.console.fleet import print_nodes
from opmark.report.console.table import PlainConsole
from opmark.schema.fleet import FleetNode, Lease, NodeReport, Owner
from opmark.schema.machine import Availability

CHIP = "AMD EPYC 9654 96-Core Processor"
WHAT = "opmark run --suite llm --backend torch-cpu,jax-cpu,onnxruntime-cpu --executor ray --address node-1:6379"


@pytest.fixture
def nodes() -> list[FleetNode]:
    known = [Availability("torch-cpu", "", None, {"torch": "2.13.0+cpu", "numpy": "2.4.0"})]
    report = NodeReport("0.10.0", "3.11.7", {}, {"cpu": CHIP, "gpu:0": "NVIDIA H100 80GB HBM3"}, known)
    lease = Lease("t", ("node-1/cpu",), Owner("annabelle", "workstation-7", WHAT), time.time() - 12, time.time() + 9)
    busy = "other processes: busy: make 101 %, cc1plus 99 %, cc1plus 98 %; load: 17.20 over the last minute on 96 cores"
    return [
        FleetNode("node-1", "10.0.0.1", report, "", [lease]),
        FleetNode("node-2", "10.0.0.2", report, busy, []),
        FleetNode("node-3", "10.0.0.3", None, "it has not answered within 60 s", []),
    ]


def printed(nodes: list[FleetNode], width: int, *, terminal: bool) -> list[str]:
    out = io.StringIO()
    print_nodes(nodes, PlainConsole(file=out, width=width, force_terminal=terminal, color_system=None))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_hundred_columns_are_enough(nodes: list[FleetNode]) -> None:
    lines = printed(nodes, 100, terminal=True)
    assert max(map(len, lines)) <= 100
    assert sum("annabelle@workstation-7  yes" in line for line in lines) == 1, "no cell is folded"
    table = printed(nodes, 1000, terminal=False)
    assert max(map(len, table[: table.index("")])) <= 100


def test_what_is_long_is_said_in_full_below(nodes: list[FleetNode]) -> None:
    lines = printed(nodes, 1000, terminal=False)
    notes = lines[lines.index("") + 1 :]
    assert notes[0].startswith("node-1/cpu: held for 12")
    assert notes[0].endswith(f"by annabelle@workstation-7: {WHAT}")
    assert notes[1] == f"node-2 takes no work: {nodes[1].reason}"
    assert notes[2] == "node-3 takes no work: it has not answered within 60 s"
    assert notes[3:] == ["node-1, node-2: opmark 0.10.0, Python 3.11.7, torch 2.13.0+cpu, numpy 2.4.0"]
