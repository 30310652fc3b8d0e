"""Data that is stored or sent: frozen, strict structures. This package imports no framework and nothing above it."""

from typing import Any

from opmark.schema.case import PHASES, Case, Phase
from opmark.schema.cost import Cost, Traffic
from opmark.schema.machine import Availability, Diagnosis, DiagnosisItem, Peaks
from opmark.schema.measurement import (
    CACHES,
    QUANTITIES,
    Cache,
    Caution,
    Conditions,
    CrossCheck,
    Kernel,
    Measurement,
    Quantity,
    SensorReading,
)
from opmark.schema.record import (
    FAILED,
    Compilation,
    Environment,
    KernelMetrics,
    Memory,
    Numerics,
    Overlap,
    Profile,
    Record,
    Status,
    Verification,
)
from opmark.schema.run import Run
from opmark.schema.task import DEVICE_PROCESSES, EFFORTS, MODES, PROCESSES, Mode, Resources, Sampling, Settings, Task
from opmark.schema.tensor import TensorSpec
from opmark.schema.workload import Entry, Imported, ImportProblem, Workload

__all__ = [
    "CACHES",
    "DEVICE_PROCESSES",
    "EFFORTS",
    "FAILED",
    "MODES",
    "PHASES",
    "PROCESSES",
    "QUANTITIES",
    "Availability",
    "Cache",
    "Case",
    "Caution",
    "Compilation",
    "Conditions",
    "Cost",
    "CrossCheck",
    "Diagnosis",
    "DiagnosisItem",
    "Entry",
    "Environment",
    "ImportProblem",
    "Imported",
    "Kernel",
    "KernelMetrics",
    "Measurement",
    "Memory",
    "Mode",
    "Numerics",
    "Overlap",
    "Peaks",
    "Phase",
    "Profile",
    "Quantity",
    "Record",
    "Resources",
    "Run",
    "Sampling",
    "SensorReading",
    "Settings",
    "Status",
    "Task",
    "TensorSpec",
    "Traffic",
    "Verification",
    "Workload",
]

_MOVED = {
    **{name: name for name in ("Implementation", "Launch", "Operator", "Param", "Params", "Tolerance")},
    "Rule": "ParamRule",
}
"""Names of 0.8 that are in `opmark.plugin` now, and their names there."""


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opmark._moved import moved_name

    return moved_name(f"opmark.schema.{name}", "opmark.plugin", _MOVED[name])
