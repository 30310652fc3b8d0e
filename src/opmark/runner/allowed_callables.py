"""Says which functions a workload file may call: a file that names any function is a program.

A file may name functions of the frameworks, of modules in its own folder, and of modules that the user allows. What is
typed on the command line or written in Python is not restricted: whoever types it can run anything anyway.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

from opmark.catalogue.families.callables import dotted_path, framework_modules
from opmark.errors import UnknownName, UserError
from opmark.plugin.registry import operator as find_operator

VARIABLE = "OPMARK_ALLOW"
"""Modules that every workload file may use, with commas between them."""

NOT_COMPUTING = (
    "torch.classes", "torch.distributed", "torch.export", "torch.from_file", "torch.hub", "torch.jit", "torch.load",
    "torch.multiprocessing", "torch.onnx", "torch.ops.load_library", "torch.package", "torch.save",
    "torch.serialization", "torch.storage", "torch.testing", "torch.utils",
    "numpy.DataSource", "numpy.ctypeslib", "numpy.distutils", "numpy.f2py", "numpy.fromfile", "numpy.fromregex",
    "numpy.genfromtxt", "numpy.lib", "numpy.load", "numpy.loadtxt", "numpy.memmap", "numpy.ndarray.dump",
    "numpy.ndarray.tofile", "numpy.save", "numpy.savetxt", "numpy.savez", "numpy.savez_compressed", "numpy.testing",
    "scipy.datasets", "scipy.io",
    "jax.distributed", "jax.experimental", "jax.ffi", "jax.numpy.load", "jax.numpy.save", "jax.profiler", "jax.tools",
    "tensorflow.data", "tensorflow.io", "tensorflow.keras.models", "tensorflow.keras.utils", "tensorflow.load_library",
    "tensorflow.load_op_library", "tensorflow.numpy_function", "tensorflow.py_function", "tensorflow.saved_model",
    "tensorflow.train",
    "mxnet.library", "mxnet.nd.load", "mxnet.nd.save",
)  # fmt: skip
"""Parts of the frameworks that load code, start programs, or read and write files."""


class AllowedCallables:
    """What one file may call. `folder` is the folder of the file; None for data that come from no file."""

    def __init__(self, allow: Iterable[str] = (), folder: Path | None = None) -> None:
        configured = os.environ.get(VARIABLE, "").split(",")
        self._allow = [name.strip().replace(":", ".") for name in (*allow, *configured) if name.strip()]
        self._folder = folder
        self._known: set[str] = set()

    def check(self, op: str) -> None:
        """Raise UserError where `op` names a callable that the file may not call."""
        if op in self._known or not set(op) & set(".:"):
            return
        try:
            callable_ = find_operator(op).category == "callable"
        except UnknownName:
            return  # the expansion of the file says so, and what is meant
        path = dotted_path(op)
        if callable_ and not (_is_below(path, self._allow) or _computes(path) or self._is_beside(path)):
            module = op.partition(":")[0] if ":" in op else path.rpartition(".")[0]
            if _is_below(path, NOT_COMPUTING):
                module = next(part for part in NOT_COMPUTING if _is_below(path, [part]))
            raise UserError(
                f"`{op}` is not a function that a workload file may call",
                f"a file that names any function is a program, so read it first; --allow {module} (in Python "
                f'allow="{module}") or {VARIABLE}={module} lets files call functions of that module',
            )
        self._known.add(op)

    def _is_beside(self, path: str) -> bool:
        """Return whether the module of a function, as workers would import it, lies in the folder of the file. Nothing
        is imported."""
        first, *rest = path.split(".")[:-1]
        if self._folder is None or first in sys.stdlib_module_names:
            return False
        found = PathFinder.find_spec(first, [str(Path.cwd()), *sys.path])
        if found is None:
            if PathFinder.find_spec(first, [str(self._folder)]):
                hint = f"run opmark in {self._folder}, or set PYTHONPATH={self._folder}"
                raise UserError(f"`{first}` lies beside the file, where Python does not look for modules", hint)
            return False
        package = next(iter(found.submodule_search_locations or ()), None)
        place = Path(package, *rest) if package else Path(found.origin or "")
        own = self._folder.resolve()
        # A module that is installed in an environment below the folder is deeper than its name has parts.
        return own in place.resolve().parents and len(place.resolve().relative_to(own).parts) <= len(rest) + 1


def _computes(path: str) -> bool:
    return _is_below(path, framework_modules()) and not _is_below(path, NOT_COMPUTING)


def _is_below(path: str, modules: Iterable[str]) -> bool:
    return any(path == module or path.startswith(f"{module}.") for module in modules)
