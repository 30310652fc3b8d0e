"""Says which functions a workload file may call: a file that names any function is a program.

A file may name functions of the frameworks that compute (`catalogue/families/computing.py` lists their
modules), functions of modules in its own folder, and of modules that the user allows. The same holds for models in
files that are programs: a Python file, TorchScript, torch.export. What is typed on the command line or written in
Python is not restricted: whoever types it can run anything anyway.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

from opmark.catalogue.families.callables import dotted_path, framework_modules
from opmark.catalogue.families.computing import computes, is_below, part_to_allow
from opmark.errors import UnknownName, UserError
from opmark.plugin.registry import operator as find_operator

VARIABLE = "OPMARK_ALLOW"
"""Modules that every workload file may use, with commas between them."""


class AllowedCallables:
    """What one file may call. `folder` is the folder of the file; None for data that come from no file."""

    def __init__(self, allow: Iterable[str] = (), folder: Path | None = None) -> None:
        configured = os.environ.get(VARIABLE, "").split(",")
        written = [name.strip() for name in (*allow, *configured) if name.strip()]
        self._allow = [name.replace(":", ".") for name in written]
        self._allowed_files = {Path(name).resolve() for name in written}
        self._folder = folder
        self._known: set[str] = set()

    def check(self, op: str) -> None:
        """Raise UserError where `op` names a callable that the file may not call."""
        if op in self._known or not set(op) & set(".:"):
            return
        try:
            operator = find_operator(op)
        except UnknownName:
            return  # the expansion of the file says so, and what is meant
        if operator.program:
            self._check_program(op, operator.program)
            self._known.add(op)
            return
        callable_ = operator.category == "callable"
        path = dotted_path(op)
        allowed = is_below(path, self._allow) or computes(path, framework_modules())
        if callable_ and not allowed and not self._is_beside(path):
            of_framework = path.partition(".")[0] in framework_modules()
            module = part_to_allow(path) if of_framework else op.partition(":")[0]
            raise UserError(
                f"`{op}` is not a function that a workload file may call",
                f"a file that names any function is a program, so read it first; --allow {module} (in Python "
                f'allow="{module}") or {VARIABLE}={module} lets files call functions of that module',
            )
        self._known.add(op)

    def _check_program(self, op: str, file: str) -> None:
        """Raise UserError where a model is in a file that the workload file may not have executed."""
        path = Path(file).resolve()
        beside = self._folder is not None and path.parent == self._folder.resolve()
        if not beside and path not in self._allowed_files:
            raise UserError(
                f"`{op}` is a program that a workload file may not run",
                f'loading {file} executes it, so read it first; --allow {file} (in Python allow="{file}") or '
                f"{VARIABLE}={file} permits it, and so does a place beside the workload file",
            )

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
        # What is installed in an environment below the folder lies deeper than its name has parts. A module that is one
        # file has no parts below it: the rest of the name are attributes.
        deepest = len(rest) + 1 if package else 1
        return own in place.resolve().parents and len(place.resolve().relative_to(own).parts) <= deepest
