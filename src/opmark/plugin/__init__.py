"""What a third party implements. A plug-in imports this package, `opmark.schema` and `opmark.errors`, nothing else."""

from opmark.plugin.backend import (
    BLOCK,
    Backend,
    BackendInfo,
    Build,
    CallCost,
    Function,
    HostBackend,
    Installation,
    LaidOutSlot,
    MemoryLayout,
    Streams,
    TensorSlot,
    draw_values,
    make_values,
)
from opmark.plugin.formats import Exporter, Importer, Results, WorkloadExporter
from opmark.plugin.instruments import Activity, DeviceClock, MemoryProbe, Sensors, Timer, Trace
from opmark.plugin.operator import Family, Implementation, Launch, Operator, ParamRule, Tolerance
from opmark.plugin.param import Param, Params
from opmark.plugin.process_group import Announce, Exchange, Peers, ProcessGroup, World
from opmark.plugin.profiler import Profiler, Watched
from opmark.plugin.shared_memory import Arena, ArrayPlace, SharedTensors
from opmark.plugin.space import Configuration, Knob, Space, SpaceRule, splits
from opmark.plugin.tuner import Tuner, TuningProblem

__all__ = [
    "BLOCK",
    "Activity",
    "Announce",
    "Arena",
    "ArrayPlace",
    "Backend",
    "BackendInfo",
    "Build",
    "CallCost",
    "Configuration",
    "DeviceClock",
    "Exchange",
    "Exporter",
    "Family",
    "Function",
    "HostBackend",
    "Implementation",
    "Importer",
    "Installation",
    "Knob",
    "LaidOutSlot",
    "Launch",
    "MemoryLayout",
    "MemoryProbe",
    "Operator",
    "Param",
    "ParamRule",
    "Params",
    "Peers",
    "ProcessGroup",
    "Profiler",
    "Results",
    "Sensors",
    "SharedTensors",
    "Space",
    "SpaceRule",
    "Streams",
    "TensorSlot",
    "Timer",
    "Tolerance",
    "Trace",
    "Tuner",
    "TuningProblem",
    "Watched",
    "WorkloadExporter",
    "World",
    "draw_values",
    "make_values",
    "splits",
]
