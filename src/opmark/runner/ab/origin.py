"""Finds out where the code of a side comes from, in a child process that is started as its workers are.

Two sides that load the same files would be called the same, whatever their revisions say.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Literal

from opmark.catalogue.families.callables import find_callable
from opmark.errors import UserError
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.runner.guests.placement import worker_command
from opmark.runner.worker_process import environ_for
from opmark.schema.messages import Side
from opmark.worker.process_setup import apply_side, belongs

Origin = Literal["opmark", "repository", "elsewhere"]
_TIMEOUT = 120.0
_MARK = "opmark:"


def confirm_origin(side: Side, ops: Iterable[str]) -> None:
    """Raise UserError where a module comes from the other side's files, or none from the revision.

    A module that cannot be imported is accepted here: its record will say why.
    """
    if side.checkout is None:
        return
    answer = _inspect_modules(side, sorted(set(ops)))
    if answer["astray"]:
        module, file = next(iter(answer["astray"].items()))
        raise UserError(
            f"{side.name}: `{module}` was loaded from {file} and not from the revision, which lies in "
            f"{side.checkout.root}: both sides would be the same code",
            "something finds it by an absolute path: an import hook of an installation, or a change of sys.path",
        )
    if not answer["inside"] and not answer["failed"]:
        files = "; ".join(f"{name}: {file}" for name, file in answer["named"].items()) or "nothing"
        raise UserError(
            f"{side.name}: nothing that is measured comes from this repository: {files}",
            "--rev compares revisions of a module of yours, as in `opmark ab --rev HEAD~1 my_module:f --args ...`, or "
            "of a plug-in; --repo PATH names its repository",
        )


def origins(side: Side, ops: Iterable[str]) -> dict[str, list[Origin]]:
    """For each operator, where the files of its code are. Operators that cannot be imported are left out."""
    found: dict[str, list[Origin]] = _inspect_modules(side, sorted(set(ops)))["origins"]
    return found


def _inspect_modules(side: Side, ops: list[str]) -> Any:
    info, place = find_backend(side.backend), side.checkout
    roots = {"root": place.root, "instead_of": place.instead_of} if place else {}
    try:
        done = subprocess.run(
            [*worker_command(info, "opmark.runner.ab.origin"), side.backend],
            input=json.dumps({"ops": ops, **roots}),
            env=environ_for(info, side.threads, side=side), cwd=place.folder if place else None,
            capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(f"{side.name}: importing it takes longer than {_TIMEOUT:.0f} s") from None
    answer = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not answer:  # it died, as a worker would: the record says how
        return {"astray": {}, "inside": [], "failed": {"": done.stderr}, "named": {}, "origins": {}}
    return json.loads(answer[-1].removeprefix(_MARK))


def main(backend: str) -> None:
    apply_side()
    request = json.load(sys.stdin)
    failed: dict[str, str] = {}
    named: dict[str, str] = {}
    root, own = request.get("root", ""), request.get("instead_of", "")
    origin: dict[str, list[Origin]] = {}
    for op in request["ops"]:
        try:
            loaded = _load(op, backend)
            named[op] = _file(sys.modules.get(loaded[0]))
            origin[op] = sorted({_origin(module, root) for module in loaded})
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's module may raise anything
            failed[op] = f"{type(error).__name__}: {error}"
    modules = {name: _file(module) for name, module in list(sys.modules.items()) if name.partition(".")[0] != "opmark"}
    files = {name: file for name, file in modules.items() if file}
    inside = [name for name, file in files.items() if root and belongs(file, root)]
    astray = {name: file for name, file in files.items() if own and name not in inside and belongs(file, own)}
    answer = {"inside": inside, "astray": astray, "failed": failed, "named": named, "origins": origin}
    print(f"\n{_MARK}{json.dumps(answer)}")


def _origin(module: str, root: str) -> Origin:
    if module.partition(".")[0] == "opmark":
        return "opmark"
    file = _file(sys.modules.get(module))
    return "repository" if root and file and belongs(file, root) else "elsewhere"


def _load(op: str, backend: str) -> list[str]:
    """Import what computes an operator, and return the names of its modules."""
    info, operator = find_backend(backend), find_operator(op)
    if info.loads:
        import_module(info.loads.partition(":")[0])
    if operator.category == "callable":
        find_callable(op)
        return [_module_of(op)]
    ways = implementations(operator, info)
    return [*(str(getattr(way.build, "__module__", "")) for way in ways), str(operator.inputs.__module__)]


def _module_of(name: str) -> str:
    """The longest part of a name that is a module, now that it is imported."""
    parts = name.replace(":", ".").split(".")
    return next((m for end in range(len(parts), 0, -1) if (m := ".".join(parts[:end])) in sys.modules), "")


def _file(module: Any) -> str:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else ""


if __name__ == "__main__":
    main(sys.argv[1])
