"""opmark measures deep-learning operators: one workload, any framework, any device, true numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opmark.api import (
        ab,
        bisect,
        calibrate,
        check,
        compare,
        coverage,
        describe,
        describe_run,
        export,
        export_workload,
        fit,
        history,
        label,
        make_report,
        merge,
        noise_floor,
        plan,
        prune,
        push,
        query,
        rank,
        read_ranking,
        read_workload,
        run,
        runs,
        show,
    )
    from opmark.api import list_ as list
    from opmark.dashboard.serving import serve
    from opmark.errors import OpmarkError, TaskError, UserError
    from opmark.guests.manage import create_env, envs, remove_env
    from opmark.result import Result
    from opmark.runner.doctor import doctor
    from opmark.runner.profiling import Profiling
    from opmark.schema import Entry, Workload
    from opmark.tabular import to_arrow, to_pandas

# Public name -> where it is. Loaded on first use, so that `import opmark` and `opmark --help` cost nothing.
_PUBLIC = {
    "OpmarkError": "opmark.errors:OpmarkError",
    "Profiling": "opmark.runner.profiling:Profiling",
    "Result": "opmark.result:Result",
    "TaskError": "opmark.errors:TaskError",
    "UserError": "opmark.errors:UserError",
    "ab": "opmark.api:ab",
    "bisect": "opmark.api:bisect",
    "calibrate": "opmark.api:calibrate",
    "check": "opmark.api:check",
    "compare": "opmark.api:compare",
    "Entry": "opmark.schema:Entry",
    "Workload": "opmark.schema:Workload",
    "coverage": "opmark.api:coverage",
    "create_env": "opmark.guests.manage:create_env",
    "describe": "opmark.api:describe",
    "describe_run": "opmark.api:describe_run",
    "doctor": "opmark.runner.doctor:doctor",
    "envs": "opmark.guests.manage:envs",
    "export": "opmark.api:export",
    "export_workload": "opmark.api:export_workload",
    "fit": "opmark.api:fit",
    "history": "opmark.api:history",
    "label": "opmark.api:label",
    "list": "opmark.api:list_",
    "make_report": "opmark.api:make_report",
    "merge": "opmark.api:merge",
    "noise_floor": "opmark.api:noise_floor",
    "plan": "opmark.api:plan",
    "prune": "opmark.api:prune",
    "push": "opmark.api:push",
    "query": "opmark.api:query",
    "rank": "opmark.api:rank",
    "read_ranking": "opmark.api:read_ranking",
    "read_workload": "opmark.api:read_workload",
    "remove_env": "opmark.guests.manage:remove_env",
    "run": "opmark.api:run",
    "runs": "opmark.api:runs",
    "serve": "opmark.dashboard.serving:serve",
    "show": "opmark.api:show",
    "to_arrow": "opmark.tabular:to_arrow",
    "to_pandas": "opmark.tabular:to_pandas",
}

__all__ = [
    "Entry",
    "OpmarkError",
    "Profiling",
    "Result",
    "TaskError",
    "UserError",
    "Workload",
    "ab",
    "bisect",
    "calibrate",
    "check",
    "compare",
    "coverage",
    "create_env",
    "describe",
    "describe_run",
    "doctor",
    "envs",
    "export",
    "export_workload",
    "fit",
    "history",
    "label",
    "list",
    "make_report",
    "merge",
    "noise_floor",
    "plan",
    "prune",
    "push",
    "query",
    "rank",
    "read_ranking",
    "read_workload",
    "remove_env",
    "run",
    "runs",
    "serve",
    "show",
    "to_arrow",
    "to_pandas",
]


def __dir__() -> Any:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from opmark.version import VERSION

        return VERSION
    if name not in _PUBLIC:
        raise AttributeError(f"module 'opmark' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _PUBLIC[name].partition(":")
    return getattr(import_module(module), attribute)
