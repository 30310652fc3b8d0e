"""Everything that a plug-in implements. It imports this package, `opmark.schema` and `opmark.errors`, nothing else."""

from opmark.interfaces.backend import Backend, BackendInfo, Counted, HostBackend
from opmark.interfaces.clocks import Activity, DeviceClock, MemoryProbe, Sensors, Timer, Trace
from opmark.interfaces.drawn import BLOCK, drawn, make_values
from opmark.interfaces.family import Family
from opmark.interfaces.formats import Exporter, Importer, Results, WorkloadExporter
from opmark.interfaces.function import Function, Held
from opmark.interfaces.peers import Announce, Exchange, Peers, Team, World
from opmark.interfaces.profiler import Profiler, Watched
from opmark.interfaces.store import Store
from opmark.schema.operator import Implementation, Launch, Operator, Rule, Tolerance
from opmark.schema.param import Param, Params

__all__ = [
    "BLOCK",
    "Activity",
    "Announce",
    "Backend",
    "BackendInfo",
    "Counted",
    "DeviceClock",
    "Exchange",
    "Exporter",
    "Family",
    "Function",
    "Held",
    "HostBackend",
    "Implementation",
    "Importer",
    "Launch",
    "MemoryProbe",
    "Operator",
    "Param",
    "Params",
    "Peers",
    "Profiler",
    "Results",
    "Rule",
    "Sensors",
    "Store",
    "Team",
    "Timer",
    "Tolerance",
    "Trace",
    "Watched",
    "WorkloadExporter",
    "World",
    "drawn",
    "make_values",
]
