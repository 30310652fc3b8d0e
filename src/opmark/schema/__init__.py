"""Data that is stored or sent, as frozen structs. This package imports no framework and nothing above it."""

from opmark.schema.case import Case
from opmark.schema.compilation import Compilation
from opmark.schema.conditions import Conditions, Reading
from opmark.schema.cost import Cost
from opmark.schema.diagnosis import Availability, Diagnosis, Finding
from opmark.schema.environment import Environment
from opmark.schema.imported import Imported, Problem
from opmark.schema.measurement import Caution, CrossCheck, Kernel, Measurement
from opmark.schema.numerics import Numerics
from opmark.schema.operator import PHASES, Implementation, Launch, Operator, Phase, Rule, Tolerance
from opmark.schema.overlap import Overlap
from opmark.schema.param import Param, Params
from opmark.schema.peaks import Peaks
from opmark.schema.profile import KernelMetrics, Profile
from opmark.schema.quantity import CACHES, QUANTITIES, Cache, Quantity
from opmark.schema.record import FAILED, Memory, Record, Status, Verification
from opmark.schema.run import Run
from opmark.schema.sampling import DEVICE_PROCESSES, EFFORTS, PROCESSES, Sampling
from opmark.schema.task import MODES, Mode, Settings, Task
from opmark.schema.tensor import TensorSpec
from opmark.schema.traffic import Traffic
from opmark.schema.workload import Entry, Workload

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
    "Entry",
    "Environment",
    "Finding",
    "Implementation",
    "Imported",
    "Kernel",
    "KernelMetrics",
    "Launch",
    "Measurement",
    "Memory",
    "Mode",
    "Numerics",
    "Operator",
    "Overlap",
    "Param",
    "Params",
    "Peaks",
    "Phase",
    "Problem",
    "Profile",
    "Quantity",
    "Reading",
    "Record",
    "Rule",
    "Run",
    "Sampling",
    "Settings",
    "Status",
    "Task",
    "TensorSpec",
    "Tolerance",
    "Traffic",
    "Verification",
    "Workload",
]
