"""Python imports this when it starts. In processes that a test starts, what the tests' own load disturbs is taken for
measured, as in the process of the tests themselves."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_MODULE = "opmark.runner.worker_process"


class _CalmFinder:
    """Changes the one module when a process imports it. A process that does not need the module does not import it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_calmly(module: ModuleType) -> None:
            execute(module)
            path = Path(__file__).parents[1] / "undisturbed.py"
            undisturbed = runpy.run_path(str(path))  # not imported: the path of the process stays as it is
            module.WorkerProcess.run = undisturbed["calm_worker"](module.WorkerProcess.run)

        spec.loader.exec_module = execute_calmly  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _CalmFinder)  # type: ignore[arg-type]
