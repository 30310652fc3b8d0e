"""Find what would disturb a measurement on this machine, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import psutil

from opmark.hardware import host as host_module
from opmark.schema import DiagnosisItem
from opmark.units import count_bytes, percent

BUSY_SHARE = 0.1
"""A process that uses more than this share of a core is reported."""


def disturbances(seconds: float = 0.3, ignore: Collection[int] = ()) -> list[DiagnosisItem]:
    """Watch the machine for that many seconds. `ignore`: processes that are no disturbance, with all that they have
    started."""
    busy, steal = _watch(seconds, ignore)
    return [_load(), _busy(busy), _steal(steal), *(finding for check in _STATIC for finding in check())]


def _load() -> DiagnosisItem:
    load, cores = os.getloadavg()[0], len(host_module.affinity())
    return DiagnosisItem(
        "load", load < 0.5 * cores, f"{load:.2f} over the last minute on {cores} cores",
        "stop other work, or wait until it is done",
    )  # fmt: skip


def _busy(busy: list[tuple[str, float]]) -> DiagnosisItem:
    if not busy:
        return DiagnosisItem("other processes", ok=True, found=f"none above {percent(BUSY_SHARE)} of a core")
    listed = ", ".join(f"{name} {percent(share)}" for name, share in busy[:3])
    return DiagnosisItem("other processes", ok=False, found=f"busy: {listed}", hint="stop them while measuring")


def _steal(share: float) -> DiagnosisItem:
    return DiagnosisItem(
        "steal", share < 0.01, f"the hypervisor took {percent(share)} of the time",
        "another virtual machine shares these cores; repeat, or use a dedicated host",
    )  # fmt: skip


def _governor() -> Iterator[DiagnosisItem]:
    governor = host_module.governor()
    if governor is None:
        yield DiagnosisItem("governor", ok=True, found="not reported by the kernel (usual in a virtual machine)")
    else:
        hint = "sudo cpupower frequency-set --governor performance"
        yield DiagnosisItem("governor", governor == "performance", governor, hint)


def _turbo() -> Iterator[DiagnosisItem]:
    turbo = host_module.turbo()
    if turbo is not None:
        hint = "clocks depend on temperature and on other cores; switch turbo off for steadier numbers"
        yield DiagnosisItem("turbo", not turbo, "on" if turbo else "off", hint)


def _hyperthreads() -> Iterator[DiagnosisItem]:
    active = host_module.hyperthreads()
    if active is not None:
        hint = "two threads share a core: use --threads with the number of real cores"
        yield DiagnosisItem("hyper-threads", not active, "on" if active else "off", hint)


def _quota() -> Iterator[DiagnosisItem]:
    """A container whose quota is below its cores is paused in the middle of samples."""
    path = Path("/sys/fs/cgroup/cpu.max")
    if not path.exists():
        return
    quota, period = path.read_text().split()
    if quota != "max":
        cores = int(quota) / int(period)
        enough = cores >= len(host_module.affinity())
        hint = f"use --threads {max(1, int(cores))} at most, or raise the container's limit"
        yield DiagnosisItem("container quota", enough, f"{cores:g} cores", hint)


def _swap() -> Iterator[DiagnosisItem]:
    used = psutil.swap_memory().used
    yield DiagnosisItem("swap", used < 64 * 2**20, f"{count_bytes(used)} in use", "free memory before measuring")


_STATIC: tuple[Callable[[], Iterator[DiagnosisItem]], ...] = (_governor, _turbo, _hyperthreads, _quota, _swap)


def _watch(seconds: float, ignore: Collection[int] = ()) -> tuple[list[tuple[str, float]], float]:
    """Return (busy processes with their share of a core, largest first; share of time stolen) over that time."""
    own = {os.getpid(), *(pid for top in ignore for pid in _tree(top))}
    processes = {p.pid: p for p in psutil.process_iter(["name"]) if p.pid not in own}
    for process in list(processes.values()):
        _share(process)
    before = psutil.cpu_times()
    psutil.cpu_percent(interval=seconds)
    after = psutil.cpu_times()
    shares = [(process.info["name"] or "?", _share(process)) for process in processes.values()]
    total = sum(after) - sum(before)
    steal = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)
    busy = sorted((s for s in shares if s[1] > BUSY_SHARE), key=lambda s: -s[1])
    return busy, steal / total if total > 0 else 0.0


def _tree(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return []


def _share(process: psutil.Process) -> float:
    """Return the share of a core used since the last call; 0 for a process that is gone or not accessible."""
    try:
        return process.cpu_percent() / 100
    except psutil.Error:
        return 0.0
