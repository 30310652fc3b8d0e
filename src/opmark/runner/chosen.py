"""Which backends a person means: by name, by pattern, `all`, and in which interpreters."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from opmark.errors import UnknownName, UserError
from opmark.guests.place import why_missing
from opmark.hardware.presence import why_no_device
from opmark.interfaces import BackendInfo
from opmark.registry import backend as find_backend
from opmark.registry import backends

ALL = "all"
# Names a device that another backend names as well.
_ANY_DEVICE = "accelerator"


def backends_for(named: Sequence[str], pythons: Sequence[str] = ()) -> tuple[list[str], tuple[str, ...]]:
    """(names of backends, with the interpreter that each is to run in; what `all` or a pattern leaves out, and why)."""
    chosen: dict[str, None] = {}
    absent: dict[str, None] = {}
    for name in named:
        if name == ALL or set(name) & set("*?["):
            matching = _matching(name)
            there, gone = _here(matching)
            chosen |= dict.fromkeys(there)
            absent |= dict.fromkeys(gone)
        else:
            chosen[find_backend(name).name] = None
    if pythons:
        chosen = {_at(name, python): None for name in chosen for python in pythons}
    return list(chosen), tuple(absent)


def _at(name: str, python: str) -> str:
    if "@" in name:
        raise UserError(f"backend `{name}` has its interpreter already", "leave --python out")
    return find_backend(f"{name}@{python}").name


def _matching(pattern: str) -> list[BackendInfo]:
    """What computes; a pattern also takes variants, as in `openvino-cpu/*`."""
    known = [info for info in backends().values() if info.computes and info.device != _ANY_DEVICE]
    if pattern == ALL:
        return known
    names = {info.name: None for info in known}
    names |= {find_backend(f"{info.name}/{way}").name: None for info in known for way in info.variants}
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise UnknownName("backend", pattern, names, "opmark list backends")
    return [find_backend(name) for name in found]


def _here(infos: Sequence[BackendInfo]) -> tuple[list[str], list[str]]:
    reasons = {info.name: why_missing(info) or why_no_device(info.device) for info in infos}
    there = [name for name, reason in reasons.items() if not reason]
    if not there:
        raise UserError("; ".join(f"{name}: {reason}" for name, reason in reasons.items()), "`opmark list backends`")
    return there, [f"without {name}: {reason}" for name, reason in reasons.items() if reason]
