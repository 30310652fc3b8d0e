"""How the cores of this machine lie: physical cores and their threads, kinds, NUMA nodes. Keeps a process to some."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from opmark.errors import UserError

_CPU = Path("/sys/devices/system/cpu")
_DEVICES = Path("/sys/devices")
_NODES = Path("/sys/devices/system/node")
_KINDS = {"cpu_core": "performance", "cpu_atom": "efficiency"}
"""Folders in which Linux lists the cores of each kind of a hybrid processor of Intel."""
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237}
_BIND = 2


class LogicalCore(NamedTuple):
    number: int
    node: int
    package: int
    physical: int
    """Number of the physical core within its package; threads of one core (SMT) share it."""
    kind: str
    """`performance`, `efficiency` or a capacity, where cores differ; empty where all are alike."""


def logical_cores(cpu: Path = _CPU, devices: Path = _DEVICES, nodes: Path = _NODES) -> list[LogicalCore]:
    """Return the cores that this process may use, as the kernel describes them. What it does not tell counts as alike:
    one package, one node, no SMT."""
    kinds = _kinds(cpu, devices)
    node_of = {
        core: int(folder.name[4:])
        for folder in nodes.glob("node[0-9]*")
        for core in core_list(_read(folder / "cpulist"))
    }
    found = []
    for number in _usable():
        topology = cpu / f"cpu{number}" / "topology"
        package, physical = (_read(topology / name) for name in ("physical_package_id", "core_id"))
        found.append(
            LogicalCore(
                number, node_of.get(number, 0), int(package) if package.isdecimal() else 0,
                int(physical) if physical.isdecimal() else number, kinds.get(number, ""),
            )
        )  # fmt: skip
    return found


def core_list(text: str) -> list[int]:
    """Return the cores of a list as the kernel writes it: `0-3,8` has five."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def scatter(cores: Sequence[LogicalCore], count: int) -> tuple[int, ...]:
    """Return so many cores, as far from each other as possible: nodes in turn, every physical core once before any
    second thread of one."""
    ranks: dict[tuple[int, int], int] = {}
    nodes: dict[tuple[int, int], int] = {}
    keyed = []
    for core in cores:
        place = (core.package, core.physical)
        thread = ranks.get(place, 0)
        ranks[place] = thread + 1
        turn = nodes.get((core.node, thread), 0)
        nodes[core.node, thread] = turn + 1
        keyed.append((thread, turn, core.node, core.number))
    return tuple(sorted(number for *_, number in sorted(keyed)[:count]))


def compact(cores: Sequence[LogicalCore], count: int) -> tuple[int, ...]:
    """Return so many cores, as close to each other as possible: all threads of a physical core, then the next core of
    the same node."""
    ordered = sorted(cores, key=lambda core: (core.node, core.package, core.physical, core.number))
    return tuple(sorted(core.number for core in ordered[:count]))


def has_smt(cores: Sequence[LogicalCore]) -> bool:
    """Whether two of the cores are threads of one physical core."""
    return len({(core.package, core.physical) for core in cores}) < len(cores)


def run_on(cores: Sequence[int]) -> None:
    """Keep this process, and what it starts from now on, to these cores."""
    if not hasattr(os, "sched_setaffinity"):
        raise UserError(f"{platform.system()} does not let a process choose its cores")
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        listed = ",".join(map(str, cores))
        raise UserError(f"cores {listed} cannot be used here: {error.strerror}") from None


def why_no_memory_policy() -> str:
    """Return why memory cannot be bound to a node; empty if it can."""
    if platform.machine() not in _SET_MEMPOLICY or platform.system() != "Linux":
        return f"the policy of memory is not known for {platform.system()} on {platform.machine()}"
    return "" if any(_NODES.glob("node[0-9]*")) else "the kernel has no NUMA nodes"


def take_memory_from(node: int) -> None:
    """Take the memory of this process from one NUMA node from now on."""
    if reason := why_no_memory_policy():
        raise UserError(f"memory cannot be bound to node {node}: {reason}")
    mask = (ctypes.c_ulong * (node // 64 + 1))()
    mask[node // 64] = 1 << (node % 64)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SET_MEMPOLICY[platform.machine()], _BIND, mask, 64 * len(mask) + 1) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise UserError(f"memory cannot be bound to node {node}: {reason}")


def _kinds(cpu: Path, devices: Path) -> dict[int, str]:
    """Return the kind of each core, where a machine has several."""
    found = {core: name for folder, name in _KINDS.items() for core in core_list(_read(devices / folder / "cpus"))}
    if not found:  # Arm's kernels tell how fast cores are relative to the fastest
        texts = {number: _read(cpu / f"cpu{number}" / "cpu_capacity") for number in _usable()}
        found = {number: f"capacity {text}" for number, text in texts.items() if text}
    return found if len(set(found.values())) > 1 else {}


def _usable() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
