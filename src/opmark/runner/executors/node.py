"""What a node of a fleet says about itself: its chips, versions, backends, and what would disturb a measurement."""

from __future__ import annotations

import platform
import re

import msgspec

from opmark.errors import UserError
from opmark.hardware.disturbances import disturbances
from opmark.hardware.gpu_disturbances import gpu_disturbances
from opmark.hardware.host import host, nvidia_driver
from opmark.plugin.registry import backend as find_backend
from opmark.runner.survey import survey
from opmark.schema.fleet import CPU, NodeReport, NodeRequest, Owner, encode
from opmark.schema.machine import Availability, DiagnosisItem
from opmark.version import VERSION

UNFIT = frozenset({"load", "other processes", "steal", "container quota", "swap"})
"""Findings about a host for which a node takes no work. The others, such as turbo, belong to the machine: they are
shown, and every record has them."""
UNFIT_DEVICE = frozenset({"throttling", "temperature", "other processes", "memory", "compute mode", "GPUs"})
"""The same for a GPU."""
RECENT = 90.0
"""Seconds for which the load average still shows what was measured before."""


def describe_node(request: bytes) -> bytes:
    asked = msgspec.json.decode(request, type=NodeRequest)
    chips = {CPU: str(host()["cpu"])}
    chips |= {f"gpu:{i}": name for i, name in enumerate(_accelerator_names(asked.accelerators))}
    ignore = _processes_here(asked.driver) if asked.driver else []
    findings = [*disturbances(ignore=ignore), *gpu_disturbances()] if asked.examine else []
    known = [_availability(name) for name in asked.backends]
    return encode(NodeReport(VERSION, platform.python_version(), host(), chips, known, findings))


def _processes_here(driver: Owner) -> list[int]:
    return [driver.pid] if driver.pid and driver.host == platform.node() else []


def _accelerator_names(count: int) -> list[str]:
    """Names of the accelerators as far as the driver of NVIDIA tells them; of others only that they exist."""
    names: list[str] = []
    for part in nvidia_driver().get("gpu", "").split(", "):
        several = re.fullmatch(r"(\d+) × (.+)", part)
        names += [several[2]] * int(several[1]) if several else [part] if part else []
    return [names[i] if i < len(names) else "accelerator" for i in range(count)]


def _availability(name: str) -> Availability:
    """What this node knows about a backend, without starting it. An interpreter that the node lacks is a reason."""
    try:
        (found,) = survey([find_backend(name)])
    except UserError as error:
        return Availability(name, "", error.message, probed=False)
    return msgspec.structs.replace(found, name=name)


def reasons_of(findings: list[DiagnosisItem], devices: list[str], idle: float) -> list[str]:
    """Return why a node is not fit to measure on these devices (`cpu`, `gpu:0`). The load average counts only where
    nobody has measured there for a while."""
    ids = {device.rpartition(":")[2] for device in devices if device != CPU}
    found = []
    for item in findings:
        name, _, gpu = item.name.partition(" of GPU ")
        relevant = (name in UNFIT_DEVICE and gpu in ids) if gpu else (name in UNFIT or (name == "GPUs" and bool(ids)))
        if not item.ok and relevant and (name != "load" or idle > RECENT):
            found.append(f"{item.name}: {item.found}")
    return found


def why_unfit(devices: list[str], idle: float, driver: Owner) -> str:
    """Examine this node now; return why nothing should be measured on it, empty if it is fit. The driver that asks may
    be at work on the same machine: it is no reason to refuse its own run."""
    findings = [*disturbances(ignore=_processes_here(driver)), *(gpu_disturbances() if devices != [CPU] else [])]
    return "; ".join(reasons_of(findings, devices, idle))
