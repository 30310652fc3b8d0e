"""Import paths of 0.8 that strangers use: they work for one version and say where the module is now."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NEW_PATHS = {
    "opmark.interfaces": "opmark.plugin",
    "opmark.registry": "opmark.plugin.registry",
    "opmark.compat": "opmark.interop",
}


class MovedModules(MetaPathFinder, Loader):
    """Finds a moved module by its old path, and puts the module of the new path in its place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if _new_path(fullname) else None

    def exec_module(self, module: ModuleType) -> None:
        new = _new_path(module.__name__)
        assert new is not None
        warnings.warn(
            f"{module.__name__} is {new} since opmark 0.9; the old path goes with 0.10",
            DeprecationWarning,
            stacklevel=2,
        )
        sys.modules[module.__name__] = import_module(new)


def _new_path(name: str) -> str | None:
    for old, new in _NEW_PATHS.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return None
