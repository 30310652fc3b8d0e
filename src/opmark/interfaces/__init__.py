"""Everything that a plug-in implements. It imports this package, `opmark.schema` and `opmark.errors`, nothing else."""

from opmark.interfaces.backend import Backend, BackendInfo, Counted, HostBackend
from opmark.interfaces.clocks import Activity, DeviceClock, MemoryProbe, Sensors, Timer, Trace
from opmark.interfaces.drawn import BLOCK, drawn, made
from opmark.interfaces.family import Family
from opmark.interfaces.formats import Exporter, Importer, Results, WorkloadExporter
from opmark.interfaces.function import Function, Held
from opmark.interfaces.peers import Announce, Exchange, Peers, Team, World
from opmark.interfaces.profiler import Profiler, Watched
from opmark.interfaces.store import Store

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
    "Importer",
    "MemoryProbe",
    "Peers",
    "Profiler",
    "Results",
    "Sensors",
    "Store",
    "Team",
    "Timer",
    "Trace",
    "Watched",
    "WorkloadExporter",
    "World",
    "drawn",
    "made",
]
