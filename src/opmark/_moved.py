"""Import paths of 0.8: in 0.9 they still work, with a warning that names the new path."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_NEW_PATHS = {
    "opmark.interfaces": "opmark.plugin",
    "opmark.registry": "opmark.plugin.registry",
    "opmark.compat": "opmark.interop",
}


class MovedModules:
    """Finds a module by its old path, and puts the module of the new path in its place.

    It is the last to be asked, so that it costs other imports nothing. Once an old package was found it is the first:
    the module below an old package would else be found a second time, beside the new one.
    """

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        loader: Any = self  # no subclass of importlib.abc.Loader, which takes long to import
        return ModuleSpec(name, loader) if _new_path(name) else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an empty module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        new = _new_path(module.__name__)
        assert new is not None
        sys.meta_path.remove(self)
        sys.meta_path.insert(0, self)
        warn(module.__name__, new)
        sys.modules[module.__name__] = import_module(new)


def moved_name(old: str, module: str, name: str) -> Any:
    """Return the object that `old` named and that is `name` of another module now."""
    warn(old, f"{module}.{name}")
    return getattr(import_module(module), name)


def warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is {new} since opmark 0.9; the old path goes with 0.10", FutureWarning, stacklevel=3)


def _new_path(name: str) -> str | None:
    for old, new in _NEW_PATHS.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return None
