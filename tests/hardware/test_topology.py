"""Cores and how they lie, from made-up machines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opmark.errors import UserError
from opmark.hardware import topology
from opmark.hardware.topology import LogicalCore, compact, core_list, has_smt, logical_cores, scatter

SMT = [LogicalCore(number, number // 2 % 2, 0, number % 4, "") for number in range(8)]
"""Four physical cores on two nodes; 0 and 4 are threads of the first one."""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two fast cores with two threads each on node 0, four slow ones on node 1."""
    monkeypatch.setattr(topology, "_usable", lambda: list(range(8)))
    for number in range(8):
        physical = number // 2 if number < 4 else number
        write(tmp_path / f"cpu/cpu{number}/topology/core_id", str(physical))
        write(tmp_path / f"cpu/cpu{number}/topology/physical_package_id", "0")
    write(tmp_path / "cpu_core/cpus", "0-3")
    write(tmp_path / "cpu_atom/cpus", "4-7")
    write(tmp_path / "node/node0/cpulist", "0-3")
    write(tmp_path / "node/node1/cpulist", "4-7")
    return tmp_path


def test_the_cores_of_a_hybrid_machine(machine: Path) -> None:
    found = logical_cores(machine / "cpu", machine, machine / "node")
    assert [core.kind for core in found] == ["performance"] * 4 + ["efficiency"] * 4
    assert [core.node for core in found] == [0] * 4 + [1] * 4
    assert has_smt(found)
    assert not has_smt(found[4:])


def test_the_capacities_of_arm_are_kinds(machine: Path) -> None:
    for number in range(8):
        write(machine / f"cpu/cpu{number}/cpu_capacity", "1024" if number < 2 else "446")
    found = logical_cores(machine / "cpu", machine / "none", machine / "node")
    assert {core.kind for core in found} == {"capacity 1024", "capacity 446"}


def test_a_machine_that_tells_nothing_has_cores_alike(tmp_path: Path) -> None:
    found = logical_cores(tmp_path, tmp_path, tmp_path)
    assert found
    assert {(core.node, core.kind) for core in found} == {(0, "")}
    assert not has_smt(found)


def test_lists_of_cores() -> None:
    assert core_list("0-3,8") == [0, 1, 2, 3, 8]
    assert core_list("") == []


def test_scatter_takes_every_node_and_core_once_before_a_second_thread() -> None:
    assert scatter(SMT, 2) == (0, 2)
    assert scatter(SMT, 4) == (0, 1, 2, 3)
    assert scatter(SMT, 8) == tuple(range(8))


def test_compact_takes_the_threads_of_a_core_together() -> None:
    assert compact(SMT, 2) == (0, 4)
    assert compact(SMT, 4) == (0, 1, 4, 5)


def test_a_process_keeps_to_its_cores() -> None:
    mine = topology._usable()
    program = (
        f"import os; from opmark.hardware.topology import run_on; run_on([{mine[0]}]); print(os.sched_getaffinity(0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{{{mine[0]}}}"


def test_a_core_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="cores 99999 cannot be used here"):
        topology.run_on([99999])


def test_a_node_that_is_not_there_is_refused() -> None:
    program = "from opmark.hardware.topology import take_memory_from; take_memory_from(200)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "memory cannot be bound to node 200" in done.stderr
