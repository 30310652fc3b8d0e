"""Names to objects through entry points: lazily, ours exactly as a stranger's, a broken one named and skipped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeVar

from opmark.errors import UnknownName
from opmark.interfaces import BackendInfo
from opmark.schema import Operator

T = TypeVar("T")

OPERATORS_GROUP = "opmark.operators"
BACKENDS_GROUP = "opmark.backends"


@cache
def catalogue() -> dict[str, Operator]:
    """Every operator by name. An entry point names a module or a package; `OPERATORS` of each module is taken."""
    found: dict[str, Operator] = {}
    for entry in _entries(OPERATORS_GROUP):
        for operator in _loaded(entry, lambda entry: list(_operators(import_module(entry.value)))) or ():
            _insert(found, getattr(operator, "name", ""), operator, Operator, entry)
    return found


@cache
def backends() -> dict[str, BackendInfo]:
    """Every backend by name, described without importing its framework."""
    found: dict[str, BackendInfo] = {}
    for entry in _entries(BACKENDS_GROUP):
        info = _loaded(entry, EntryPoint.load)
        if isinstance(info, BackendInfo) and info.name != entry.name:
            _warn(entry, f"it describes `{info.name}`; both names must be the same")
        elif info is not None:
            _insert(found, entry.name, info, BackendInfo, entry)
    return found


def operator(name: str) -> Operator:
    known, other = catalogue(), aliases()
    if name not in known and name not in other:
        raise UnknownName("operator", name, [*known, *other], "opmark list ops")
    return known.get(name) or other[name]


@cache
def aliases() -> dict[str, Operator]:
    """Operators by the names that other systems have for them."""
    return {alias: op for op in catalogue().values() for alias in op.aliases}


def backend(name: str) -> BackendInfo:
    known = backends()
    if name not in known:
        raise UnknownName("backend", name, known, "opmark list backends")
    return known[name]


def forget() -> None:
    """Look again at what is installed."""
    catalogue.cache_clear()
    aliases.cache_clear()
    backends.cache_clear()


def _entries(group: str) -> list[EntryPoint]:
    """Ours first, so that a stranger cannot take one of our names by being read earlier."""
    return sorted(entry_points(group=group), key=lambda e: (not e.value.startswith("opmark."), e.name))


def _operators(module: ModuleType) -> Iterator[Operator]:
    yield from getattr(module, "OPERATORS", ())
    for child in iter_modules(getattr(module, "__path__", ())):
        if not child.name.startswith("_"):
            yield from _operators(import_module(f"{module.__name__}.{child.name}"))


def _insert(found: dict[str, T], name: str, item: object, noun: type[T], entry: EntryPoint) -> None:
    if not isinstance(item, noun):
        _warn(entry, f"expected {noun.__name__}, got {type(item).__name__}")
    elif name in found:
        _warn(entry, f"the name `{name}` is taken already")
    else:
        found[name] = item


def _loaded(entry: EntryPoint, load: Callable[[EntryPoint], Any]) -> Any:
    """What `load` gives, or None with a warning: one broken plug-in must not take the others with it."""
    try:
        with redirect_stdout(sys.stderr):  # standard output is for data, also while a stranger's module is imported
            return load(entry)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - such a module may raise anything, or try to leave
        _warn(entry, f"{type(error).__name__}: {error}")
        return None


def _warn(entry: EntryPoint, what: str) -> None:
    package = entry.dist.name if entry.dist else entry.value
    print(f"warning: plug-in `{entry.name}` of `{package}` ({entry.value}) is broken and left out: {what}",
          file=sys.stderr)  # fmt: skip
