"""Strict conversion of plain data into structs: an error names the place and the nearest known key."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from opmark.errors import InvalidFile, nearest
from opmark.schema.operator import PHASES

T = TypeVar("T")

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.+?)`")
_PLACE = re.compile(r" - at `(?:key` in `)?(?P<path>\$.*)`$")
_STEP = re.compile(r"\.(\w+)|\[\.{3}\]|\[(\d+)\]")


def convert(data: object, noun: type[T], where: str) -> T:
    """Convert `data` into the struct `noun`; error messages name `where`, the file."""
    try:
        return msgspec.convert(data, noun)
    except msgspec.ValidationError as error:
        raise _explain(str(error), data, noun, where) from None
    except UnicodeEncodeError:
        raise InvalidFile(
            f"{where}: holds half of a surrogate pair (\\ud800 to \\udfff)", "write the whole character"
        ) from None


def _explain(text: str, data: object, noun: type, where: str) -> InvalidFile:
    place = _PLACE.search(text)
    path = place["path"] if place else "$"
    message = text[: place.start()] if place else text
    unknown = _UNKNOWN.match(message)
    if not unknown:
        return InvalidFile(f"{where}: {_plain(message)}, at `{path}`", _enum_hint(message))
    known = _fields(noun, path)
    near = nearest(unknown["field"], known)
    hint = f"did you mean `{near}`? " if near else ""
    return InvalidFile(
        f"{where}: unknown key `{unknown['field']}`, at `{path}`", f"{hint}known keys are {', '.join(known)}"
    )


# Words of the decoder's messages, and their replacements for people who write files.
_WORDS = {"`array`": "a list", "`object`": "a mapping", "`str`": "text", "`int`": "a whole number", "`null`": "nothing",
          "`bool`": "true or false", "`float`": "a number"}  # fmt: skip


def _plain(message: str) -> str:
    for word, plain in _WORDS.items():
        message = message.replace(word, plain)
    return message[0].lower() + message[1:]


def _enum_hint(message: str) -> str | None:
    """Suggest a phase: phases are the only enumeration in the files that are read."""
    found = re.match(r"Invalid enum value '(?P<name>.*)'", message)
    if not found:
        return None
    near = nearest(found["name"], PHASES)
    return f"did you mean `{near}`?" if near else f"known: {', '.join(PHASES)}"


def _fields(noun: Any, path: str) -> list[str]:
    """Return the keys that are allowed at `path` below `noun`."""
    for step in _STEP.finditer(path):
        noun = get_type_hints(noun)[step[1]] if step[1] else get_args(noun)[0]
        if get_origin(noun) is not list and not isinstance(noun, type):
            return []
    return [field.encode_name for field in msgspec.structs.fields(noun)]
