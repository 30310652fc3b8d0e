"""Format the parameters of a case for people: sizes as `M=256`, shapes as `32x64`, bytes as `64K`, element types
without a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from opmark.schema.case import Case
from opmark.schema.param import Param

_ALWAYS = ("ranks", "src", "dst")
"""Shown even at their defaults: a number of a communication operator means nothing without its ranks."""
_PREFIXES = "KMGT"


def shown(case: Case, known: Mapping[str, Param], called: str = "") -> str:
    """Format the parameters of a case, without defaults except for ranks.

    `known` holds the parameters of its operator, `called` the arguments of a foreign call.
    """
    if {"args", "kwargs"} <= set(case.params):
        return _arguments(case.params)
    parts = [called] if called else []
    for name, value in case.params.items():
        param = known.get(name)
        if param and param.kind == "dtype":
            parts.append(str(value) if name == "dtype" else f"{name}={value}")
        elif param is None or param.required or value != param.default or _names_ranks(param):
            text = short_bytes(value) if param and param.kind == "bytes" else _format_value(value)
            parts.append(f"{name}={text}" if name != "shape" else text)
    return " ".join(parts)


def _names_ranks(param: Param) -> bool:
    return param.kind == "rank" and param.name in _ALWAYS


def short_bytes(value: int) -> str:
    """Format a number of bytes as it can be typed: `64K` for 65536, plain digits if it is no multiple of 1024."""
    prefix = ""
    for larger in _PREFIXES:
        if value == 0 or value % 1024:
            break
        value, prefix = value // 1024, larger
    return f"{value}{prefix}"


def _arguments(params: dict[str, Any]) -> str:
    """Format the arguments of a callable as a call is written, with those of its constructor first."""
    built = params.get("build")
    parts = built if isinstance(built, dict) else {"args": built}
    first, second = (", ".join(_format_call(part)) for part in (parts, params))
    return f"({first})({second})" if built is not None else second


def _format_call(call: Mapping[str, Any]) -> list[str]:
    named = [f"{name}={_format_argument(value)}" for name, value in (call.get("kwargs") or {}).items()]
    return [*map(_format_argument, call.get("args") or []), *named]


def _format_argument(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(str(item) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
