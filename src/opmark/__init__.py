"""opmark measures deep-learning operators: one workload, any framework, any device, true numbers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from opmark._moved import MovedModules

if TYPE_CHECKING:
    from opmark.api.ab import ab
    from opmark.api.capture import capture
    from opmark.api.check import check
    from opmark.api.compare import compare
    from opmark.api.history import history
    from opmark.api.judge import judge
    from opmark.api.rank import rank
    from opmark.api.replay import replay
    from opmark.api.report import make_report
    from opmark.api.result import Result
    from opmark.api.run import Profiling, plan, run
    from opmark.api.schedule import schedule
    from opmark.api.show import show
    from opmark.dashboard.serve import serve
    from opmark.errors import OpmarkError, TaskError, UserError
    from opmark.schema import Entry, Workload

# Public name -> module and attribute. Loaded on first use, so that `import opmark` and `opmark --help` are quick.
_PUBLIC = {
    "Entry": "opmark.schema:Entry",
    "OpmarkError": "opmark.errors:OpmarkError",
    "Profiling": "opmark.api.run:Profiling",
    "Result": "opmark.api.result:Result",
    "TaskError": "opmark.errors:TaskError",
    "UserError": "opmark.errors:UserError",
    "Workload": "opmark.schema:Workload",
    "ab": "opmark.api.ab:ab",
    "capture": "opmark.api.capture:capture",
    "check": "opmark.api.check:check",
    "compare": "opmark.api.compare:compare",
    "history": "opmark.api.history:history",
    "judge": "opmark.api.judge:judge",
    "make_report": "opmark.api.report:make_report",
    "plan": "opmark.api.run:plan",
    "rank": "opmark.api.rank:rank",
    "replay": "opmark.api.replay:replay",
    "run": "opmark.api.run:run",
    "schedule": "opmark.api.schedule:schedule",
    "serve": "opmark.dashboard.serve:serve",
    "show": "opmark.api.show:show",
}

# Names of 0.8 that are no longer public -> module and attribute. They work for one more version, with a warning.
_MOVED = {
    "bisect": "opmark.api.bisect:bisect",
    "calibrate": "opmark.api.calibrate:calibrate",
    "coverage": "opmark.api.coverage:coverage",
    "create_env": "opmark.api.env:create_env",
    "describe": "opmark.api.describe:describe",
    "describe_run": "opmark.api.runs:describe_run",
    "doctor": "opmark.api.doctor:doctor",
    "envs": "opmark.api.env:envs",
    "export": "opmark.api.export:export",
    "export_workload": "opmark.api.export:export_workload",
    "fit": "opmark.api.fit:fit",
    "label": "opmark.api.runs:label",
    "list": "opmark.api.list_:list_",
    "merge": "opmark.api.merge:merge",
    "noise_floor": "opmark.api.doctor:noise_floor",
    "prune": "opmark.api.prune:prune",
    "push": "opmark.api.push:push",
    "query": "opmark.api.query:query",
    "read_ranking": "opmark.api.rank:read_ranking",
    "read_workload": "opmark.api.import_:read_workload",
    "remove_env": "opmark.api.env:remove_env",
    "runs": "opmark.api.runs:runs",
    "to_arrow": "opmark.report.formats.dataframe:to_arrow",
    "to_pandas": "opmark.report.formats.dataframe:to_pandas",
}

sys.meta_path.append(MovedModules())


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


__all__ = [
    "Entry",
    "OpmarkError",
    "Profiling",
    "Result",
    "TaskError",
    "UserError",
    "Workload",
    "ab",
    "capture",
    "check",
    "compare",
    "history",
    "judge",
    "make_report",
    "plan",
    "rank",
    "replay",
    "run",
    "schedule",
    "serve",
    "show",
]
