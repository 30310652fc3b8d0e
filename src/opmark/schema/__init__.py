"""The nouns: frozen, strict, one a file. This package imports no framework and nothing above it."""

from opmark.schema.case import Case
from opmark.schema.cost import Cost
from opmark.schema.diagnosis import Availability, Diagnosis, Finding
from opmark.schema.environment import Environment
from opmark.schema.measurement import Caution, Measurement
from opmark.schema.operator import PHASES, Implementation, Launch, Operator, Phase, Rule, Tolerance
from opmark.schema.param import Param, Params
from opmark.schema.record import FAILED, Memory, Record, Status, Verification
from opmark.schema.run import Run
from opmark.schema.sampling import EFFORTS, Sampling
from opmark.schema.task import Settings, Task
from opmark.schema.tensor import TensorSpec
from opmark.schema.workload import Entry, Workload

__all__ = [
    "EFFORTS",
    "FAILED",
    "PHASES",
    "Availability",
    "Case",
    "Caution",
    "Cost",
    "Diagnosis",
    "Entry",
    "Environment",
    "Finding",
    "Implementation",
    "Launch",
    "Measurement",
    "Memory",
    "Operator",
    "Param",
    "Params",
    "Phase",
    "Record",
    "Rule",
    "Run",
    "Sampling",
    "Settings",
    "Status",
    "Task",
    "TensorSpec",
    "Tolerance",
    "Verification",
    "Workload",
]
