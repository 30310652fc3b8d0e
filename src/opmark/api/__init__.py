"""What the command line does, as functions: the same names, the same defaults.

Each is loaded when it is first asked for: a command that shows a run does not wait for what measures one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opmark.api.ab import ab, measure_sides
    from opmark.api.bisect import bisect
    from opmark.api.calibrate import calibrate
    from opmark.api.check import check
    from opmark.api.compare import compare
    from opmark.api.coverage import coverage
    from opmark.api.describe import describe
    from opmark.api.doctor import noise_floor
    from opmark.api.export import export, export_workload
    from opmark.api.fit import fit
    from opmark.api.history import history
    from opmark.api.import_ import read_workload
    from opmark.api.list_ import list_
    from opmark.api.merge import merge
    from opmark.api.prune import prune
    from opmark.api.push import push
    from opmark.api.query import query
    from opmark.api.rank import rank, read_ranking
    from opmark.api.report import make_report
    from opmark.api.requests import talk
    from opmark.api.result import open_store
    from opmark.api.run import plan, run
    from opmark.api.runs import describe_run, label, runs
    from opmark.api.show import show

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


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'opmark.api' has no attribute {name!r}")
    found = getattr(import_module(f"opmark.api.{_WHERE[name]}"), name)
    globals()[name] = found
    return found


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
