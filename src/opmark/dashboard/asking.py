"""Turns the parameters of an address into the typed struct of a view, and checks names, types and limits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from opmark.errors import InvalidParameter, nearest

LONGEST = 500
"""Characters of one value; names of cases and searches are shorter."""
_WHERE = re.compile(r" - at `\$\.(?P<name>\w+)[^`]*`$")
_GOT = re.compile(r", got `\w+`$")
"""The part of msgspec's message with the type that it got, which is always text."""
_Asked = TypeVar("_Asked", bound=Struct)


def asked(kind: type[_Asked], placed: Mapping[str, str], query: Iterable[tuple[str, str]]) -> _Asked:
    """Convert parameters; `placed` are those of the path. Empty values of the query are ignored."""
    known = {field.name: field for field in fields(kind)}
    values: dict[str, Any] = dict(placed)
    for name, value in query:
        if name not in known or name in placed:
            raise _unknown(name, [other for other in known if other not in placed])
        if value != "":
            _put(values, known[name], value)
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            _check_text(name, text)
    try:
        made = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(str(error), values, known) from None
    _check_finite(made)
    return made


def _put(values: dict[str, Any], field: FieldInfo, value: str) -> None:
    if get_origin(field.type) in (tuple, list):
        values.setdefault(field.name, []).append(value)
    elif field.name in values:
        raise InvalidParameter(f"{field.name}: expected one value, got several", "name it once")
    else:
        values[field.name] = _share(value) if _plain(field.type) is float else value


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _share(text: str) -> str:
    """Return `1%` as 0.01, as on the command line; an invalid number is reported later."""
    try:
        return str(float(text[:-1]) / 100) if text.endswith("%") else text
    except ValueError:
        return text


def _check_text(name: str, text: str) -> None:
    if len(text) > LONGEST:
        raise InvalidParameter(f"{name}: expected at most {LONGEST} characters, got {len(text)}")
    if any(ord(letter) < 32 or ord(letter) == 127 or "\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidParameter(f"{name}: expected text without control characters, got {text!a}")


def _check_finite(made: Struct) -> None:
    for field in fields(made):
        value = getattr(made, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidParameter(f"{field.name}: expected a number, got {value:g}")


def _unknown(name: str, known: list[str]) -> InvalidParameter:
    near = nearest(name, known)
    listed = f"known: {', '.join(known)}" if known else "this address takes none"
    return InvalidParameter(
        f"no parameter named `{name[:LONGEST]}`", f"did you mean `{near}`? {listed}" if near else listed
    )


def _wrong(message: str, values: Mapping[str, Any], known: Mapping[str, FieldInfo]) -> InvalidParameter:
    """Make a message from msgspec's, with the value that was given, and the known values if there is a list."""
    place = _WHERE.search(message)
    name = place["name"] if place else ""
    expected = _GOT.sub("", message[: place.start()] if place else message)
    got = values.get(name)
    told = ", ".join(got) if isinstance(got, list) else got
    allowed = choices(known[name].type) if name in known else ()
    if allowed:
        near = nearest(str(told), allowed)
        hint = f"did you mean `{near}`?" if near else None
        return InvalidParameter(f"{name}: expected one of {', '.join(allowed)}; got `{told}`", hint)
    return InvalidParameter(f"{name}: {expected[:1].lower()}{expected[1:]}, got `{told}`".removeprefix(": "))


def choices(kind: Any) -> tuple[str, ...]:
    """Return the values of a Literal that are not empty; nothing for another type."""
    literal = _plain(kind)
    return tuple(str(value) for value in get_args(literal) if value) if get_origin(literal) is Literal else ()
