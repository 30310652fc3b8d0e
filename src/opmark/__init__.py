"""opmark measures deep-learning operators: one workload, any framework, any device, true numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opmark.api.checking import check
    from opmark.api.comparing import compare
    from opmark.api.following import history
    from opmark.api.interleaving import ab
    from opmark.api.measuring import plan, run
    from opmark.api.reporting import make_report
    from opmark.api.stored import rank, show
    from opmark.dashboard.serving import serve
    from opmark.errors import OpmarkError, TaskError, UserError
    from opmark.result import Result
    from opmark.runner.profiling import Profiling
    from opmark.schema import Entry, Workload

__all__ = [
    "Entry",
    "OpmarkError",
    "Profiling",
    "Result",
    "TaskError",
    "UserError",
    "Workload",
    "ab",
    "check",
    "compare",
    "history",
    "make_report",
    "plan",
    "rank",
    "run",
    "serve",
    "show",
]

# Public name -> where it is. Loaded on first use, so that `import opmark` and `opmark --help` cost nothing.
_PUBLIC = {
    "Entry": "opmark.schema:Entry",
    "OpmarkError": "opmark.errors:OpmarkError",
    "Profiling": "opmark.runner.profiling:Profiling",
    "Result": "opmark.result:Result",
    "TaskError": "opmark.errors:TaskError",
    "UserError": "opmark.errors:UserError",
    "Workload": "opmark.schema:Workload",
    "ab": "opmark.api.interleaving:ab",
    "check": "opmark.api.checking:check",
    "compare": "opmark.api.comparing:compare",
    "history": "opmark.api.following:history",
    "make_report": "opmark.api.reporting:make_report",
    "plan": "opmark.api.measuring:plan",
    "rank": "opmark.api.stored:rank",
    "run": "opmark.api.measuring:run",
    "serve": "opmark.dashboard.serving:serve",
    "show": "opmark.api.stored:show",
}

# Names of 0.8 that are no longer public here -> where they are. They work for one more version, with a warning.
_MOVED = {
    "bisect": "opmark.api.bisecting:bisect",
    "calibrate": "opmark.api.machine:calibrate",
    "coverage": "opmark.api.stored:coverage",
    "create_env": "opmark.api.env:create_env",
    "describe": "opmark.api.catalogue:describe",
    "describe_run": "opmark.api.stores:describe_run",
    "doctor": "opmark.api.machine:doctor",
    "envs": "opmark.api.env:envs",
    "export": "opmark.api.stored:export",
    "export_workload": "opmark.api.workloads:export_workload",
    "fit": "opmark.api.stored:fit",
    "label": "opmark.api.stores:label",
    "list": "opmark.api.catalogue:list_",
    "merge": "opmark.api.stores:merge",
    "noise_floor": "opmark.api.machine:noise_floor",
    "prune": "opmark.api.pruning:prune",
    "push": "opmark.api.pushing:push",
    "query": "opmark.api.querying:query",
    "read_ranking": "opmark.api.stored:read_ranking",
    "read_workload": "opmark.api.workloads:read_workload",
    "remove_env": "opmark.api.env:remove_env",
    "runs": "opmark.api.stores:runs",
    "to_arrow": "opmark.tabular:to_arrow",
    "to_pandas": "opmark.tabular:to_pandas",
}


def __dir__() -> Any:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from opmark.version import VERSION

        return VERSION
    place = _PUBLIC.get(name) or _MOVED.get(name)
    if place is None:
        raise AttributeError(f"module 'opmark' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    if name in _MOVED:
        import warnings

        message = f"opmark.{name} will go with the next version: use `from {module} import {attribute}`"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
    return found
