"""The parameters of a case as people read them: sizes as `M=256`, shapes as `32x64`, bytes as `64K`, element types
bare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from opmark.schema.case import Case
from opmark.schema.param import Param

_ALWAYS = ("ranks", "src", "dst")
"""Without who takes part, a number of a communication operator says nothing."""
_PREFIXES = "KMGT"


def shown(case: Case, known: Mapping[str, Param], called: str = "") -> str:
    """Defaults are left out, but for who takes part. `known`: the parameters of its operator; `called`: what a foreign
    call was called with."""
    if {"args", "kwargs"} <= set(case.params):
        return _arguments(case.params)
    parts = [called] if called else []
    for name, value in case.params.items():
        param = known.get(name)
        if param and param.kind == "dtype":
            parts.append(str(value) if name == "dtype" else f"{name}={value}")
        elif param is None or param.required or value != param.default or _says_who(param):
            text = short_bytes(value) if param and param.kind == "bytes" else _short(value)
            parts.append(f"{name}={text}" if name != "shape" else text)
    return " ".join(parts)


def _says_who(param: Param) -> bool:
    return param.kind == "rank" and param.name in _ALWAYS


def short_bytes(value: int) -> str:
    """As it may be given: `64K` for 65536, the number itself where it is no whole multiple."""
    prefix = ""
    for larger in _PREFIXES:
        if value == 0 or value % 1024:
            break
        value, prefix = value // 1024, larger
    return f"{value}{prefix}"


def _arguments(params: dict[str, Any]) -> str:
    """Of a callable: as a call is written, what it was built with in front."""
    built = params.get("build")
    parts = built if isinstance(built, dict) else {"args": built}
    first, second = (", ".join(_listed(part)) for part in (parts, params))
    return f"({first})({second})" if built is not None else second


def _listed(call: Mapping[str, Any]) -> list[str]:
    named = [f"{name}={_plain(value)}" for name, value in (call.get("kwargs") or {}).items()]
    return [*map(_plain, call.get("args") or []), *named]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(str(item) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
