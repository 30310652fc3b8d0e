"""What the command line does, as functions: the same names, the same defaults.

Each is loaded when it is first asked for: a command that shows a run does not wait for what measures one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opmark.api.bisecting import bisect
    from opmark.api.catalogue import describe, list_
    from opmark.api.checking import check
    from opmark.api.common import open_store
    from opmark.api.comparing import compare
    from opmark.api.following import history
    from opmark.api.interleaving import ab, measure_sides
    from opmark.api.machine import calibrate, noise_floor
    from opmark.api.measuring import plan, run
    from opmark.api.pruning import prune
    from opmark.api.pushing import push
    from opmark.api.querying import query
    from opmark.api.reporting import make_report
    from opmark.api.requests import talk
    from opmark.api.stored import coverage, export, fit, rank, read_ranking, show
    from opmark.api.stores import describe_run, label, merge, runs
    from opmark.api.workloads import export_workload, read_workload

# Name -> the file of this package that has it.
_WHERE = {
    "ab": "interleaving",
    "bisect": "bisecting",
    "calibrate": "machine",
    "check": "checking",
    "compare": "comparing",
    "coverage": "stored",
    "describe": "catalogue",
    "describe_run": "stores",
    "export": "stored",
    "export_workload": "workloads",
    "fit": "stored",
    "history": "following",
    "label": "stores",
    "list_": "catalogue",
    "make_report": "reporting",
    "measure_sides": "interleaving",
    "merge": "stores",
    "noise_floor": "machine",
    "open_store": "common",
    "plan": "measuring",
    "prune": "pruning",
    "push": "pushing",
    "query": "querying",
    "rank": "stored",
    "read_ranking": "stored",
    "read_workload": "workloads",
    "run": "measuring",
    "runs": "stores",
    "show": "stored",
    "talk": "requests",
}

__all__ = [
    "ab",
    "bisect",
    "calibrate",
    "check",
    "compare",
    "coverage",
    "describe",
    "describe_run",
    "export",
    "export_workload",
    "fit",
    "history",
    "label",
    "list_",
    "make_report",
    "measure_sides",
    "merge",
    "noise_floor",
    "open_store",
    "plan",
    "prune",
    "push",
    "query",
    "rank",
    "read_ranking",
    "read_workload",
    "run",
    "runs",
    "show",
    "talk",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'opmark.api' has no attribute {name!r}")
    found = getattr(import_module(f"opmark.api.{_WHERE[name]}"), name)
    globals()[name] = found
    return found
