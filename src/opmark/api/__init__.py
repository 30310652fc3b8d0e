"""What the command line does, as functions: the same names, the same defaults."""

from opmark.api.catalogue import describe, list_
from opmark.api.common import DEFAULT_EFFORT, DEFAULT_TIMEOUT, LONGEST_TIMEOUT, PathLike, open_store, talk
from opmark.api.machine import calibrate, noise_floor
from opmark.api.measuring import plan, run
from opmark.api.stored import coverage, export, fit, rank, read_ranking, show
from opmark.api.workloads import export_workload, read_workload

__all__ = [
    "DEFAULT_EFFORT",
    "DEFAULT_TIMEOUT",
    "LONGEST_TIMEOUT",
    "PathLike",
    "calibrate",
    "coverage",
    "describe",
    "export",
    "export_workload",
    "fit",
    "list_",
    "noise_floor",
    "open_store",
    "plan",
    "rank",
    "read_ranking",
    "read_workload",
    "run",
    "show",
    "talk",
]
